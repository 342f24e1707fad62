"""One supervisor for one data directory, whatever way the last one ended."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from doors.locations import AlreadyRunning, DataDirLock, LockHolder, read_lock_holder
from errors import UsageError

HOLD = """
import os, sys
from pathlib import Path
from doors.locations import DataDirLock
lock = DataDirLock(Path(sys.argv[1]), Path("/run/first.sock"))
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def test_a_second_holder_is_told_pid_and_socket_of_the_first(tmp_path: Path) -> None:
    with DataDirLock(tmp_path / "data", Path("/run/a.sock")):
        holder = read_lock_holder(tmp_path / "data")
        assert holder is not None
        with pytest.raises(AlreadyRunning, match=rf"pid {holder.pid} already serves .* on /run/a.sock") as refusal:
            DataDirLock(tmp_path / "data", Path("/run/b.sock"))
    assert refusal.value.details == {"pid": holder.pid, "socket": "/run/a.sock"}


def test_a_lock_given_back_can_be_taken_again_and_names_nobody(tmp_path: Path) -> None:
    lock = DataDirLock(tmp_path, Path("/run/a.sock"))
    lock.close()
    lock.close()
    assert read_lock_holder(tmp_path) is None
    with DataDirLock(tmp_path, Path("/run/b.sock")):
        assert read_lock_holder(tmp_path) == LockHolder(pid=os.getpid(), socket="/run/b.sock")


@pytest.mark.parametrize("record", [b'{"pid": ', b'{"pid": 1, "socket": "\xff"}'])
def test_a_record_that_cannot_be_read_costs_the_names_but_not_the_lock(tmp_path: Path, record: bytes) -> None:
    with DataDirLock(tmp_path, Path("/run/a.sock")):
        (tmp_path / "supervisor.lock").write_bytes(record)
        with pytest.raises(AlreadyRunning, match=r"another supervisor holds the data directory"):
            DataDirLock(tmp_path, Path("/run/b.sock"))


def test_a_data_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "supervisor.lock").mkdir()
    with pytest.raises(UsageError, match="cannot write to the data directory"):
        DataDirLock(tmp_path, Path("/run/a.sock"))


def test_a_full_disk_is_told_as_such_and_leaves_no_lock_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def be_full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", be_full)
        with pytest.raises(UsageError, match=r"cannot write to the data directory .*: No space left on device"):
            DataDirLock(tmp_path, Path("/run/a.sock"))
    DataDirLock(tmp_path, Path("/run/b.sock")).close()


@pytest.mark.process
def test_a_killed_holder_frees_the_lock_by_its_death(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        pid = int(first.stdout.readline())
        with pytest.raises(AlreadyRunning, match=f"pid {pid}"):
            DataDirLock(tmp_path, Path("/run/second.sock"))
        first.kill()
        first.wait(timeout=20)
    with DataDirLock(tmp_path, Path("/run/second.sock")):
        holder = read_lock_holder(tmp_path)
    assert holder is not None
    assert holder.socket == "/run/second.sock"
