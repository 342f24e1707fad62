"""Tool calls from the rules to their results, as sentences: one result each, in call order, told and written down."""

from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.approvals import NotDecidable
from agent.policy import Policy
from agent.tools.base import ToolContext, ToolError, ToolOutput
from tests.agent.calling import Bench, FakeTool, Input, answer, contents, hang, subject, take_time
from wire.entries import CallState, ImageBlock
from wire.transcript_repair import TranscriptError

FINE = [("tool", "start"), ("tool_executed", None), ("tool", "end")]
BAD = [("tool", "start"), ("tool", "error"), ("tool_executed", None), ("tool", "end")]

# --- results ----------------------------------------------------------------------------------------------------------


async def test_results_come_in_call_order_whoever_is_done_first(autojump_clock: trio.testing.MockClock) -> None:
    bench = Bench()
    results = await bench.run(*(("work", {"seconds": 9 - n, "say": str(n)}) for n in range(3)))
    assert [result["data"] for result in results] == ["0", "1", "2"]
    assert [subject(data) for name, data in bench.events if name == "tool_executed"] == ["c2", "c1", "c0"]


async def test_every_kind_of_call_gets_exactly_one_result_and_one_end() -> None:
    bench = Bench()
    calls = [("work", {}), ("fail", {}), ("break", {}), ("nothing", {}), ("work", {"seconds": "x"}), ("work", None)]
    results = await bench.run(*calls)
    assert [(result["ok"], result.get("error_type")) for result in results] == [
        (True, None),
        (False, "logical"),
        (False, "runtime"),
        (False, "validation"),
        (False, "validation"),
        (False, "validation"),
    ]
    assert [bench.story(f"c{n}") for n in range(6)] == [FINE, *[BAD] * 5]


async def test_the_end_of_a_call_tells_its_result_once_and_to_a_bound() -> None:
    bench = Bench()
    await bench.run(("work", {"say": "x" * 1_000_000}), ("fail", {}))
    told = {subject(data): data["result"] for name, data in bench.events if name == "tool" and "result" in data}
    assert [data["phase"] for name, data in bench.events if "result" in data] == ["end", "end"]
    assert 8_000 < len(told["c0"]) < 8_100
    assert told["c1"] == "no such thing\nlook again"


async def test_a_tools_error_reaches_the_model_whole() -> None:
    assert await Bench().run(("fail", {})) == [
        {
            "ok": False,
            "error": "no such thing",
            "error_type": "logical",
            "retryable": True,
            "note": "look again",
            "recommendations": ["look elsewhere"],
        }
    ]


async def test_a_raised_exception_is_marked_as_thrown() -> None:
    (result,) = await Bench().run(("break", {}))
    assert result["_thrownError"] is True
    assert result["error"] == "KeyError: 'a bug'"


async def test_an_error_from_inside_a_nursery_is_told_as_itself() -> None:
    async def nested(_arguments: Input, _context: ToolContext) -> str:
        async with trio.open_nursery():
            raise ToolError("deep inside", "logical")

    (result,) = await Bench(FakeTool("nested", nested)).run(("nested", {}))
    assert (result["error"], result["error_type"]) == ("deep inside", "logical")


async def test_details_and_images_ride_beside_the_text() -> None:
    image = ImageBlock("AAAA")

    async def paint(_arguments: Input, _context: ToolContext) -> ToolOutput:
        return ToolOutput("a picture", {"width": 1}, [image])

    bench = Bench(FakeTool("paint", paint))
    runner = bench.runner(("paint", {}))
    await runner.run(3)
    (result,) = runner.results()
    assert (result.content, result.images) == ({"ok": True, "data": "a picture", "details": {"width": 1}}, [image])
    assert bench.journal.last("c0").images == [image]


async def test_a_result_that_is_no_json_is_a_failure_and_not_the_end_of_the_run() -> None:
    async def odd(_arguments: Input, _context: ToolContext) -> ToolOutput:
        return ToolOutput("\udc80", {"what": object()})

    (result,) = await Bench(FakeTool("odd", odd)).run(("odd", {}))
    assert (result["ok"], result["_thrownError"]) == (False, True)


async def test_two_calls_with_one_id_are_two_results_and_one_run() -> None:
    bench = Bench()
    runner = bench.runner(("work", {}), ("work", {}))
    runner._calls[1].call = runner._calls[0].call
    await runner.run(3)
    assert [content["ok"] for content in contents(runner)] == [True, False]
    assert bench.tools["work"].begun == ["c0"]


# --- times and places -------------------------------------------------------------------------------------------------


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
    assert stuck["error"] == "hang timed out after 60 s"
    assert stuck["retryable"] is True
    assert patient["ok"] is True


async def test_progress_is_told_while_it_runs_and_not_after_its_end() -> None:
    kept: list[Any] = []

    async def talk(_arguments: Input, context: ToolContext) -> str:
        kept.append(context.report)
        context.report({"tail": "half"})
        return "whole"

    bench = Bench(FakeTool("talk", talk))
    await bench.run(("talk", {}))
    kept[0]({"tail": "too late"})
    assert bench.story("c0") == [("tool", "start"), ("tool", "update"), *FINE[1:]]
    assert bench.states_told("c0") == ["PENDING", "RUNNING", "COMPLETED", "COMPLETED"]


# --- the disk ---------------------------------------------------------------------------------------------------------


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


# --- aborts -----------------------------------------------------------------------------------------------------------


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
    assert len(bench.events) == before
    assert bench.tools["asked"].begun == []


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
    assert (result["error_type"], result["note"]) == ("denied", "never")
    assert bench.journal.last("c0").state == "DENIED"


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

    bench = Bench(FakeTool("clumsy", clumsy))
    runner = bench.runner(("clumsy", {}))
    with trio.move_on_after(1) as scope:
        await runner.run(3)
    assert scope.cancelled_caught
    runner.close("timeout")
    (result,) = contents(runner)
    assert (result["error_type"], "(timeout)" in result["error"]) == ("aborted", True)


# --- all of it --------------------------------------------------------------------------------------------------------

KINDS = ("work", "fail", "break", "slow", "asked", "denied", "nothing", "misfit")


@settings(max_examples=150, deadline=None)
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
