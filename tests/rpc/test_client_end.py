import pytest
import trio
import trio.testing

from errors import ProtocolViolation, RequestTimeout, WorkerError, WorkerExited
from rpc.native import NativeDialect
from rpc.settings import RpcSettings
from tests.rpc.clients import Asked, AskingClient, outcome_of, running
from tests.rpc.memory_transport import MemoryTransport
from wire.units import ByteCount, Seconds

pytestmark = pytest.mark.usefixtures("virtual_time")

# --- writing --------------------------------------------------------------------------------------------------------


async def test_partial_writes_are_finished_before_the_next_line_begins(nursery: trio.Nursery) -> None:
    worker = MemoryTransport(stdin_capacity=10)
    async with running(worker) as client:
        texts = ["x" * 50, "y" * 30, "z"]
        for text in texts:
            client.ask("steer", params={"text": text})
            await trio.testing.wait_all_tasks_blocked()
        assert len(worker.written) == 10
        for _ in range(40):
            worker.read_input(10)
            await trio.testing.wait_all_tasks_blocked()
        written = [(await worker.next_request())["params"]["text"] for _ in texts]
        assert written == texts
        assert client.statistics().queued_bytes == 0
        assert client.statistics().bytes_out == len(worker.written)
        nursery.cancel_scope.cancel()


async def test_a_line_cannot_overtake_one_that_was_begun_when_room_comes_up_in_between() -> None:
    worker = MemoryTransport(stdin_capacity=10)
    async with running(worker) as client:
        client.submit("steer", {"text": "first"})
        worker.read_input(10)  # room again, but the writer task has not run yet
        client.submit("ping")
        for _ in range(20):
            await trio.testing.wait_all_tasks_blocked()
            worker.read_input(10)
        assert [(await worker.next_request())["method"] for _ in range(2)] == ["steer", "ping"]


async def test_a_worker_that_does_not_read_stalls_callers_until_it_reads(nursery: trio.Nursery) -> None:
    worker = MemoryTransport(stdin_capacity=0)
    async with running(worker, RpcSettings(send_queue_bytes=ByteCount(100))) as client:
        client.ask("steer", params={"text": "x" * 200})  # one line may stand above the limit
        await trio.testing.wait_all_tasks_blocked()
        late = client.ask("ping", timeout=60)
        await trio.testing.wait_all_tasks_blocked()
        assert client.statistics().requests == 1
        worker._capacity = 1000
        worker.read_input(0)
        assert (await worker.next_request())["method"] == "steer"
        assert (await worker.next_request())["method"] == "ping"
        assert not late.done.is_set()
        nursery.cancel_scope.cancel()


async def test_waiting_for_room_counts_against_the_deadline_and_nothing_was_sent() -> None:
    worker = MemoryTransport(stdin_capacity=0)
    async with running(worker, RpcSettings(send_queue_bytes=ByteCount(10))) as client:
        first = client.ask("ping", timeout=60)
        await trio.testing.wait_all_tasks_blocked()
        error = await outcome_of(client, "ping", timeout=2)
        assert isinstance(error, RequestTimeout)
        assert error.details["sent"] is False
        assert trio.current_time() == pytest.approx(2)
        first.scope.cancel()


async def test_whoever_waits_for_room_learns_that_the_worker_is_gone() -> None:
    worker = MemoryTransport(stdin_capacity=0)
    async with running(worker, RpcSettings(send_queue_bytes=ByteCount(10))) as client:
        first = client.ask("ping")
        await trio.testing.wait_all_tasks_blocked()
        second = client.ask("ping")
        await trio.testing.wait_all_tasks_blocked()
        worker.exit(code=0)
        for asked in (first, second):
            error = await asked.error()
            assert isinstance(error, WorkerExited)
            assert not error.sent


# --- the end --------------------------------------------------------------------------------------------------------


async def test_the_last_answer_wins_its_race_against_the_exit(worker: MemoryTransport, client: AskingClient) -> None:
    asked = client.ask("get_state")
    events = client.subscribe()
    await worker.next_request()
    worker.print(b'{"event":"run_start"}\n{"id":"1",')
    worker.print(b'"result":"in time"}\n')
    worker.exit(code=0)
    assert await asked.answer() == "in time"
    assert [event.event async for event in events] == ["run_start"]
    assert isinstance(events.end_error, WorkerExited)


async def test_an_exit_fails_everything_pending_once_and_tells_what_was_sent() -> None:
    worker = MemoryTransport(stdin_capacity=len(NativeDialect().open(0.0).outgoing[0]) + 10)
    worker.stderr = "Segmentation fault"
    async with running(worker) as client:
        sent = client.ask("get_state")
        await trio.testing.wait_all_tasks_blocked()
        unsent = client.ask("get_messages")
        await trio.testing.wait_all_tasks_blocked()
        worker.exit(signal=11)
        errors = [await sent.error(), await unsent.error()]
        assert all(isinstance(error, WorkerExited) for error in errors)
        assert [error.details["sent"] for error in errors] == [True, False]
        assert "killed by signal 11" in str(errors[0])
        assert errors[0].stderr_tail == "Segmentation fault"
        assert errors[0] is not errors[1]
        assert await client.wait_ended() is client.end_error
        with pytest.raises(WorkerExited) as caught:
            await client.request("ping")
        assert not caught.value.sent
        assert not client.is_running


@pytest.mark.parametrize(
    ("end", "words"),
    [({"code": 3}, "exited with code 3"), ({"signal": 9}, "killed by signal 9"), ({}, "ended")],
)
async def test_an_end_is_explained_with_what_is_known_of_its_cause(
    worker: MemoryTransport, client: AskingClient, end: dict[str, int], words: str
) -> None:
    worker.exit(**end, reason="its node gpu-2 was lost")
    error = await client.wait_ended()
    assert error.message.endswith(f" {words} (its node gpu-2 was lost)")
    assert error.details["status"] == f"{words} (its node gpu-2 was lost)"


async def test_half_a_line_at_the_end_is_contamination(worker: MemoryTransport, client: AskingClient) -> None:
    worker.print(b'{"event":"a"}\n{"event":"half')
    worker.exit(code=0)
    await client.wait_ended()
    assert client.statistics().invalid_lines == 1
    assert client.invalid_lines.samples == [b'{"event":"half']


async def test_a_closed_stdout_is_followed_by_an_exit_or_breaks_the_protocol(worker: MemoryTransport) -> None:
    async with running(worker, RpcSettings(eof_grace=Seconds(3))) as client:
        asked = client.ask("get_state")
        await worker.next_request()
        worker.close_output()
        error = await asked.error()
        assert isinstance(error, ProtocolViolation)
        assert "closed its stdout but lives on" in str(error)
        assert trio.current_time() == pytest.approx(3)


async def test_an_exit_after_a_closed_stdout_is_an_exit(worker: MemoryTransport, client: AskingClient) -> None:
    worker.close_output()
    await trio.testing.wait_all_tasks_blocked()
    worker.exit(code=3)
    assert isinstance(await client.wait_ended(), WorkerExited)
    assert trio.current_time() == 0


@pytest.mark.parametrize("pipe", ["stdin", "stdout"])
async def test_an_exit_that_is_told_of_late_is_an_exit_too(
    worker: MemoryTransport, client: AskingClient, pipe: str
) -> None:
    asked = [client.ask("get_state")]
    await worker.next_request()
    if pipe == "stdin":
        worker.close_input()
        asked.append(client.ask("get_state"))
    else:
        worker.close_output()
    worker.die()
    await trio.sleep(10)
    assert client.end_error is None
    worker.exit(signal=9)
    for each in asked:
        assert "killed by signal 9" in str(await each.error())


async def test_a_worker_with_a_closed_stdin_is_heard_out_until_the_grace_is_over(worker: MemoryTransport) -> None:
    async with running(worker, RpcSettings(eof_grace=Seconds(1), term_grace=Seconds(2))) as client:
        first = client.ask("get_state")
        await worker.next_request()
        worker.close_input()
        second = client.ask("get_state")
        await trio.testing.wait_all_tasks_blocked()
        worker.say({"id": "1", "result": "last words"})
        assert await first.answer() == "last words"
        error = await second.error()
        assert isinstance(error, ProtocolViolation)
        assert "closed its stdin but lives on" in str(error)
        assert error.details["sent"] is False
        assert trio.current_time() == pytest.approx(5)


async def test_an_endless_writer_behind_a_dead_worker_cannot_hold_up_the_end() -> None:
    class Grandchild(MemoryTransport):
        def receive_nowait(self) -> bytes | None:
            self.reads += 1
            return b'{"event":"noise"}\n' * 1000

    worker = Grandchild()
    async with running(worker) as client:
        worker.exit(code=0)
        assert isinstance(await client.wait_ended(), WorkerExited)
        assert worker.reads < 100


async def test_closing_the_client_fails_what_is_pending(worker: MemoryTransport, nursery: trio.Nursery) -> None:
    async with running(worker) as client:
        asked = Asked(nursery, client, "get_state")
        await worker.next_request()
    error = await asked.error()
    assert type(error) is WorkerError
    assert "was closed" in str(error)
    assert client.subscribe().end_error is client.end_error
