"""Programs that start the agent and exit, or wait for it: the worker ends with the agent, and not before."""

import os
import signal

import msgspec
import pytest
import trio.testing

from rpc.process import Rung, WorkerProcess
from rpc.settings import RpcSettings
from rpc.spawn import WorkerSpec
from rpc.transport import ExitStatus
from tests.rpc.procs import is_alive, read_line, receive, running, spec_of
from wire.units import Seconds

pytestmark = pytest.mark.process

PATIENT = RpcSettings(abort_grace=Seconds(60), eof_grace=Seconds(60), term_grace=Seconds(60))
IMPATIENT_AT_EOF = RpcSettings(eof_grace=Seconds(0.15), term_grace=Seconds(60))
QUICK = RpcSettings(abort_grace=Seconds(0.15), eof_grace=Seconds(0.15), term_grace=Seconds(0.15))

EXITS = "import os, sys, time, signal, subprocess\nif os.fork(): os._exit(0)\n"
WAITS = EXITS.replace("os._exit(0)", "os.wait()")
OWN_SESSION = "os.setsid()\n"
AGENT = "os.write(1, b'%d\\n' % os.getpid())\n"
ENDS_AT_EOF = AGENT + "sys.stdin.read()"
IGNORES_EOF = AGENT + "sys.stdin.read(); time.sleep(600)"
IGNORES_ENDS = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + IGNORES_EOF
AGENT_WITH_TOOL = """
tool = subprocess.Popen(['sleep', '600'], stdin=subprocess.DEVNULL, start_new_session=True)
os.write(1, b'%d %d\\n' % (os.getpid(), tool.pid))
sys.stdin.readline()
"""


def wrapped(code: str) -> WorkerSpec:
    return msgspec.structs.replace(spec_of(code), may_be_wrapper=True)


async def agent_of(process: WorkerProcess) -> int:
    """The agent that goes on for the wrapper, once that has exited."""
    while process.pid == process.identity.pid:
        await trio.testing.wait_all_tasks_blocked(0.005)
    return process.pid


WHEREVER = pytest.mark.parametrize("where", ["", OWN_SESSION], ids=["its group", "a session of its own"])


@WHEREVER
@pytest.mark.parametrize(
    ("agent", "settings", "rung"),
    [
        pytest.param(ENDS_AT_EOF, PATIENT, Rung.EOF, id="EOF"),
        pytest.param(IGNORES_EOF, IMPATIENT_AT_EOF, Rung.TERM, id="SIGTERM"),
        pytest.param(IGNORES_ENDS, QUICK, Rung.KILL, id="SIGKILL"),
    ],
)
async def test_an_agent_whose_wrapper_has_exited_goes_on_and_is_ended_like_any_other(
    where: str, agent: str, settings: RpcSettings, rung: Rung
) -> None:
    async with running(wrapped(EXITS + where + agent), settings=settings) as process:
        pid = int(await read_line(process))
        assert await agent_of(process) == pid
        assert not process.has_ended()
        assert await process.stop() == ExitStatus()
        assert process.last_rung is rung
        assert not is_alive(pid)


@WHEREVER
async def test_an_agent_behind_a_wrapper_that_waits_gets_the_time_to_act_on_sigterm(where: str) -> None:
    says_goodbye = "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), os.write(1, b'bye\\n'), os._exit(0)))\n"
    async with running(wrapped(WAITS + where + says_goodbye + IGNORES_EOF), settings=IMPATIENT_AT_EOF) as process:
        pid = int(await read_line(process))
        await process.stop()
        assert await receive(process) == b"bye\n"
        assert process.last_rung is Rung.TERM
        assert not is_alive(pid)


async def test_the_end_of_the_agent_is_that_of_the_worker_whatever_its_tools_hold_open() -> None:
    async with running(wrapped(EXITS + AGENT_WITH_TOOL + "time.sleep(600)"), settings=PATIENT) as process:
        agent, tool = map(int, (await read_line(process)).split())
        os.kill(await agent_of(process), signal.SIGKILL)
        assert await process.wait_exit() == ExitStatus()
        await process.stop()
        assert process.last_rung is None
        assert not is_alive(agent)
        assert not is_alive(tool)


async def test_a_program_that_exits_itself_is_the_end_whatever_its_tools_hold_open() -> None:
    code = "import os, sys, subprocess" + AGENT_WITH_TOOL + "sys.exit(4)"
    async with running(wrapped(code), settings=PATIENT) as process:
        _, tool = map(int, (await read_line(process)).split())
        process.send_nowait(b"\n")
        assert await process.wait_exit() == ExitStatus(code=4)
        await process.stop()
        assert process.last_rung is None
        assert not is_alive(tool)


async def test_a_wrapper_that_is_killed_is_the_end_of_its_agent() -> None:
    async with running(wrapped(WAITS + IGNORES_ENDS), settings=PATIENT) as process:
        pid = int(await read_line(process))
        os.kill(process.pid, signal.SIGKILL)
        assert await process.wait_exit() == ExitStatus(signal=signal.SIGKILL)
        await process.stop()
        assert process.last_rung is None
        assert not is_alive(pid)
