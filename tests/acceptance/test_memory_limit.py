"""A supervisor in a cgroup with too little memory: what the kernel ends there, and what is refused beforehand."""

import os
import secrets
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rpc.cgroup import own_cgroup
from tests.acceptance.supervisor import Supervisor, running_supervisor, tool

pytestmark = pytest.mark.process

MIB = 1024**2
LIMIT = 400 * MIB
FILES = {"": "memory.max", "memory": "memory.limit_in_bytes"}  # by controller: version 2, version 1

# Grows by small processes, each of them far below the size of a supervisor, until the limit is met.
MANY_SMALL = "for i in $(seq 40); do (head -c 15M /dev/zero | tail -c 15M | sleep 60) & done; wait"


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup that allows 400 MiB."""
    path = _made()
    if path is None:
        pytest.skip("no memory cgroup can be made here")
    yield path
    for pid in map(int, (path / "cgroup.procs").read_text().split()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    path.rmdir()


def _made() -> Path | None:
    for controller, name in FILES.items():
        place = own_cgroup(controller)
        if place is None:
            continue
        path = place.path / f"pool-test-{secrets.token_hex(4)}"
        try:
            path.mkdir()
        except OSError:
            continue
        with suppress(OSError):
            (path / name).write_text(str(LIMIT))  # where the controller is not at work there is no such file
            return path
        path.rmdir()
    return None


def inside(cgroup: Path) -> tuple[str, ...]:
    """What starts a program in it."""
    return ("sh", "-c", f'echo $$ >{cgroup}/cgroup.procs; exec "$@"', "sh")


def test_a_pool_that_the_limit_cannot_hold_is_refused(cgroup: Path, tmp_path: Path) -> None:
    refused = Supervisor(tmp_path, "--max", "12", wrapper=inside(cgroup))
    assert refused.wait(60) == 2
    assert f"{cgroup}/memory." in refused.log_tail()
    assert "allows 400 MiB" in refused.log_tail()


def test_the_kernel_ends_what_a_worker_has_started_and_the_supervisor_goes_on(cgroup: Path, tmp_path: Path) -> None:
    with running_supervisor(tmp_path, "--max", "2", wrapper=inside(cgroup)) as supervisor:
        assert supervisor.prompt("calm", "ECHO:before") == "before"
        supervisor.pool("prompt", "-s", "hungry", tool(MANY_SMALL, yield_ms=20_000))
        assert _killed(cgroup) > 0
        assert supervisor.process.poll() is None
        supervisor.pool("sessions", "reset", "hungry", "--force")  # else the kernel may end calm's worker next
        _wait_until_gone(cgroup, "tail")
        assert supervisor.prompt("calm", "ECHO:after") == "after"


def _wait_until_gone(cgroup: Path, name: str, timeout: float = 60) -> None:
    """Wait for the end of every process of that name: until then the kernel may end another one."""
    for pid in (cgroup / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):  # it has ended since
            descriptor = os.pidfd_open(int(pid))
            try:
                is_gone = _name_of(pid) != name or bool(select.select([descriptor], [], [], timeout)[0])
            finally:
                os.close(descriptor)
            assert is_gone, f"{name} goes on"


def _name_of(pid: str) -> str:
    try:
        return Path("/proc", pid, "comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):  # it has ended since
        return ""


def _killed(cgroup: Path) -> int:
    """How many processes the kernel has ended for want of memory."""
    for name in ("memory.events", "memory.oom_control"):
        with suppress(FileNotFoundError):
            counts = dict(line.split() for line in (cgroup / name).read_text().splitlines())
            return int(counts["oom_kill"])
    raise AssertionError(f"{cgroup} does not say what was killed in it")
