"""What other processes of this machine, and core dumps, can see of ours."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.supervisor import POOL, gone_within, marked_processes, running_supervisor
from tests.security.people import powerless, run_python

pytestmark = pytest.mark.process

LOOK = """
import sys
for name in ("environ", "mem", "maps"):
    try:
        with open(f"/proc/{sys.argv[1]}/{name}", "rb") as file:
            file.read(0 if name == "mem" else 1)
    except OSError:
        print(name, "closed", end=" ")
    else:
        print(name, "open", end=" ")
"""


def limits_of(pid: int) -> tuple[str, str]:
    """The soft limit of core dumps and the umask, as the kernel has them."""
    limit = re.search(r"^Max core file size +(\S+)", Path(f"/proc/{pid}/limits").read_text(), re.MULTILINE)
    umask = re.search(r"^Umask:\s+(\S+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert limit is not None
    assert umask is not None
    return limit[1], umask[1]


def look(pid: int) -> dict[str, str]:
    """What a process of the same user sees of another."""
    words = run_python(LOOK, str(pid), wrapper=powerless()).split()
    return dict(zip(words[::2], words[1::2], strict=True))


def test_s13_a_worker_cannot_look_into_its_supervisor(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, "--max", "1", wrapper=powerless()) as supervisor:
        assert supervisor.prompt("a", "ECHO:hello") == "hello"
        (worker,) = supervisor.status()["workers"]
        assert look(supervisor.process.pid) == {"environ": "closed", "mem": "closed", "maps": "closed"}
        assert look(worker["pid"])["environ"] == "open"  # so it is the supervisor who has closed it


def test_s13_an_attached_front_end_is_closed_too(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, "--max", "1", wrapper=powerless()) as supervisor:
        front = subprocess.Popen(
            [*powerless(), *POOL, "attach", "--mode", "rpc", "--socket", str(supervisor.socket)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert front.stdin is not None
        assert front.stdout is not None
        try:
            assert b"ready" in front.stdout.readline()
            assert look(front.pid) == {"environ": "closed", "mem": "closed", "maps": "closed"}
            assert limits_of(front.pid) == ("0", "0077")
        finally:
            front.stdin.close()
            front.stdout.close()
            front.wait(20)


def test_s13_what_a_closed_supervisor_has_started_is_found_and_ended_all_the_same(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, "--max", "1", wrapper=powerless()) as supervisor:
        run = 'TOOL:exec {"command":"sleep 300","background":true}'
        supervisor.prompt("a", run)
        started = marked_processes(supervisor.instance())
        assert len(started) >= 2  # the worker and its command
        supervisor.signal(signal.SIGKILL)
        assert gone_within(started, 20)


def test_s14_neither_a_supervisor_nor_its_workers_leave_core_dumps(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, "--max", "1", wrapper=("sh", "-c", 'ulimit -Sc 1024; exec "$@"', "sh")) as ours:
        ours.prompt("a", "ECHO:hello")
        (worker,) = ours.status()["workers"]
        assert limits_of(ours.process.pid) == limits_of(worker["pid"]) == ("0", "0077")


def test_s15_no_argument_of_a_supervisors_processes_holds_what_their_environment_does(tmp_path: Path) -> None:
    (tmp_path / "pool.toml").write_text('[agents.main]\nenv = { SOME_KEY = "canary-key-0001" }\n')
    with running_supervisor(tmp_path / "data", "--config", str(tmp_path / "pool.toml"), "--max", "1") as supervisor:
        supervisor.prompt("a", "ECHO:hello")
        (worker,) = supervisor.status()["workers"]
        assert b"canary-key-0001" in Path(f"/proc/{worker['pid']}/environ").read_bytes()
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                assert b"canary-key-0001" not in line.read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue


def test_the_look_sees_what_is_open() -> None:
    """Else the tests above would hold for whatever reason."""
    program = [*powerless(), sys.executable, "-I", "-S", "-c", "print(flush=True); input()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert look(other.pid)["environ"] == "open"
    assert os.getpid() != other.pid
