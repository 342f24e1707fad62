"""Tool calls from the rules to their results: one result each, in call order, decided once, told and written down."""

import time
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.approvals import NotDecidable
from agent.policy import Policy
from agent.tools.base import ToolContext, ToolError, ToolOutput
from tests.agent.calling import BAD, FINE, Bench, FakeTool, Input, answer, contents, hang, subject, take_time
from wire.entries import CallState, ImageBlock
from wire.transcript_repair import TranscriptError

ASKED = [("tool", "start"), ("permission_required", None), ("permission_decided", None)]


async def test_results_come_in_call_order_whoever_is_done_first(autojump_clock: trio.testing.MockClock) -> None:
    bench = Bench()
    results = await bench.run(*(("work", {"seconds": 9 - n, "say": str(n)}) for n in range(3)))
    assert [result["data"] for result in results] == ["0", "1", "2"]
    assert [subject(data) for name, data in bench.events if name == "tool_executed"] == ["c2", "c1", "c0"]


async def test_every_kind_of_call_gets_exactly_one_result_and_one_end() -> None:
    bench = Bench()
    results = await bench.run(("work", {"say": "x" * 1_000_000}), ("fail", {}), ("break", {}), ("nothing", {}))
    assert [(result["ok"], result.get("error_type")) for result in results] == [
        *((True, None), (False, "logical"), (False, "runtime"), (False, "validation"))
    ]
    assert [bench.story(f"c{n}") for n in range(4)] == [FINE, *[BAD] * 3]
    assert results[1] == {
        "ok": False,
        "error": "no such thing",
        "error_type": "logical",
        "retryable": True,
        "note": "look again",
        "recommendations": ["look elsewhere"],
    }
    assert (results[2]["_thrownError"], results[2]["error"]) == (True, "KeyError: 'a bug'")
    # The end tells the result, once and to a bound.
    assert [data["phase"] for name, data in bench.events if "result" in data] == ["end"] * 4
    told = {subject(data): data["result"] for name, data in bench.events if "result" in data}
    assert 8_000 < len(told["c0"]) < 8_100
    assert told["c1"] == "no such thing\nlook again"


async def test_a_tool_gives_images_and_details_or_what_is_no_json_and_its_error_may_come_from_a_nursery() -> None:
    image = ImageBlock("AAAA")

    async def paint(_arguments: Input, _context: ToolContext) -> ToolOutput:
        return ToolOutput("a picture", {"width": 1}, [image])

    async def odd(_arguments: Input, _context: ToolContext) -> ToolOutput:
        return ToolOutput("\udc80", {"what": object()})

    async def nested(_arguments: Input, _context: ToolContext) -> str:
        async with trio.open_nursery():
            raise ToolError("deep inside", "logical")

    bench = Bench(FakeTool("paint", paint), FakeTool("odd", odd), FakeTool("nested", nested))
    runner = bench.runner(("paint", {}), ("odd", {}), ("nested", {}))
    await runner.run(3)
    painted, broken, failed = runner.results()
    assert (painted.content, painted.images) == ({"ok": True, "data": "a picture", "details": {"width": 1}}, [image])
    assert bench.journal.last("c0").images == [image]
    assert (broken.content["ok"], broken.content["_thrownError"]) == (False, True)
    assert (failed.content["error"], failed.content["error_type"]) == ("deep inside", "logical")


async def test_two_calls_with_one_id_are_two_results_and_one_run() -> None:
    bench = Bench()
    runner = bench.runner(("work", {}), ("work", {}))
    runner._calls[1].call = runner._calls[0].call
    await runner.run(3)
    assert [content["ok"] for content in contents(runner)] == [True, False]
    assert runner.breakpoint() == "POST_TOOL"
    assert bench.tools["work"].begun == ["c0"]


@pytest.mark.parametrize("places", [1, 3])
async def test_no_more_run_at_once_than_there_are_places_and_these_are_taken_in_call_order(
    autojump_clock: trio.testing.MockClock, places: int
) -> None:
    running: list[str] = []
    most = 0

    async def count(arguments: Input, context: ToolContext) -> str:
        nonlocal most
        running.append(context.call_id)
        most = max(most, len(running))
        await trio.sleep(arguments.seconds)
        running.remove(context.call_id)
        return "counted"

    bench = Bench(FakeTool("count", count))
    await bench.run(*(("count", {"seconds": 1}) for n in range(8)), parallel=places)
    assert most == places
    begun = [record.id for record in bench.journal.noted if record.state is CallState.RUNNING]
    together = [sorted(begun[first : first + places]) for first in range(0, 8, places)]
    assert together == [[f"c{n}" for n in range(8)][first : first + places] for first in range(0, 8, places)]


async def test_a_call_that_takes_too_long_is_stopped(autojump_clock: trio.testing.MockClock) -> None:
    bench = Bench(FakeTool("hang", hang), FakeTool("own", take_time, timeout=None))
    stuck, patient = await bench.run(("hang", {}), ("own", {"seconds": 900}))
    assert (stuck["error"], stuck["retryable"], patient["ok"]) == ("hang timed out after 60 s", True, True)


async def test_progress_is_told_while_it_runs_and_not_after_its_end() -> None:
    kept: list[Any] = []

    async def talk(_arguments: Input, context: ToolContext) -> str:
        kept.append(context.report)
        context.report({"tail": "half"})
        return "whole"

    def changed(_call: object, _result: object) -> dict[str, Any]:
        return {"ok": True, "data": "said", "details": {"pid": "no number"}}

    bench = Bench(FakeTool("talk", talk), hooks={"tool_result_persist": changed})
    await bench.run(("talk", {}))
    kept[0]({"tail": "too late"})
    assert bench.story("c0") == [("tool", "start"), ("tool", "update"), *FINE[1:]]
    assert bench.states_told("c0") == ["PENDING", "RUNNING", "COMPLETED", "COMPLETED"]
    assert [data for name, data in bench.events if name == "tool" and "details" in data] == []  # none of a command


async def test_a_tool_with_effects_begins_only_when_the_disk_knows_that_it_runs() -> None:
    bench = Bench()

    async def look(_arguments: Input, context: ToolContext) -> str:
        safe = bench.journal.noted[: bench.journal.safe]
        return ",".join(record.state for record in safe if record.id == context.call_id)

    bench.tools = {"run": FakeTool("run", look), "read": FakeTool("read", look, "read")}
    (looked,) = await bench.run(("read", {}))
    assert looked["data"] == ""  # written, but a power cut may take it: it had no effects
    assert bench.journal.syncs == 0
    bench.journal.noted.clear()
    results = await bench.run(("run", {}), ("run", {}), ("run", {}))
    assert [result["data"] for result in results] == ["RUNNING"] * 3


async def test_every_move_is_written_before_it_is_told() -> None:
    bench = Bench(policy=Policy(mode="approval"))

    def check(name: str, data: dict[str, Any]) -> None:
        if name == "tool" and data["phase"] == "start":
            assert bench.journal.states("c0") == []  # the message that makes the call is its first entry
        elif name == "permission_decided":
            approval = bench.journal.last("c0").approval
            assert approval is not None
            assert approval.decision == "allow"
        else:
            assert bench.journal.last("c0").state == data["call"].state
            if name == "permission_required":
                bench.approvals.decide("c0", "allow")

    bench.react = check
    assert (await bench.run(("work", {})))[0]["ok"] is True
    assert bench.journal.states("c0") == ["AWAITING_APPROVAL", "AWAITING_APPROVAL", "RUNNING", "COMPLETED"]
    assert bench.journal.last("c0").result == {"ok": True, "data": "done"}


async def test_a_full_disk_ends_the_run_before_the_tool_begins_and_is_told_as_what_it_is() -> None:
    bench = Bench()
    bench.journal.full = True
    runner = bench.runner(("work", {}), ("work", {}))
    with pytest.raises(TranscriptError, match="full"):
        await runner.run(3)
    assert bench.tools["work"].begun == []
    with pytest.raises(TranscriptError, match="full"):
        runner.close()
    bench.journal.full = False
    runner.close()
    assert len(runner.results()) == 2


async def test_an_abort_leaves_each_call_one_result_in_words_that_are_true(
    autojump_clock: trio.testing.MockClock,
) -> None:
    policy = Policy(require_approval=frozenset({"asked"}))
    bench = Bench(FakeTool("hang", hang), FakeTool("work"), FakeTool("asked"), policy=policy)
    runner = bench.runner(("work", {}), ("asked", {}), ("hang", {}), ("hang", {}), ("asked", {}))
    with trio.move_on_after(5):
        answer(bench, c4="allow")  # allowed, and there is no place for it to run
        await runner.run(2)
    runner.close()
    results = contents(runner)
    assert [result["ok"] for result in results] == [True, False, False, False, False]
    assert {result["error_type"] for result in results[1:]} == {"aborted"}
    assert [result["note"].startswith("Check for side effects") for result in results[1:]] == [False, True, True, False]
    assert [bench.journal.last(f"c{n}").state for n in range(5)] == ["COMPLETED", *["FAILED"] * 4]
    assert all(bench.story(f"c{n}")[-1] == ("tool", "end") for n in range(5))
    assert bench.approvals.pending() == []
    with pytest.raises(NotDecidable, match="ended before") as refused:
        bench.approvals.decide("c1", "allow")
    assert refused.value.code == "nothing_pending"
    before = len(bench.events)
    runner.close()
    assert (len(bench.events), bench.tools["asked"].begun) == (before, [])


async def test_a_denial_that_an_abort_overtook_is_still_a_denial(nursery: trio.Nursery) -> None:
    bench = Bench(policy=Policy(mode="approval"))
    runner = bench.runner(("work", {}))
    with trio.CancelScope() as scope:

        def react(name: str, _data: dict[str, Any]) -> None:
            if name == "permission_required":
                bench.approvals.decide("c0", "deny", "never")
                scope.cancel()

        bench.react = react
        await runner.run(3)
    runner.close()
    (result,) = contents(runner)
    assert (result["error_type"], result["note"], bench.journal.last("c0").state) == ("denied", "never", "DENIED")


async def test_a_tool_that_fails_while_it_is_being_cancelled_was_aborted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def clumsy(_arguments: Input, _context: ToolContext) -> str:
        async def fall() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ToolError("fell over")

        async with trio.open_nursery() as inner:
            inner.start_soon(fall)
            await trio.sleep_forever()
        raise AssertionError

    runner = Bench(FakeTool("clumsy", clumsy)).runner(("clumsy", {}))
    with trio.move_on_after(1) as scope:
        await runner.run(3)
    assert scope.cancelled_caught
    runner.close("timeout")
    (result,) = contents(runner)
    assert (result["error_type"], "(timeout)" in result["error"]) == ("aborted", True)


async def test_what_is_allowed_runs_and_what_is_denied_does_not_and_the_end_tells_who_said_what_when() -> None:
    bench = Bench(policy=Policy(mode="approval"))
    answer(bench, c0="allow", c1="deny")
    before = time.time()
    allowed, refused = await bench.run(("work", {}), ("work", {}))
    assert allowed["ok"] is True
    assert (refused["error_type"], refused["note"], refused["retryable"]) == ("denied", "my note", False)
    assert bench.tools["work"].begun == ["c0"]
    assert bench.story("c0") == [*ASKED, ("tool", "running"), ("tool_executed", None), ("tool", "end")]
    assert bench.story("c1") == [*ASKED, ("tool", "error"), ("tool_executed", None), ("tool", "end")]
    assert bench.states_told("c1") == ["PENDING", "AWAITING_APPROVAL", "DENIED", "DENIED", "DENIED"]
    decided = next(data for name, data in bench.events if name == "permission_decided")
    assert decided == {"call_id": "c0", "decision": "allow", "note": "my note", "by": "ann"}
    asked = next(data["reason"] for name, data in bench.events if name == "permission_required")
    approval = next(
        data["approval"] for name, data in bench.events if name == "tool_executed" and subject(data) == "c0"
    )
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
    nursery.start_soon(bench.runner(("work", {})).run, 3)
    await bench.told("permission_required", "c0")
    bench.journal.full = True
    with pytest.raises(TranscriptError):
        bench.approvals.decide("c0", "allow")
    assert [call.id for call in bench.approvals.pending()] == ["c0"]
    bench.journal.full = False
    bench.approvals.decide("c0", "allow")
    await bench.told("tool", "c0", "end")


KINDS = ("work", "fail", "break", "slow", "asked", "denied", "nothing", "misfit")


@settings(max_examples=100, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(KINDS), max_size=8),
    decisions=st.lists(st.sampled_from(["allow", "deny", None]), min_size=8, max_size=8),
    parallel=st.integers(1, 4),
    patience=st.sampled_from([0, 1, 3, 1000]),
)
def test_whatever_is_called_decided_or_aborted_each_call_has_one_result_in_order_and_a_true_history(
    kinds: list[str], decisions: list[Any], parallel: int, patience: int
) -> None:
    trio.run(story, kinds, decisions, parallel, patience, clock=trio.testing.MockClock(autojump_threshold=0))


async def story(kinds: list[str], decisions: list[Any], parallel: int, patience: int) -> None:
    rules = Policy(require_approval=frozenset({"asked"}), deny=frozenset({"denied"}))
    bench = Bench(policy=rules)
    bench.tools |= {name: FakeTool(name, take_time) for name in ("slow", "asked", "denied")}
    calls: dict[str, tuple[str, Any]] = {"misfit": ("work", {"x": 1}), "slow": ("slow", {"seconds": 2})}
    answer(bench, **{f"c{n}": decision for n, decision in enumerate(decisions) if decision is not None})
    runner = bench.runner(*(calls.get(kind, (kind, {})) for kind in kinds))
    with trio.move_on_after(patience):
        await runner.run(parallel)
    runner.close()
    ids = [f"c{n}" for n in range(len(kinds))]
    assert [result.tool_use_id for result in runner.results()] == ids
    for call_id, kind, decision in zip(ids, kinds, decisions, strict=False):
        phases = bench.story(call_id)
        assert phases[0] == ("tool", "start")
        assert phases[-2:] == [("tool_executed", None), ("tool", "end")]
        assert phases.count(("tool", "end")) == phases.count(("tool_executed", None)) == 1
        records = [record for record in bench.journal.noted if record.id == call_id]
        states = [record.state for record in records]
        assert states[-1] in {CallState.COMPLETED, CallState.FAILED, CallState.DENIED}
        assert states.count(states[-1]) == 1
        assert [len(record.audit) for record in records] == list(range(2, len(records) + 2))
        began = any(call_id in tool.begun for tool in bench.tools.values())
        assert not began or CallState.RUNNING in states
        assert not began or kind not in {"denied", "nothing", "misfit"}
        assert not (began and kind == "asked") or decision == "allow"
