from typing import Any

import pytest
import trio
import trio.testing

from errors import ProtocolViolation, RequestTimeout
from rpc.settings import RpcSettings
from tests.rpc.clients import AskingClient, running
from tests.rpc.memory_transport import MemoryTransport
from wire.units import PositiveInt, Seconds

pytestmark = pytest.mark.usefixtures("virtual_time")


class TaskSteps(trio.abc.Instrument):
    """The names of the tasks that ran, a step each."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.names.append(task.name)


async def test_an_answer_is_read_by_the_task_that_waits_for_it(worker: MemoryTransport, client: AskingClient) -> None:
    asked = client.ask("get_state")
    await trio.testing.wait_all_tasks_blocked()
    steps = TaskSteps()
    trio.lowlevel.add_instrument(steps)
    worker.say({"id": "1", "result": "here"})
    assert await asked.answer() == "here"
    trio.lowlevel.remove_instrument(steps)
    of_callers = [index for index, name in enumerate(steps.names) if name.endswith("Asked._ask")]
    assert len(of_callers) == 1
    assert not any(name.endswith("RpcClient.run") for name in steps.names[: of_callers[0]])


@pytest.mark.parametrize("how", ["answered", "cancelled", "timed out"])
async def test_what_comes_after_the_request_whose_task_read_is_read_all_the_same(
    worker: MemoryTransport, client: AskingClient, how: str
) -> None:
    events = client.subscribe()
    reads = client.ask("get_state", timeout=1)
    await trio.testing.wait_all_tasks_blocked()
    waits = client.ask("get_state", timeout=60)
    await trio.testing.wait_all_tasks_blocked()
    match how:
        case "answered":
            worker.say({"id": "1", "result": 1})
            await reads.answer()
        case "cancelled":
            reads.scope.cancel()
            await reads.done.wait()
        case "timed out":
            assert isinstance(await reads.error(), RequestTimeout)
            assert trio.current_time() == 1
    worker.say({"id": "2", "result": 2}, {"event": "later"})
    assert await waits.answer() == 2
    assert [event.event for event in await events.receive() or []] == ["later"]
    worker.say({"event": "last"})
    assert [event.event for event in await events.receive() or []] == ["last"]


async def test_a_request_whose_task_reads_reads_no_more_while_a_subscriber_is_full(worker: MemoryTransport) -> None:
    async with running(worker, RpcSettings(subscriber_events=PositiveInt(1))) as client:
        events = client.subscribe()
        asked = client.ask("get_state")
        await trio.testing.wait_all_tasks_blocked()
        for thing in ({"event": "a"}, {"event": "b"}, {"id": "1", "result": 1}):
            worker.say(thing)
        await trio.testing.wait_all_tasks_blocked()
        assert (worker.reads, client.statistics().backpressured, asked.outcome) == (1, True, None)
        assert [event.event for event in await events.receive() or []] == ["a"]
        assert [event.event for event in await events.receive() or []] == ["b"]
        assert await asked.answer() == 1


async def test_after_a_violation_that_a_request_reads_nothing_more_is_read(worker: MemoryTransport) -> None:
    async with running(worker, RpcSettings(max_contaminated_lines=PositiveInt(1), abort_grace=Seconds(1))) as client:
        events = client.subscribe()
        asked = client.ask("get_state")
        await trio.testing.wait_all_tasks_blocked()
        worker.print(b"no\nno\n")
        worker.say({"event": "too late"}, {"id": "1", "result": 1})
        assert isinstance(await asked.error(), ProtocolViolation)
        heard: list[Any] = [event.event async for event in events]
        assert heard == []
        assert worker.reads == 1
