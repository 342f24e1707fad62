"""The kill ladder: each rung is reached when it is needed, none when it is not, and nothing is left at its end."""

import os
import secrets
import signal
import time
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from errors import RequestTimeout
from rpc.cgroup import Cgroup
from rpc.process import Rung
from rpc.settings import RpcSettings
from rpc.transport import ExitStatus
from tests.rpc.procs import DOUBLE_FORK, HIDDEN_FROM_ENVIRONMENT, is_alive, read_line, running, spec_of
from wire.procfs import marker_of, read_stat
from wire.units import Seconds

pytestmark = pytest.mark.process

QUICK = RpcSettings(abort_grace=Seconds(0.15), eof_grace=Seconds(0.15), term_grace=Seconds(0.15))
IMPATIENT_AT_EOF = RpcSettings(eof_grace=Seconds(0.15), term_grace=Seconds(60))
PATIENT = RpcSettings(abort_grace=Seconds(60), eof_grace=Seconds(60), term_grace=Seconds(60))

IGNORES_EOF = "import time, sys; print('up', flush=True); sys.stdin.read(); time.sleep(600)"
IGNORES_TERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + IGNORES_EOF
ENDS_AT_EOF = "import sys; print('up', flush=True); sys.stdin.read(); sys.exit(3)"


@pytest.fixture(params=[False, True], ids=["marker", "cgroup"])
def cgroups(request: pytest.FixtureRequest) -> Iterator[Cgroup | None]:
    """Everything here holds with a cgroup per worker and without."""
    if not request.param:
        yield None
        return
    cgroup = Cgroup.for_instance(f"test-{time.monotonic_ns()}")
    if cgroup is None:
        pytest.skip("no writable cgroup v2 on this machine")
    yield cgroup
    _assert_removed(cgroup)


def _assert_removed(cgroup: Cgroup) -> None:
    assert list(cgroup.path.glob("w*")) == []
    assert cgroup.remove()
    assert not cgroup.path.exists()


@pytest.mark.parametrize(
    ("code", "settings", "status", "rung"),
    [
        pytest.param(ENDS_AT_EOF, PATIENT, ExitStatus(code=3), Rung.EOF, id="none at EOF"),
        pytest.param(
            IGNORES_EOF, IMPATIENT_AT_EOF, ExitStatus(signal=signal.SIGTERM), Rung.TERM, id="SIGTERM after it"
        ),
        pytest.param(IGNORES_TERM, QUICK, ExitStatus(signal=signal.SIGKILL), Rung.KILL, id="SIGKILL at last"),
    ],
)
async def test_a_worker_gets_no_signal_before_what_is_more_polite_was_in_vain(
    cgroups: Cgroup | None, code: str, settings: RpcSettings, status: ExitStatus, rung: Rung
) -> None:
    async with running(spec_of(code), settings=settings, cgroups=cgroups) as process:
        await read_line(process)
        start = trio.current_time()
        assert await process.stop() == status
        assert process.last_rung is rung
        assert rung is not Rung.KILL or trio.current_time() - start >= 0.3


async def test_the_running_turn_is_aborted_before_stdin_is_closed() -> None:
    async with running(spec_of("print(input(), flush=True); input()"), settings=PATIENT) as process:
        heard: list[str] = []

        async def abort() -> None:
            process.send_nowait(b"abort\n")
            heard.append(await read_line(process))

        assert await process.stop(abort=abort) == ExitStatus(code=1)  # input() fails at the end of its input
        assert heard == ["abort"]
        assert process.last_rung is Rung.EOF


async def test_an_abort_that_ends_the_worker_is_the_only_rung() -> None:
    async with running(spec_of("input()"), settings=PATIENT) as process:

        async def abort() -> None:
            process.send_nowait(b"\n")
            await trio.sleep_forever()

        assert await process.stop(abort=abort) == ExitStatus(code=0)
        assert process.last_rung is Rung.ABORT


@pytest.mark.parametrize("answer", ["never", "refused"])
async def test_an_abort_that_does_not_help_costs_no_more_than_its_grace(answer: str) -> None:
    settings = RpcSettings(abort_grace=Seconds(0.15), eof_grace=Seconds(60), term_grace=Seconds(60))
    async with running(spec_of(ENDS_AT_EOF), settings=settings) as process:
        await read_line(process)

        async def abort() -> None:
            if answer == "refused":
                raise RequestTimeout("no answer")
            await trio.sleep_forever()

        assert await process.stop(abort=abort) == ExitStatus(code=3)
        assert process.last_rung is Rung.EOF


async def test_a_suspended_worker_is_told_and_still_acts_on_sigterm() -> None:
    code = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print(1, flush=True); signal.sigwait({signal.SIGTERM}); sys.exit(5)
"""
    async with running(spec_of(code), settings=PATIENT) as process:
        await read_line(process)
        await _suspend(process.pid)
        assert process.is_suspended
        assert await process.stop() == ExitStatus(code=5)  # neither abort nor EOF were waited for
        assert process.last_rung is Rung.TERM


async def _suspend(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    # waitid tells when the stop has taken effect, and takes no exit status away.
    await trio.to_thread.run_sync(os.waitid, os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


async def test_force_goes_to_sigkill_at_once() -> None:
    async with running(spec_of(IGNORES_EOF), settings=PATIENT) as process:
        await read_line(process)
        assert await process.stop(force=True) == ExitStatus(signal=signal.SIGKILL)
        assert process.last_rung is Rung.KILL


async def test_all_callers_share_one_stop_and_a_later_one_may_force_it() -> None:
    async with running(spec_of(IGNORES_TERM), settings=PATIENT) as process:
        await read_line(process)
        statuses: list[ExitStatus] = []

        async def stop(*, force: bool) -> None:
            statuses.append(await process.stop(force=force))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: stop(force=False))
            nursery.start_soon(lambda: stop(force=False))
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.start_soon(lambda: stop(force=True))
        assert statuses == [ExitStatus(signal=signal.SIGKILL)] * 3
        assert await process.stop() == ExitStatus(signal=signal.SIGKILL)


async def test_a_stop_goes_on_when_its_caller_gives_up() -> None:
    async with running(spec_of(IGNORES_TERM), settings=QUICK) as process:
        await read_line(process)
        with trio.move_on_after(0.05) as scope:
            await process.stop()
        assert scope.cancelled_caught
        assert await process.wait_exit() == ExitStatus(signal=signal.SIGKILL)


async def test_a_tool_that_forked_twice_into_its_own_session_dies_with_its_worker(cgroups: Cgroup | None) -> None:
    code = DOUBLE_FORK + "import sys; sys.stdin.read()"
    async with running(spec_of(code), settings=PATIENT, cgroups=cgroups) as process:
        tool = int(await read_line(process))
        assert marker_of(tool) == process.marker
        assert await process.stop() == ExitStatus(code=0)
        assert not is_alive(tool)
        assert process.last_rung is Rung.EOF


async def test_a_tool_is_swept_when_its_worker_crashes(cgroups: Cgroup | None) -> None:
    code = DOUBLE_FORK + "import sys; input(); os.kill(os.getpid(), 9)"
    async with running(spec_of(code), cgroups=cgroups) as process:
        tool = int(await read_line(process))
        process.send_nowait(b"\n")
        assert await process.stop() == ExitStatus(signal=9)
        assert not is_alive(tool)


async def test_a_tool_that_clears_its_environment_is_found_by_descent() -> None:
    code = """
import os, sys, subprocess
tool = subprocess.Popen([sys.executable, "-S", "-c", "import time; print('x', flush=True); time.sleep(600)"],
                        env={}, start_new_session=True, stdout=subprocess.PIPE)
tool.stdout.readline()
print(tool.pid, flush=True); sys.stdin.read(); os._exit(0)
"""
    async with running(spec_of(code), settings=PATIENT) as process:
        tool = int(await read_line(process))
        assert marker_of(tool) is None
        await process.stop()
        assert not is_alive(tool)
        assert process.leftovers.killed == (tool,)


@pytest.mark.parametrize("end", ["stop", "kill -9"])
async def test_a_tool_that_clears_its_environment_and_detaches_itself_dies_with_its_worker(end: str) -> None:
    async with running(spec_of(HIDDEN_FROM_ENVIRONMENT + "sys.stdin.read()"), settings=PATIENT) as process:
        tool = int(await read_line(process))
        stat = read_stat(tool)
        assert stat is not None
        assert (marker_of(tool), stat.parent == process.pid, stat.session == process.pid) == (None, False, False)
        if end == "kill -9":
            os.kill(process.pid, signal.SIGKILL)
        await process.stop()
        assert not is_alive(tool)
        assert process.leftovers.killed == (tool,)


async def test_a_worker_that_ends_takes_along_nothing_of_another_worker() -> None:
    instance = secrets.token_hex(8)
    hidden = HIDDEN_FROM_ENVIRONMENT + "input()"
    async with running(spec_of(hidden, instance=instance, worker_id="w2")) as bystander:
        tool = int(await read_line(bystander))
        for worker_id in ("w1", "w22", "odd"):
            async with running(spec_of(hidden, instance=instance, worker_id=worker_id)) as process:
                await read_line(process)
                await process.stop(force=True)
        assert is_alive(tool)
        assert is_alive(bystander.pid)


async def test_a_cgroup_finds_a_detached_tool_without_a_marker() -> None:
    cgroup = Cgroup.for_instance(f"test-{time.monotonic_ns()}")
    if cgroup is None:
        pytest.skip("no writable cgroup v2 on this machine")
    # The environment in /proc is that of the last exec: here the tool execs with an empty one, twice detached.
    code = """
import os, sys
input()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, ["python", "-S", "-c",
                  "import os, time; os.write(1, b'%d' % os.getpid()); time.sleep(600)"], {})
    os._exit(0)
os.wait(); input()
"""
    async with running(spec_of(code), cgroups=cgroup) as process:
        own = cgroup.for_worker("w1")
        assert own is not None
        assert own.add(process.pid)  # what supervise does in its own time: here surely before the worker forks
        process.send_nowait(b"\n")
        tool = int(await read_line(process))
        assert marker_of(tool) is None
        await process.stop(force=True)
        assert not is_alive(tool)
    _assert_removed(cgroup)


async def test_another_instances_processes_are_left_alone() -> None:
    async with running(spec_of(DOUBLE_FORK + "input()")) as bystander:
        tool = int(await read_line(bystander))
        async with running(spec_of("input()")) as process:
            await process.stop(force=True)
        assert is_alive(tool)
        assert is_alive(bystander.pid)


_HELPER = "import os, sys, time\nif os.fork() == 0: os.close(0); print('up', flush=True); {child}\n"


@pytest.mark.parametrize(
    ("code", "in_order"),
    [
        ("import sys; print('up', flush=True); sys.stdin.read(); sys.exit(3)", True),
        (_HELPER.format(child="os._exit(0)") + "os.wait(); sys.stdin.read()", True),
        (_HELPER.format(child="time.sleep(600)") + "sys.stdin.read()", False),
        ("import os, sys; print('up', flush=True); sys.stdin.read(); os.kill(os.getpid(), 9)", False),
        ("import time; print('up', flush=True); time.sleep(600)", False),
        ("print('up', flush=True)", False),
    ],
    ids=["eof", "helper ended", "helper left", "signal", "deaf", "of its own accord"],
)
async def test_an_end_is_in_order_after_eof_alone_with_nothing_left(code: str, *, in_order: bool) -> None:
    settings = RpcSettings(eof_grace=Seconds(1), term_grace=Seconds(1))
    async with running(spec_of(code), settings=settings) as process:
        await read_line(process)
        if "stdin" not in code and "sleep" not in code:
            await process.wait_exit()
        await process.stop()
        assert process.ended_in_order is in_order
