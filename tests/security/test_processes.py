"""What other processes of this machine, and core dumps, can see of ours."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.supervisor import POOL, Supervisor, gone_within, marked_processes, running_supervisor
from tests.security.people import powerless, run_python

pytestmark = pytest.mark.process

KEY = "canary-key-0001"
PROMPT = "canary-prompt-0002"
CLOSED = {"environ": "closed", "mem": "closed", "maps": "closed"}
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


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    """One without rights of root's own, whose shell allows core dumps, with a worker that has been used."""
    place = tmp_path_factory.mktemp("p")
    (place / "pool.toml").write_text(f'[agents.main]\nsystem_prompt = "@@{PROMPT}"\nenv = {{ SOME_KEY = "{KEY}" }}\n')
    wrapper = ("sh", "-c", 'ulimit -Sc 1024; exec "$@"', "sh", *powerless())
    flags = ("--config", str(place / "pool.toml"), "--max", "1")
    with running_supervisor(place / "data", *flags, wrapper=wrapper) as running:
        assert running.prompt("a", "ECHO:hello") == "hello"
        yield running


@pytest.fixture(scope="module")
def worker(supervisor: Supervisor) -> int:
    (worker,) = supervisor.status()["workers"]
    return int(worker["pid"])


def test_s13_a_worker_cannot_look_into_its_supervisor(supervisor: Supervisor, worker: int) -> None:
    assert look(supervisor.process.pid) == CLOSED
    assert look(worker)["environ"] == "open"  # so it is the supervisor who has closed it


def test_s14_neither_a_supervisor_nor_its_workers_leave_core_dumps(supervisor: Supervisor, worker: int) -> None:
    assert limits_of(supervisor.process.pid) == limits_of(worker) == ("0", "0077")


def test_s15_no_argument_of_a_supervisors_processes_holds_what_their_environment_does(worker: int) -> None:
    assert KEY.encode() in Path(f"/proc/{worker}/environ").read_bytes()
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert KEY.encode() not in line.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue


def test_s15_no_argument_holds_a_system_prompt_which_the_worker_has_all_the_same(
    supervisor: Supervisor, worker: int
) -> None:
    assert f"@{PROMPT}" in supervisor.prompt("a", "SYSTEM")
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert PROMPT.encode() not in line.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
    (here,) = supervisor.status()["workers"]
    assert Path(f"/proc/{worker}/cmdline").read_bytes() == f"pool: worker {here['id']} main\0".encode()
    assert Path(f"/proc/{worker}/comm").read_text() == f"pool {here['id']} main"[:15] + "\n"


def test_s13_an_attached_front_end_is_closed_too(supervisor: Supervisor) -> None:
    command = [*powerless(), *POOL, "attach", "--mode", "rpc", "--socket", str(supervisor.socket)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as front:
        assert front.stdin is not None
        assert front.stdout is not None
        assert b"ready" in front.stdout.readline()
        assert (look(front.pid), limits_of(front.pid)) == (CLOSED, ("0", "0077"))
        front.stdin.close()


def test_s13_what_an_editor_has_started_is_closed_too_once_it_is_connected(supervisor: Supervisor) -> None:
    command = [*powerless(), *POOL, "acp", "--socket", str(supervisor.socket)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        for method, params in ((b"initialize", b'{"protocolVersion":1}'), (b"session/list", b"{}")):
            agent.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"%b","params":%b}\n' % (method, params))
            agent.stdin.flush()
            assert b"result" in agent.stdout.readline()
        assert (look(agent.pid), limits_of(agent.pid)) == (CLOSED, ("0", "0077"))
        agent.stdin.close()


def test_s13_what_a_closed_supervisor_has_started_is_found_and_ended_all_the_same(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, "--max", "1", wrapper=powerless()) as supervisor:
        supervisor.prompt("a", 'TOOL:exec {"command":"sleep 300","background":true}')
        started = marked_processes(supervisor.instance())
        assert len(started) >= 2  # the worker and its command
        supervisor.signal(signal.SIGKILL)
        assert gone_within(started, 20)


def test_the_look_sees_what_is_open() -> None:
    """Else the tests above would hold for whatever reason."""
    program = [*powerless(), sys.executable, "-I", "-S", "-c", "print(flush=True); input()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert look(other.pid)["environ"] == "open"
