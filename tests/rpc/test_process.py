"""One worker process: its streams and its end, with real children."""

import os
import signal
from pathlib import Path

import pytest
import trio
import trio.testing

from errors import WorkerExited
from rpc.children import ChildRegistry, ExitWatch, ForkedChild
from rpc.settings import RpcSettings
from rpc.spawn import start_process
from rpc.transport import ExitStatus, Transport
from tests.rpc.procs import LIMIT, open_fds, read_all, read_line, receive, running, spec_of
from wire.log_file import LogReader
from wire.procfs import read_stat
from wire.units import ByteCount

pytestmark = pytest.mark.process


async def test_a_worker_answers_over_its_pipes_and_its_exit_code_is_told_to_all_who_wait() -> None:
    async with running(spec_of("print(input()[::-1], flush=True); raise SystemExit(7)")) as process:
        transport: Transport = process
        statuses: list[ExitStatus] = []

        async def wait() -> None:
            statuses.append(await transport.wait_exit())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)
            assert transport.send_nowait(b"abc\n") == 4
            assert await receive(transport) == b"cba\n"
        assert statuses == [ExitStatus(code=7)] * 2
        assert await process.stop() == ExitStatus(code=7)
        assert process.last_rung is None
        assert read_stat(process.pid) is None


async def test_death_by_a_signal_is_told_as_such() -> None:
    async with running(spec_of("import os; os.kill(os.getpid(), 9)")) as process:
        status = await process.wait_exit()
        assert status == ExitStatus(signal=9)
        assert str(status) == "killed by signal 9"


async def test_the_last_output_before_death_can_be_received_without_waiting() -> None:
    code = "import os; os.write(1, b'x' * 60000 + b'last'); os.kill(os.getpid(), 9)"
    async with running(spec_of(code)) as process:
        await process.wait_exit()
        data = process.receive_nowait()
        assert data is not None
        assert data.endswith(b"xlast")
        assert len(data) == 60004
        assert process.receive_nowait() == b""
        assert await receive(process) == b""


async def test_a_grandchild_that_holds_stdout_open_does_not_hide_the_end() -> None:
    code = """
import os, time
if os.fork() == 0:
    os.setsid(); os.write(1, b"%d\\n" % os.getpid()); time.sleep(600)
os.read(0, 1)
"""
    async with running(spec_of(code)) as process:
        grandchild = int(await read_line(process))
        process.send_nowait(b"x")
        assert await receive(process) == b""
        assert await process.wait_exit() == ExitStatus(code=0)
        await process.stop()
        assert process.leftovers.killed == (grandchild,)


async def test_a_large_output_arrives_whole_while_a_large_input_is_written() -> None:
    code = "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"
    text = bytes(range(256)) * 8192
    async with running(spec_of(code)) as process:

        async def write() -> None:
            rest = memoryview(text)
            while rest:
                rest = rest[process.send_nowait(rest) :]
                await process.wait_writable()

        received = b""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            while len(received) < len(text) - 65536:  # the rest sits in the worker's buffers until its input ends
                received += await receive(process)
        stopping = await process.stop()
        assert stopping == ExitStatus(code=0)
        assert received + await read_all(process) == text


async def test_writing_to_a_full_pipe_takes_nothing_and_does_not_block() -> None:
    async with running(spec_of("import time; time.sleep(600)")) as process:
        while process.send_nowait(bytes(65536)):
            pass
        assert process.send_nowait(b"x") == 0
        with trio.move_on_after(0.02) as scope:
            await process.wait_writable()
        assert scope.cancelled_caught


async def test_writing_to_a_worker_that_is_gone_says_who_and_why() -> None:
    async with running(spec_of("import sys; sys.exit('no model')")) as process:
        await process.wait_exit()
        with pytest.raises(WorkerExited, match=r"worker w1 has exited with code 1") as caught:
            process.send_nowait(b"x")
        assert caught.value.stderr_tail == "no model\n"
        await process.wait_writable()


async def test_writing_to_a_worker_that_closed_its_input_says_so() -> None:
    async with running(spec_of("import os, time; os.close(0); print(1, flush=True); time.sleep(600)")) as process:
        await read_line(process)
        await process.wait_writable()
        with pytest.raises(WorkerExited, match="no longer reads its input"):
            process.send_nowait(b"x")


async def test_a_flood_on_stderr_is_drained_and_its_end_kept(tmp_path: Path) -> None:
    code = "import sys\nfor i in range(400000): sys.stderr.write(f'line {i}\\n')\nprint('done', flush=True); input()"
    log = tmp_path / "logs" / "w1.log"
    settings = RpcSettings(log_bytes=ByteCount(256 * 1024))
    async with running(spec_of(code, log_path=log), settings=settings) as process:
        assert await read_line(process) == "done"
        process.send_nowait(b"\n")
        await process.wait_exit()
    assert process.stderr_tail().endswith("line 399998\nline 399999\n")
    assert process.stderr_tail().startswith("line ")
    assert 65536 - len("line 399999\n") < len(process.stderr_tail()) <= 65536
    with LogReader(log.parent, "w1") as reader:
        *lines, end = [line.text for line in reader.last(500_000)]
    assert end == "ended: exited with code 0"
    last = int(lines[-1].split()[1])
    assert lines == [f"line {number}" for number in range(last - len(lines) + 1, last + 1)]
    assert last == 399999
    assert max(log.stat().st_size, log.with_name("w1.log.1").stat().st_size) <= settings.log_bytes
    assert log.stat().st_mode & 0o777 == 0o600
    assert len(list(log.parent.iterdir())) == 2


async def test_a_full_disk_drops_log_lines_and_never_stops_the_worker(tmp_path: Path) -> None:
    log = tmp_path / "full.log"
    log.symlink_to("/dev/full")
    code = "import sys\nfor i in range(1000): print(i, file=sys.stderr)\nprint('done', flush=True); input()"
    async with running(spec_of(code, log_path=log)) as process:
        assert await read_line(process) == "done"
        process.send_nowait(b"\n")
        assert await process.wait_exit() == ExitStatus(code=0)
    assert process.stderr_tail().endswith("\n999\n")


async def test_many_lives_leave_no_file_descriptor_no_zombie_and_no_registration() -> None:
    children = ChildRegistry()
    async with running(spec_of("pass"), children=children) as process:  # whatever is opened once is open now
        await process.stop()
    before = open_fds()
    pids = []
    for end in ("pass", "input()", "import time; time.sleep(600)"):
        async with running(spec_of(end), children=children) as process:
            assert process.pid in children
            pids.append(process.pid)
            await process.stop(force=end != "pass")
    assert open_fds() == before
    assert [read_stat(pid) for pid in pids] == [None] * 3
    assert children.pids() == set()


async def test_cancelling_the_owner_kills_the_worker_at_once() -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    async with running(spec_of(code)) as process:
        await read_line(process)
    assert process.exit_status == ExitStatus(signal=signal.SIGKILL)
    assert read_stat(process.pid) is None


async def test_a_task_waiting_for_output_is_cancelled_without_losing_any() -> None:
    async with running(spec_of("input(); print('late', flush=True); input()")) as process:
        with trio.move_on_after(0.02) as scope:
            await receive(process)
        assert scope.cancelled_caught
        process.send_nowait(b"\n")
        assert await read_line(process) == "late"


async def test_a_wait_for_output_can_be_ended_and_begun_again_by_another_task() -> None:
    async with running(spec_of("input(); print('late', flush=True); input()")) as process:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(process.wait_readable)
            await trio.testing.wait_all_tasks_blocked()
            process.interrupt()
            with trio.move_on_after(0.02) as scope:
                await process.wait_readable()
            assert scope.cancelled_caught
        process.send_nowait(b"\n")
        assert await read_line(process) == "late"


async def test_receiving_in_a_loop_lets_other_tasks_run() -> None:
    async with running(spec_of("import os\nwhile True: os.write(1, b'y' * 65536)")) as process:
        with trio.move_on_after(0.05) as scope:
            while await receive(process):
                pass
        assert scope.cancelled_caught


async def test_a_worker_lives_in_its_own_session_with_a_tight_umask_and_exactly_its_environment() -> None:
    code = "import os; print(os.getsid(0) == os.getpid(), oct(os.umask(0)), *sorted(os.environ), flush=True); input()"
    async with running(spec_of(code, env=[("ANSWER", "42")])) as process:
        words = (await read_line(process)).split()
        assert words[:2] == ["True", "0o77"]
        assert {"ANSWER", "POOL_WORKER_ID", "PATH"} <= set(words[2:])
        allowed = {*RpcSettings().env_passthrough, "ANSWER", "POOL_WORKER_ID", "LC_CTYPE"}
        assert set(words[2:]) <= allowed


async def test_pid_and_start_time_are_those_of_the_process() -> None:
    async with running(spec_of("input()")) as process:
        stat = read_stat(process.pid)
        assert stat is not None
        assert (stat.start_time, stat.parent) == (process.identity.start_time, os.getpid())
        assert process.identity.marker == process.marker


async def test_without_pidfds_a_thread_waits_and_the_status_is_the_same() -> None:
    started = start_process(spec_of("input(); raise SystemExit(9)"))
    watch = ExitWatch(started.popen, None)
    with trio.fail_after(LIMIT):
        with trio.move_on_after(0.02) as scope:
            await watch.wait()
        assert scope.cancelled_caught
        os.write(started.stdin, b"\n")
        await watch.wait()
        watch.close()
    assert started.popen.wait() == 9
    for fd in started[1:]:
        os.close(fd)


async def test_without_pidfds_a_worker_is_stopped_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    async with running(spec_of("import time; print(1, flush=True); time.sleep(600)")) as process:
        await read_line(process)
        assert await process.stop(force=True) == ExitStatus(signal=signal.SIGKILL)


def test_a_child_that_an_orphan_reaper_has_reaped_is_not_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    child = ForkedChild(pid)
    os.waitpid(pid, 0)
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("the pid may be a stranger's by now"))
    child.kill()
    assert (child.poll(), child.wait()) == (None, None)
