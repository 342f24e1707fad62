"""Where the control socket lies; and one supervisor for one data directory, whatever way the last one ended."""

import errno
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from doors.locations import (
    MAX_SOCKET_PATH_BYTES,
    AlreadyRunning,
    DataDirLock,
    LockHolder,
    check_socket_path,
    make_private_dir,
    read_lock_holder,
    resolve_socket,
)
from errors import UsageError

DATA = Path("/data")
ENV = {"POOL_SOCKET": "/env.sock", "XDG_RUNTIME_DIR": "/run/user/1"}


@pytest.mark.parametrize(
    ("flag", "env", "configured", "found"),
    [
        ("/flag.sock", ENV, "/set.sock", "/flag.sock"),
        (None, ENV, "/set.sock", "/env.sock"),
        (None, {"XDG_RUNTIME_DIR": "/run"}, "/set.sock", "/set.sock"),
        (None, {}, None, "/data/control.sock"),
        ("", {"POOL_SOCKET": "", "XDG_RUNTIME_DIR": ""}, "", "/data/control.sock"),
        ("~/p.sock", {}, None, "/home/someone/p.sock"),
        ("p.sock", {}, None, "/p.sock"),
    ],
)
def test_the_socket_is_looked_for_in_order(
    monkeypatch: pytest.MonkeyPatch, flag: str | None, env: Mapping[str, str], configured: str | None, found: str
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.chdir("/")
    assert resolve_socket(flag, env, configured, DATA) == Path(found)


def test_each_data_directory_has_its_own_socket_in_the_runtime_directory_by_whatever_name_it_goes(
    tmp_path: Path,
) -> None:
    env = {"XDG_RUNTIME_DIR": "/run/user/1"}
    (tmp_path / "link").symlink_to(tmp_path)
    one = resolve_socket(None, env, None, tmp_path)
    assert one == resolve_socket(None, env, None, tmp_path / "link")
    assert one != resolve_socket(None, env, None, tmp_path / "other")
    assert one.parent == Path("/run/user/1/pool")


def test_a_path_the_kernel_would_refuse_is_refused_with_a_hint() -> None:
    longest = Path("/" + "x" * (MAX_SOCKET_PATH_BYTES - 1))
    check_socket_path(longest)
    with pytest.raises(UsageError, match=r"108 bytes and sockets allow 107; name a shorter one with --socket"):
        check_socket_path(Path(f"{longest}x"))
    with pytest.raises(UsageError, match="108 bytes"):
        check_socket_path(Path("/" + "é" * 53 + "x"))


def test_a_private_directory_is_made_with_mode_0700_and_a_sticky_one_is_taken(tmp_path: Path) -> None:
    made = tmp_path / "a" / "b"
    make_private_dir(made)
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o1777)
    make_private_dir(made)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot make the directory"):
        make_private_dir(tmp_path / "file" / "dir")


# --- the lock of a data directory ------------------------------------------------------------------------------------


def test_a_second_holder_is_told_pid_and_socket_of_the_first(tmp_path: Path) -> None:
    with DataDirLock(tmp_path / "data", Path("/run/a.sock")):
        assert read_lock_holder(tmp_path / "data") == LockHolder(pid=os.getpid(), socket="/run/a.sock")
        words = rf"pid {os.getpid()} already serves .* on /run/a.sock"
        with pytest.raises(AlreadyRunning, match=words) as refusal:
            DataDirLock(tmp_path / "data", Path("/run/b.sock"))
    assert refusal.value.details == {"pid": os.getpid(), "socket": "/run/a.sock"}


def test_a_lock_given_back_can_be_taken_again_and_names_nobody(tmp_path: Path) -> None:
    lock = DataDirLock(tmp_path, Path("/run/a.sock"))
    lock.close()
    lock.close()
    assert read_lock_holder(tmp_path) is None
    DataDirLock(tmp_path, Path("/run/b.sock")).close()


@pytest.mark.parametrize("record", [b'{"pid": ', b'{"pid": 1, "socket": "\xff"}'])
def test_a_record_that_cannot_be_read_costs_the_names_but_not_the_lock(tmp_path: Path, record: bytes) -> None:
    with DataDirLock(tmp_path, Path("/run/a.sock")):
        (tmp_path / "supervisor.lock").write_bytes(record)
        with pytest.raises(AlreadyRunning, match=r"another supervisor holds the data directory"):
            DataDirLock(tmp_path, Path("/run/b.sock"))


def test_a_data_directory_that_cannot_be_written_is_refused_and_leaves_no_lock_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", be_full)
        with pytest.raises(UsageError, match=r"cannot write to the data directory .*: No space left on device"):
            DataDirLock(tmp_path, Path("/run/a.sock"))
    DataDirLock(tmp_path, Path("/run/b.sock")).close()
    (tmp_path / "supervisor.lock").unlink()
    (tmp_path / "supervisor.lock").mkdir()
    with pytest.raises(UsageError, match="cannot write to the data directory"):
        DataDirLock(tmp_path, Path("/run/a.sock"))


HOLD = "import os, sys; from pathlib import Path; from doors.locations import DataDirLock\n"
HOLD += 'lock = DataDirLock(Path(sys.argv[1]), Path("/run/first.sock")); print(flush=True); sys.stdin.read()'


@pytest.mark.process
def test_a_killed_holder_frees_the_lock_by_its_death(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        first.stdout.readline()
        with pytest.raises(AlreadyRunning, match=f"pid {first.pid}"):
            DataDirLock(tmp_path, Path("/run/second.sock"))
        first.kill()
        first.wait(timeout=20)
    with DataDirLock(tmp_path, Path("/run/second.sock")):
        assert read_lock_holder(tmp_path) == LockHolder(os.getpid(), "/run/second.sock")
