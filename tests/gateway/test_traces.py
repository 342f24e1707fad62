"""The spans of a run: their tree, their times, what they say and what they do not."""

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gateway.runs.trace import MAX_TOOLS, RunTrace, Span
from tests.gateway.world import World
from wire.traceparent import TraceParent

CALLER = TraceParent("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", is_sampled=True)


class Recorder:
    """Implements ``Tracer``: ids that count up, and all spans."""

    def __init__(self, *, is_sampled: bool = True) -> None:
        self.is_sampled = is_sampled
        self.exported: list[list[Span]] = []
        self._begun = 0

    def begin(self, parent: TraceParent | None) -> RunTrace:
        self._begun += 1
        trace_id = f"{self._begun:032x}" if parent is None else parent.trace_id
        root = TraceParent(trace_id, f"{self._begun * 4096:016x}", self.is_sampled)
        return RunTrace(root, None if parent is None else parent.span_id)

    def export(self, spans: list[Span]) -> None:
        self.exported.append(spans)


@pytest.fixture
def recorder(world: World) -> Recorder:
    """Where the spans of the world go."""
    recorder = Recorder()
    world.gateway.run_registry._tracer = recorder
    return recorder


def tree(spans: list[Span]) -> dict[str, str | None]:
    """The name of the span above each."""
    names = {span.place.span_id: span.name for span in spans}
    assert len(names) == len(spans), "each has an id of its own"
    assert len({span.place.trace_id for span in spans}) == 1
    return {span.name: names.get(span.parent_id or "", span.parent_id) for span in spans}


def handed(world: World) -> list[str | None]:
    """What workers were handed with their prompts."""
    return [params.get("traceparent") for params in world.launcher.asked("prompt")]


async def test_a_run_is_a_tree_of_its_steps_below_the_span_of_its_caller(world: World, recorder: Recorder) -> None:
    run = await world.begin("hang", traceparent=str(CALLER))
    worker = world.launcher.running("hang")
    call = {"id": "t1", "name": "exec", "input_preview": "a secret", "state": "RUNNING"}
    await trio.sleep(1)
    worker.tell("tool", phase="start", call=call)
    await wait_all_tasks_blocked()
    await trio.sleep(2)
    worker.tell("tool", phase="end", call={**call, "state": "COMPLETED"})
    await wait_all_tasks_blocked()
    await trio.sleep(4)
    worker.finish("another secret", usage={"input_tokens": 5, "output_tokens": 6})
    outcome = await run.wait()
    (spans,) = recorder.exported
    assert tree(spans) == {
        "invoke_agent main": CALLER.span_id,
        **dict.fromkeys(("accept", "wait", "lease", "turn"), "invoke_agent main"),
        "execute_tool exec": "turn",
    }
    by_name = {span.name: span for span in spans}
    root, turn, tool = by_name["invoke_agent main"], by_name["turn"], by_name["execute_tool exec"]
    assert (root.start, root.end, root.place.trace_id) == (outcome.accepted_at, outcome.ended_at, CALLER.trace_id)
    assert (turn.end - turn.start, tool.end - tool.start, turn.end - tool.end) == (7, 2, 4)
    assert handed(world) == [str(turn.place)]
    assert root.attributes["gen_ai.usage.output_tokens"] == 6
    assert "secret" not in repr(spans)


async def test_a_tool_that_failed_and_one_without_a_result_say_so(world: World, recorder: Recorder) -> None:
    worker = await world.hanging()
    for name, phase in (("a", "start"), ("a", "error"), ("b", "start")):
        worker.tell("tool", phase=phase, call={"id": name, "name": name, "input_preview": "", "state": "RUNNING"})
    await wait_all_tasks_blocked()
    worker.finish()
    await wait_all_tasks_blocked()
    errors = {span.name: span.error for span in recorder.exported[0] if span.name.startswith("execute_tool")}
    assert errors == {"execute_tool a": "tool_error", "execute_tool b": "no_result"}


async def test_a_run_that_joins_a_turn_has_a_link_to_it(world: World, recorder: Recorder) -> None:
    worker = await world.hanging()
    await world.begin("left")
    worker.consume()
    worker.finish()
    await wait_all_tasks_blocked()
    leader, joined = recorder.exported
    (turn,) = [span for span in leader if span.name == "turn"]
    assert joined[0].link == turn.place
    assert leader[0].link is None
    assert [span.name for span in joined] == ["invoke_agent main", "accept", "wait"]


async def test_a_worker_that_died_is_part_of_the_turn_that_the_next_one_goes_on_with(
    world: World, recorder: Recorder
) -> None:
    worker = await world.hanging(retry_safe=True)
    await trio.sleep(3)
    worker.die()
    await wait_all_tasks_blocked()
    world.launcher.running("hang").finish()
    await wait_all_tasks_blocked()
    by_name = {span.name: span for span in recorder.exported[0]}
    assert by_name["lease"].attributes["pool.leases"] == 2
    assert by_name["turn"].end - by_name["turn"].start >= 3
    assert handed(world) == [str(by_name["turn"].place)] * 2


async def test_a_run_that_failed_says_with_which_code(world: World, recorder: Recorder) -> None:
    await world.ask("fail")
    errors = {span.name: span.error for span in recorder.exported[0]}
    assert (errors["invoke_agent main"], errors["turn"], errors["lease"]) == ("worker_error", "worker_error", None)


async def test_a_delegated_task_is_below_the_turn_that_gave_it(world: World, recorder: Recorder) -> None:
    await world.begin("hang", traceparent=str(CALLER), tracestate="a=1")
    worker = world.launcher.running("hang")
    await world.call("delegate", session="alice", agent="main", task="say it is done")
    assert [params["tracestate"] for params in world.launcher.asked("prompt")] == ["a=1", "a=1"]
    worker.finish()
    await wait_all_tasks_blocked()
    task, giver = recorder.exported
    (turn,) = [span for span in giver if span.name == "turn"]
    assert (task[0].parent_id, task[0].place.trace_id) == (turn.place.span_id, turn.place.trace_id)


async def test_a_trace_that_is_not_recorded_is_handed_on_as_such(world: World, recorder: Recorder) -> None:
    recorder.is_sampled = False
    await world.ask("say hi")
    assert recorder.exported == [[]]
    assert [(parent or "")[-2:] for parent in handed(world)] == ["00"]


async def test_without_a_tracer_a_run_has_no_trace_and_workers_are_handed_none(world: World) -> None:
    run = await world.send("say hi", traceparent=str(CALLER), tracestate="a=1")
    await run.wait()
    assert run.trace is None
    assert handed(world) == [None]
    assert "tracestate" not in world.launcher.asked("prompt")[0]


def test_the_spans_of_a_turn_are_bounded() -> None:
    trace = Recorder().begin(None)
    for number in range(MAX_TOOLS + 5):
        call: Any = type("Call", (), {"id": f"c{number}", "name": "exec"})
        trace.observe("tool:start", {"call": call}, 1.0)
    assert len(trace._calls) == MAX_TOOLS
