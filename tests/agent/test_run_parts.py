"""The parts of a run that can be held by themselves: whose run it is, its clock, its call ids."""

from typing import Any

import pytest
import trio

from agent.model_call import PartialReply
from agent.models.base import CallPiece, TextPiece
from agent.output import WorkerOutput
from agent.run_executor import RunClock
from agent.runs import ActiveRunTracker, AgentRun
from wire.entries import TextBlock, TranscriptMessage


class Registry(ActiveRunTracker):
    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []
        super().__init__(self._hear)

    def _hear(self, name: str, data: dict[str, Any]) -> None:
        assert name == "state_changed"
        self.told.append((data["state"], data["reason"], data["run_id"]))


def run(name: str) -> AgentRun:
    return AgentRun(run_id=name, text="")


def test_a_run_that_was_replaced_cannot_end_its_successor(capsys: pytest.CaptureFixture[str]) -> None:
    runs, first, second = Registry(), run("1"), run("2")
    runs.set_active_run(first)
    first.abort()
    assert not runs.busy
    runs.set_active_run(second)
    assert not runs.clear_active_run(first)
    assert (runs.active, runs.busy) == (second, True)
    assert capsys.readouterr().err == "agent: handle_mismatch: run 1 ended, the active run is 2\n"
    assert runs.clear_active_run(second)
    assert runs.told == [
        ("processing", "run_started", "1"),
        ("processing", "run_replaced", "2"),
        ("idle", "run_completed", "2"),
    ]
    assert not runs.clear_active_run(second)


async def test_a_clock_that_stands_still_does_not_run_out(autojump_clock: trio.testing.MockClock) -> None:
    clock = RunClock(10)
    with clock.scope:
        clock.resume()
        await trio.sleep(6)
        clock.pause()
        clock.pause()
        await trio.sleep(1_000)
        clock.resume()
        clock.resume()
        await trio.sleep(3)
        assert trio.current_time() == 1_009
        await trio.sleep(60)
    assert clock.scope.cancelled_caught
    assert trio.current_time() == 1_010


def test_every_call_gets_an_id_that_no_other_call_has() -> None:
    replies = [PartialReply(WorkerOutput(), "r1", lambda _usage: None) for _ in range(2)]
    for reply in replies:
        for _ in range(3):
            reply.feed(CallPiece("exec", {}))
    assert len({call.id for reply in replies for call in reply.message().calls}) == 6


def test_calls_of_an_answer_that_is_broken_off_are_not_part_of_it() -> None:
    reply = PartialReply(WorkerOutput(), "r1", lambda _usage: None)
    for piece in (TextPiece(["I will "]), CallPiece("exec", {}), TextPiece(["run it"])):
        reply.feed(piece)
    assert reply.message().calls
    assert reply.partial_message("aborted") == TranscriptMessage(
        "assistant", [TextBlock("I will run it")], stop_reason="aborted"
    )
