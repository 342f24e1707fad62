"""Calls that wait for a person: told first, decided once, in any order, and nothing runs that nobody allowed."""

import time
from typing import Any

import pytest
import trio
import trio.testing

from agent.approvals import NotDecidable
from agent.policy import Policy
from tests.agent.calling import Bench, FakeTool, answer
from wire.transcript_repair import TranscriptError

ASKED = [("tool", "start"), ("permission_required", None), ("permission_decided", None)]


async def test_what_is_allowed_runs_and_what_is_denied_does_not() -> None:
    bench = Bench(policy=Policy(mode="approval"))
    answer(bench, c0="allow", c1="deny")
    allowed, refused = await bench.run(("work", {}), ("work", {}))
    assert allowed["ok"] is True
    assert (refused["error_type"], refused["note"], refused["retryable"]) == ("denied", "my note", False)
    assert bench.tools["work"].begun == ["c0"]
    assert bench.story("c0") == [*ASKED, ("tool", "running"), ("tool_executed", None), ("tool", "end")]
    assert bench.story("c1") == [*ASKED, ("tool", "error"), ("tool_executed", None), ("tool", "end")]
    assert bench.states_told("c1") == ["PENDING", "AWAITING_APPROVAL", "DENIED", "DENIED", "DENIED"]
    said = next(data for name, data in bench.events if name == "permission_decided")
    assert said == {"call_id": "c0", "decision": "allow", "note": "my note", "by": "ann"}


async def test_the_end_of_a_call_tells_why_a_person_was_asked_and_who_said_what_when() -> None:
    bench = Bench(policy=Policy(mode="approval"))
    answer(bench, c0="allow")
    before = time.time()
    await bench.run(("work", {}))
    [asked] = [data["reason"] for name, data in bench.events if name == "permission_required"]
    [approval] = [data["approval"] for name, data in bench.events if name == "tool_executed"]
    assert asked == approval.reason == "every call needs approval"
    assert (approval.decision, approval.by, approval.note) == ("allow", "ann", "my note")
    assert before <= approval.ts <= time.time()


async def test_decisions_may_come_in_any_order_and_nobody_who_waits_holds_up_others(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    bench = Bench(FakeTool("work"), FakeTool("free"), policy=Policy(require_approval=frozenset({"work"})))
    runner = bench.runner(*[("work", {})] * 5, ("free", {}))
    nursery.start_soon(runner.run, 3)
    await bench.told("tool", "c5", "end")
    assert [call.id for call in bench.approvals.pending()] == [f"c{n}" for n in range(5)]
    for number in (3, 0, 4, 1, 2):
        bench.approvals.decide(f"c{number}", "allow")
        await bench.told("tool", f"c{number}", "end")
    assert bench.tools["work"].begun == ["c3", "c0", "c4", "c1", "c2"]
    assert bench.approvals.pending() == []


async def test_deciding_again_from_inside_the_telling_of_the_decision_is_an_error() -> None:
    bench = Bench(policy=Policy(mode="approval"))
    refused: list[str] = []

    def react(name: str, _data: dict[str, Any]) -> None:
        if name == "permission_required":
            bench.approvals.decide("c0", "allow")
        if name == "permission_decided":
            with pytest.raises(NotDecidable) as error:
                bench.approvals.decide("c0", "deny")
            refused.append(error.value.code)

    bench.react = react
    (result,) = await bench.run(("work", {}))
    assert (result["ok"], refused) == (True, ["already_decided"])


async def test_a_decision_that_cannot_be_written_down_was_not_made(nursery: trio.Nursery) -> None:
    bench = Bench(policy=Policy(mode="approval"))
    runner = bench.runner(("work", {}))
    nursery.start_soon(runner.run, 3)
    await bench.told("permission_required", "c0")
    bench.journal.full = True
    with pytest.raises(TranscriptError):
        bench.approvals.decide("c0", "allow")
    assert [call.id for call in bench.approvals.pending()] == ["c0"]
    bench.journal.full = False
    bench.approvals.decide("c0", "allow")
    await bench.told("tool", "c0", "end")
