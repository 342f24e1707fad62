import msgspec
import pytest
import trio
import trio.testing

from errors import UsageError
from rpc.settings import RpcSettings
from tests.rpc.clients import AskingClient, make_client, running
from tests.rpc.memory_transport import MemoryTransport
from wire.messages import BackgroundProcesses, ExecExit
from wire.units import ByteCount

pytestmark = pytest.mark.usefixtures("virtual_time")

# --- events ---------------------------------------------------------------------------------------------------------


async def test_every_subscriber_gets_every_event_in_order_and_lists_of_its_own(
    worker: MemoryTransport, client: AskingClient
) -> None:
    with client.subscribe() as one, client.subscribe() as two:
        worker.say(*({"event": f"e{number}"} for number in range(5)))
        worker.say({"event": "last"})
        first = await one.receive()
        assert first is not None
        first.clear()
        assert [event.event for event in await two.receive() or []] == ["e0", "e1", "e2", "e3", "e4"]
        assert [event.event for event in await one.receive() or []] == ["last"]
        assert client.statistics().events == 6


async def test_an_event_before_an_answer_is_delivered_before_it_and_one_after_it_after_it(
    worker: MemoryTransport, client: AskingClient
) -> None:
    with client.subscribe() as events:
        seen: list[int] = []
        client.submit("ping", on_settled=lambda: seen.append(events._events))
        worker.say({"event": "a"}, {"event": "b"}, {"id": "1", "result": 1}, {"event": "c"})
        assert [event.event for event in await events.receive() or []] == ["a", "b"]
        assert [event.event for event in await events.receive() or []] == ["c"]
        assert seen == [2]


async def test_reading_one_by_one_can_change_to_batches_without_losing_an_event(
    worker: MemoryTransport, client: AskingClient
) -> None:
    with client.subscribe() as events:
        worker.say({"event": "a"}, {"event": "b"}, {"event": "c"})
        worker.exit(code=0)
        assert (await anext(events)).event == "a"
        batches = [[event.event for event in batch] async for batch in events.batches()]
        assert batches == [["b", "c"]]


async def test_who_subscribes_before_the_client_runs_misses_nothing_and_who_comes_later_gets_the_rest(
    worker: MemoryTransport, nursery: trio.Nursery
) -> None:
    client = make_client(worker)
    early = client.subscribe()
    worker.say({"event": "first"})
    await nursery.start(client.run)
    await trio.testing.wait_all_tasks_blocked()
    late = client.subscribe()
    worker.say({"event": "second"})
    worker.exit(code=0)
    assert [event.event async for event in early] == ["first", "second"]
    assert [event.event async for event in late] == ["second"]


async def test_a_full_subscriber_holds_the_worker_back_and_memory_stays_bounded(
    worker: MemoryTransport, client: AskingClient
) -> None:
    with client.subscribe(max_events=10) as slow, client.subscribe():
        for number in range(100):
            worker.say({"event": "e", "data": number})
        await trio.testing.wait_all_tasks_blocked()
        assert worker.reads == 10
        assert client.statistics().backpressured
        numbers: list[int] = []
        while len(numbers) < 100:
            numbers += [msgspec.json.decode(event.data) for event in await slow.receive() or []]
        assert numbers == list(range(100))
        assert not client.statistics().backpressured


async def test_bytes_bound_a_subscriber_as_well(worker: MemoryTransport) -> None:
    async with running(worker, RpcSettings(subscriber_bytes=ByteCount(1000))) as client:
        with client.subscribe():
            for _ in range(10):
                worker.say({"event": "e", "data": "x" * 600})
            await trio.testing.wait_all_tasks_blocked()
            assert worker.reads == 2


async def test_a_subscriber_that_leaves_lets_the_worker_go_on(worker: MemoryTransport, client: AskingClient) -> None:
    asked = client.ask("get_state")
    with client.subscribe(max_events=1):
        await worker.next_request()
        worker.say({"event": "a"})
        worker.say({"id": "1", "result": 1})
        await trio.testing.wait_all_tasks_blocked()
        assert not asked.done.is_set()
    assert await asked.answer() == 1


async def test_a_full_subscriber_does_not_hold_up_the_end(worker: MemoryTransport, client: AskingClient) -> None:
    with client.subscribe(max_events=1) as events:
        asked = client.ask("get_state")
        await worker.next_request()
        worker.say({"event": "a"})
        worker.say({"event": "b"}, {"id": "1", "result": "still heard"})
        await trio.testing.wait_all_tasks_blocked()
        worker.exit(code=0)
        assert await asked.answer() == "still heard"
        assert [event.event async for event in events] == ["a", "b"]


async def test_a_reader_gets_what_is_there_without_a_checkpoint_and_lets_others_run_once_in_64_kib(
    worker: MemoryTransport, client: AskingClient
) -> None:
    with client.subscribe() as events:
        for _ in range(12):
            worker.say({"event": "e", "data": "x" * 16 * 1024})
        await trio.testing.wait_all_tasks_blocked()
        checkpoints = 0
        with trio.testing.assert_no_checkpoints():
            for _ in range(4):
                await events.receive()
        for _ in range(8):
            try:
                with trio.testing.assert_no_checkpoints():
                    await events.receive()
            except AssertionError:
                checkpoints += 1
        assert checkpoints == 2
        events.close()
        with trio.testing.assert_no_checkpoints():
            assert await events.receive() is None


async def test_one_task_reads_a_subscription(client: AskingClient, nursery: trio.Nursery) -> None:
    with client.subscribe() as events:
        nursery.start_soon(events.receive)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await events.receive()


async def test_a_cancelled_reader_loses_no_event(worker: MemoryTransport, client: AskingClient) -> None:
    with client.subscribe() as events:
        with trio.move_on_after(1):
            await anext(events)
        worker.say({"event": "a"})
        assert (await anext(events)).event == "a"


async def test_closing_a_subscription_ends_whoever_reads_it(
    worker: MemoryTransport, client: AskingClient, nursery: trio.Nursery
) -> None:
    events = client.subscribe()
    seen = trio.Event()

    async def read() -> None:
        assert [event async for event in events] == []
        seen.set()

    nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    events.close()
    await seen.wait()
    assert events.end_error is None


async def test_a_subscription_needs_room_for_one_event() -> None:
    with pytest.raises(UsageError, match="max_events is 0"):
        make_client(MemoryTransport()).subscribe(max_events=0)


async def test_the_client_knows_background_processes_runs_and_questions(
    worker: MemoryTransport, client: AskingClient
) -> None:
    told: list[BackgroundProcesses] = []
    ends: list[ExecExit] = []
    client.on_background(told.append, ends.append)
    call = {"id": "c1", "name": "bash"}
    names = ["calm-fox", "x" * 1000, *map(str, range(100))]
    worker.say({"event": "run_start"}, {"event": "background", "data": {"running": 2, "names": names}})
    worker.say({"event": "permission_required", "data": {"call": call}})
    await trio.testing.wait_all_tasks_blocked()
    assert (client.is_running, client.background.running, client.awaits_person) == (True, 2, True)
    worker.say({"event": "permission_decided", "data": {"call_id": "c1"}}, {"event": "done"})
    ended = {"session_id": "calm-fox", "summary": "Exec completed", "session_key": "k", "exit_code": 0}
    worker.say({"event": "exec_exit", "data": ended}, {"event": "background", "data": {"running": 0}})
    await trio.testing.wait_all_tasks_blocked()
    assert (client.is_running, client.background.running, client.awaits_person) == (False, 0, False)
    assert told == [BackgroundProcesses(2, ["calm-fox", "x" * 256, *map(str, range(62))]), BackgroundProcesses()]
    assert [msgspec.to_builtins(end) for end in ends] == [ended]


async def test_a_dialog_waits_for_a_person_until_it_is_answered(worker: MemoryTransport, client: AskingClient) -> None:
    seen = []
    for question in ({"id": "u0", "method": "notify"}, {"id": "u1", "method": "confirm"}):
        worker.say({"event": "ui_request", "data": question})
        await trio.testing.wait_all_tasks_blocked()
        seen.append(client.awaits_person)
    client.submit("ui_respond", {"id": "u1", "confirmed": True})
    assert [*seen, client.awaits_person] == [False, True, False]
