"""The hostile agent really does what its names say; otherwise the tests that rely on it prove nothing."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import msgspec
import pytest
import trio

import fixtures.hostile_agent as hostile
from tests.acceptance.worker_process import WorkerProcess, started
from wire.messages import Message, PromptResult, Ready, StateResult
from wire.transcript_repair import repair_transcript

pytestmark = pytest.mark.process


async def fails_to_answer(worker: WorkerProcess, method: str = "ping") -> None:
    """Nothing comes for a moment although a request is pending; the one place where only time can tell."""
    await worker.send(method)
    with trio.move_on_after(0.2) as scope:
        await worker.next_line()
    assert scope.cancelled_caught


async def ended(worker: WorkerProcess) -> int:
    return await worker.process.wait()


def test_every_behaviour_is_in_the_table_and_the_table_has_no_other() -> None:
    assert hostile.__doc__ is not None
    documented = re.findall(r"^\| ([a-z0-9-]+)\*?(?: \[=[\d.]+\])? +\|", hostile.__doc__, re.MULTILINE)
    assert sorted(documented) == sorted({*hostile.BEHAVIOURS, "behaviour"})


def test_every_behaviour_has_a_test_here() -> None:
    source = Path(__file__).read_text()
    assert [name for name in hostile.BEHAVIOURS if not re.search(rf'"{name}["=]', source)] == []


async def test_the_good_worker_answers_every_method_it_announces() -> None:
    async with started(ready=False) as worker:
        line = await worker.next_line()
        assert line is not None
        message = msgspec.json.decode(line, type=Message)
        announced = msgspec.json.decode(message.data, type=Ready)
        assert announced.pid == worker.process.pid
        params = {
            "prompt": {"text": "x"},
            "steer": {"text": "x"},
            "set_model": {"provider": "p", "model": "m"},
            "set_thinking": {"level": "low"},
        }
        for method in announced.methods:
            if method not in ("switch_session", "shutdown"):
                assert isinstance(await worker.ask(method, **params.get(method, {})), dict), method
        await worker.ask("shutdown")
        assert await ended(worker) == 0


async def test_the_good_worker_streams_its_answer_in_the_native_vocabulary() -> None:
    async with started() as worker:
        lines = await worker.lines_to_answer(await worker.send("prompt", text="one two", run_id="r"))
        *events, answer = [msgspec.json.decode(line, type=Message) for line in lines]
        assert msgspec.json.decode(answer.result, type=PromptResult).text == "echo: one two"
        pieces = [json.loads(bytes(event.data))["partial"] for event in events if event.event == "assistant_message"]
        assert "".join(pieces) == "echo: one two"
        sequence = [json.loads(bytes(event.data))["seq"] for event in events]
        assert sequence == sorted(set(sequence))


async def test_the_good_worker_answers_what_it_does_not_understand() -> None:
    async with started() as worker:
        await worker.stdin.send_all(b"null\n{broken\n[1]\n")
        unknown = await worker.send("sing")
        *parse_errors, answer = [json.loads(line) for line in await worker.lines_to_answer(unknown)]
        assert [error["error"]["code"] for error in parse_errors] == ["parse_error"] * 3
        assert answer["error"]["code"] == "unknown_method"


async def test_the_good_worker_remembers_its_own_conversation_only(tmp_path: Path) -> None:
    async with started("--session-dir", str(tmp_path)) as worker:
        await worker.ask("new_session")
        await worker.ask("prompt", text="a")
        first = (await worker.ask("get_state"))["session_file"]
        assert repair_transcript(Path(first)).intact
        await worker.ask("new_session")
        assert (await worker.ask("prompt", text="b"))["text"] == "echo: b"
    async with started("--session-dir", str(tmp_path)) as worker:
        await worker.ask("switch_session", session_file=first)
        assert (await worker.ask("prompt", text="c"))["text"] == "echo: c | before: a"


async def test_the_good_worker_tells_its_model_and_changes_it() -> None:
    async with started("--model", "m1", "--provider", "p1", "--skill", "/x") as worker:
        await worker.ask("set_thinking", level="high")
        state = msgspec.json.decode(json.dumps(await worker.ask("get_state")), type=StateResult)
        assert (state.provider, state.model, state.thinking) == ("p1", "m1", "high")
        await worker.ask("set_model", provider="p2", model="m2")
        assert (await worker.ask("get_state"))["model"] == "m2"


async def test_a_waiting_turn_ends_by_steer_or_abort_and_refuses_a_second() -> None:
    async with started() as worker:
        waiting = await worker.send("prompt", text="wait")
        busy = await worker.answer(await worker.send("prompt", text="x"))
        assert busy["error"]["code"] == "busy"
        await worker.send("steer", text="go on")
        assert (await worker.answer(waiting))["result"]["text"] == "go on"
        waiting = await worker.send("prompt", text="wait")
        await worker.send("abort")
        assert (await worker.answer(waiting))["result"]["stop_reason"] == "aborted"


async def test_the_good_worker_ends_with_its_stdin_and_at_sigterm() -> None:
    async with started() as worker:
        await worker.stdin.aclose()
        assert await ended(worker) == 0
    async with started() as worker:
        worker.process.terminate()
        assert await ended(worker) == 143


async def test_it_ends_by_itself_when_its_lifetime_is_over() -> None:
    async with started("--behaviour", "ignore-eof", "--lifetime", "1", ready=False) as worker:
        assert await ended(worker) == -signal.SIGALRM


async def test_skip_and_on_choose_the_request_that_is_hit() -> None:
    async with started("--behaviour", "exit-after-read", "--on", "ping", "--skip", "2") as worker:
        await worker.ask("ping")
        await worker.ask("prompt", text="x")
        await worker.ask("ping")
        await worker.send("ping")
        assert await ended(worker) == 7


async def test_only_the_first_process_misbehaves_where_that_is_asked_for(tmp_path: Path) -> None:
    arguments = ("--behaviour", "crash-at-start", "--once", str(tmp_path / "once"))
    async with started(*arguments, ready=False) as worker:
        assert await ended(worker) == 1
    async with started(*arguments) as worker:
        assert await worker.ask("ping") == {}


async def test_it_misbehaves_only_while_there_is_a_file_where_that_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "now"
    async with started("--behaviour", "refuse", "--on", "ping", "--while", str(file)) as worker:
        assert await worker.ask("ping") == {}
        file.touch()
        assert "error" in await worker.answer(await worker.send("ping"))
        file.unlink()
        assert await worker.ask("ping") == {}


async def test_garbage_comes_before_the_answer() -> None:
    async with started("--behaviour", "garbage=5") as worker:
        lines = await worker.lines_to_answer(await worker.send("prompt", text="x"))
        assert sum(line.startswith(b"this is no message") for line in lines) == 5


async def test_bad_utf8_is_bad() -> None:
    async with started("--behaviour", "bad-utf8") as worker:
        lines = await worker.lines_to_answer(await worker.send("prompt", text="x"))
        assert b"\xff\xfe" in lines[-2]


async def test_half_a_line_is_followed_by_nothing() -> None:
    async with started("--behaviour", "half-line") as worker:
        await worker.send("prompt", text="x")
        while b'"id"' not in worker.buffer:
            worker.buffer = worker.buffer.rpartition(b"\n")[2] + await worker.stdout.receive_some()
        worker.buffer = worker.buffer.rpartition(b"\n")[2]  # events before it may have come in the same piece
        await fails_to_answer(worker)
        assert b"\n" not in worker.buffer.rpartition(b'"id"')[2]


async def test_half_a_line_then_the_end_of_stdout_leaves_the_process_alive() -> None:
    async with started("--behaviour", "half-line-eof") as worker:
        await worker.send("prompt", text="x")
        assert (await worker.rest()).startswith(b'{"id":"1"')
        assert worker.process.poll() is None


async def test_a_long_line_has_no_end() -> None:
    async with started("--behaviour", "long-line=300000", "--on", "ping") as worker:
        await worker.send("ping")
        size = 0
        while size < 300_000:
            piece = await worker.stdout.receive_some()
            assert piece.strip(b"x") == b""
            size += len(piece)
        assert size == 300_000


async def test_a_big_line_is_a_legal_event() -> None:
    async with started("--behaviour", "big-line=1000000") as worker:
        lines = await worker.lines_to_answer(await worker.send("prompt", text="x"))
        assert len(json.loads(lines[-2])["data"]["partial"]) == 1_000_000


async def test_bytes_one_by_one_make_whole_answers() -> None:
    async with started("--behaviour", "one-byte") as worker:
        assert (await worker.ask("prompt", text="x"))["text"] == "echo: x"


async def test_a_flood_is_as_large_as_asked_for() -> None:
    async with started("--behaviour", "flood=1000") as worker:
        lines = await worker.lines_to_answer(await worker.send("prompt", text="x"))
        assert len(lines) > 1000


async def test_a_closed_stdout_leaves_a_process_that_lives() -> None:
    async with started("--behaviour", "close-stdout") as worker:
        await worker.send("prompt", text="x")
        await worker.rest()
        await worker.send("ping")
        assert worker.process.poll() is None
        await worker.stdin.aclose()
        assert await ended(worker) == 0


async def test_a_closed_stdin_leaves_a_process_that_lives() -> None:
    async with started("--behaviour", "close-stdin", "--on", "ping") as worker:
        await worker.send("ping")
        with pytest.raises(trio.BrokenResourceError):
            await worker.stdin.send_all(b"x" * 10_000_000)
        assert worker.process.poll() is None


async def test_one_that_never_reads_lets_its_pipe_fill() -> None:
    async with started("--behaviour", "never-reads") as worker:
        with trio.move_on_after(0.5) as scope:
            await worker.stdin.send_all(b"x" * 1_000_000)
        assert scope.cancelled_caught


async def test_one_that_ignores_the_end_of_its_stdin_and_sigterm_needs_sigkill() -> None:
    async with started("--behaviour", "ignore-eof", "--behaviour", "ignore-sigterm") as worker:
        await worker.stdin.aclose()
        worker.process.terminate()
        with trio.move_on_after(0.3) as scope:
            await ended(worker)
        assert scope.cancelled_caught
        worker.process.kill()
        assert await ended(worker) == -signal.SIGKILL


@pytest.mark.parametrize("behaviour", ["grandchild", "grandchild-holds-stdout"])
async def test_a_grandchild_outlives_its_parent(behaviour: str, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    async with started("--behaviour", behaviour, "--pid-file", str(pid_file), "--lifetime", "20") as worker:
        pid = int(pid_file.read_text())
        grandchild = os.pidfd_open(pid)
        try:
            assert os.getsid(pid) == pid
            worker.process.kill()
            await ended(worker)
            signal.pidfd_send_signal(grandchild, 0)  # raises where it is gone
            if behaviour == "grandchild":
                await worker.rest()
            else:
                with trio.move_on_after(0.2) as scope:
                    await worker.rest()
                assert scope.cancelled_caught
        finally:
            signal.pidfd_send_signal(grandchild, signal.SIGKILL)
            os.close(grandchild)


async def test_it_can_exit_with_a_request_unread() -> None:
    async with started("--behaviour", "exit-before-read", "--skip", "1") as worker:
        await worker.ask("ping")
        await worker.send("ping")
        assert await worker.rest() == b""
        assert await ended(worker) == 7


async def test_it_can_exit_after_reading_the_request() -> None:
    async with started("--behaviour", "exit-after-read", "--exit-code", "3") as worker:
        await worker.send("prompt", text="x")
        assert await worker.rest() == b""
        assert await ended(worker) == 3


async def test_it_can_exit_after_half_of_the_answer() -> None:
    async with started("--behaviour", "exit-half-answer", "--exit-code", f"-{int(signal.SIGSEGV)}") as worker:
        await worker.send("prompt", text="x")
        assert (await worker.rest()).startswith(b'{"id":"1"')
        assert await ended(worker) == -signal.SIGSEGV


async def test_it_can_exit_right_after_the_whole_answer() -> None:
    async with started("--behaviour", "exit-after-answer") as worker:
        assert (await worker.ask("prompt", text="x"))["text"] == "echo: x"
        assert await worker.rest() == b""
        assert await ended(worker) == 7


async def test_a_crash_at_the_start_says_why_on_stderr() -> None:
    async with started("--behaviour", "crash-at-start", "--stderr", "first words", ready=False) as worker:
        assert await worker.rest() == b""
        assert await ended(worker) == 1
        assert await worker.stderr.receive_some() == b"first words\nhostile agent: cannot start: no such model\n"


async def test_it_can_never_be_ready() -> None:
    async with started("--behaviour", "never-ready", ready=False) as worker:
        await fails_to_answer(worker)
        assert worker.process.poll() is None


async def test_it_can_be_ready_without_a_word() -> None:
    async with started("--behaviour", "no-ready-line", ready=False) as worker:
        assert len(await worker.lines_to_answer(await worker.send("ping"))) == 1


async def test_it_can_be_ready_late() -> None:
    before = trio.current_time()
    async with started("--behaviour", "late-ready=0.3"):
        assert trio.current_time() - before >= 0.3


async def test_it_can_answer_twice() -> None:
    async with started("--behaviour", "answer-twice") as worker:
        request = await worker.send("prompt", text="x")
        assert await worker.answer(request) == await worker.answer(request)


async def test_it_can_answer_an_id_that_nobody_used() -> None:
    async with started("--behaviour", "unknown-id") as worker:
        lines = await worker.lines_to_answer(await worker.send("prompt", text="x"))
        assert json.loads(lines[-2])["id"] == "nobody-asked"


async def test_it_can_answer_after_the_next_request() -> None:
    async with started("--behaviour", "late-answer") as worker:
        late = await worker.send("prompt", text="x")
        await worker.ask("ping")
        assert (await worker.answer(late))["result"]["text"] == "echo: x"


async def test_it_can_leave_a_request_unanswered() -> None:
    async with started("--behaviour", "no-answer", "--on", "get_state") as worker:
        await worker.send("get_state")
        lines = await worker.lines_to_answer(await worker.send("ping"))
        assert len(lines) == 1


async def test_it_can_refuse() -> None:
    async with started("--behaviour", "refuse", "--on", "new_session") as worker:
        answer = await worker.answer(await worker.send("new_session"))
        assert answer["error"]["code"] == "refused"


async def test_it_can_ignore_pings_and_answer_the_rest() -> None:
    async with started("--behaviour", "ignore-pings") as worker:
        await worker.send("ping")
        lines = await worker.lines_to_answer(await worker.send("get_state"))
        assert len(lines) == 1


async def test_it_can_pretend_to_have_switched_the_conversation(tmp_path: Path) -> None:
    async with started("--behaviour", "wrong-session", "--session-dir", str(tmp_path)) as worker:
        await worker.ask("new_session")
        await worker.ask("prompt", text="a")
        first = await worker.ask("get_state")
        second = await worker.ask("new_session")
        await worker.ask("switch_session", session_file=first["session_file"])
        assert (await worker.ask("get_state"))["session_id"] == second["session_id"]


async def test_it_can_suspend_itself_and_go_on_when_continued() -> None:
    async with started("--behaviour", "suspend") as worker:
        request = await worker.send("prompt", text="x")
        stopped = await trio.to_thread.run_sync(os.waitid, os.P_PID, worker.process.pid, os.WSTOPPED | os.WNOWAIT)
        assert stopped is not None
        assert stopped.si_status == signal.SIGSTOP
        worker.process.send_signal(signal.SIGCONT)
        assert (await worker.answer(request))["result"]["text"] == "echo: x"


async def test_an_unknown_behaviour_is_refused_with_the_known_ones() -> None:
    async with started("--behaviour", "sleep", ready=False) as worker:
        assert await ended(worker) == 2
        assert b"unknown behaviour 'sleep'" in await worker.stderr.receive_some()


def test_the_command_starts_this_program() -> None:
    assert hostile.COMMAND[0] == sys.executable
    assert hostile.COMMAND[-1] == hostile.__name__
