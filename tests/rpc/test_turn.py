from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from errors import PoolError, ProtocolViolation, RequestTimeout, UsageError, WorkerExited, WorkerRefused
from rpc.client import RpcClient
from rpc.settings import RpcSettings
from rpc.turn import RpcTurn
from tests.rpc.clients import AskingClient, running
from tests.rpc.memory_transport import MemoryTransport
from wire.messages import PromptParams, PromptResult
from wire.units import Seconds

pytestmark = pytest.mark.usefixtures("virtual_time")

HELLO = PromptParams("hello")
RESULT = {"text": "Hi!", "stop_reason": "stop", "usage": {"input_tokens": 3, "output_tokens": 2}}


def piece(text: str) -> dict[str, Any]:
    return {"event": "assistant_message", "data": {"partial": text}}


async def read_turn(client: RpcClient, seen: list[str | None], **options: Any) -> PromptResult:
    async with RpcTurn(client, HELLO, **options) as turn:
        async for event in turn:
            seen.append(event.event)  # noqa: PERF401 - what came before an error counts
    return turn.result


async def answer_prompt(worker: MemoryTransport, *events: dict[str, Any], result: Any = RESULT) -> None:
    request = await worker.next_request()
    assert request["method"] == "prompt"
    worker.say({"event": "run_start"}, *events, {"event": "done"}, {"id": request["id"], "result": result})


async def test_a_turn_gives_its_events_and_then_its_result(
    worker: MemoryTransport, client: AskingClient, nursery: trio.Nursery
) -> None:
    nursery.start_soon(answer_prompt, worker, piece("Hi"), piece("!"))
    async with RpcTurn(client, HELLO) as turn:
        with pytest.raises(UsageError, match="has not ended"):
            _ = turn.result
        seen = [event.event async for event in turn]
        assert seen == ["run_start", "assistant_message", "assistant_message", "done"]
        assert turn.has_ended
        assert turn.result == msgspec.convert(RESULT, PromptResult)
    assert (turn.result.text, turn.result.usage.output_tokens) == ("Hi!", 2)
    assert client.statistics().pending == 0
    assert worker.written.count(b'"method":"prompt"') == worker.written.count(b"\n") - 1


async def test_batches_and_waiting_come_to_the_same_end(
    worker: MemoryTransport, client: AskingClient, nursery: trio.Nursery
) -> None:
    nursery.start_soon(answer_prompt, worker, piece("a"))
    async with RpcTurn(client, HELLO) as turn:
        assert [len(batch) async for batch in turn.batches()] == [3]
    nursery.start_soon(answer_prompt, worker)
    async with RpcTurn(client, {"text": "again"}) as turn:
        assert (await turn.wait()).text == "Hi!"


async def test_what_follows_the_answer_belongs_to_the_next_turn(worker: MemoryTransport, client: AskingClient) -> None:
    async with RpcTurn(client, HELLO) as turn:
        worker.say(piece("mine"), {"id": "1", "result": RESULT}, {"event": "run_start", "data": {"run_id": "next"}})
        assert [event.event async for event in turn] == ["assistant_message"]
    assert client.is_running


async def test_a_refused_prompt_raises_from_the_iteration(worker: MemoryTransport, client: AskingClient) -> None:
    worker.say({"id": "1", "error": {"code": "busy"}})
    with pytest.raises(WorkerRefused) as caught:
        await read_turn(client, [])
    assert caught.value.details["worker_code"] == "busy"


async def test_a_worker_that_dies_mid_turn_fails_the_turn_after_its_last_event(
    worker: MemoryTransport, client: AskingClient
) -> None:
    seen: list[str | None] = []
    worker.say(piece("last words"))
    worker.exit(signal=9)
    with pytest.raises(WorkerExited) as caught:
        await read_turn(client, seen)
    assert seen == ["assistant_message"]
    assert caught.value.sent


async def test_an_end_that_the_block_did_not_look_at_is_raised_on_leaving(
    worker: MemoryTransport, client: AskingClient
) -> None:
    worker.exit(code=1)
    with pytest.raises(WorkerExited):
        async with RpcTurn(client, HELLO):
            await client.wait_ended()


async def test_an_end_that_the_block_has_seen_and_borne_is_not_raised_again(
    worker: MemoryTransport, client: AskingClient
) -> None:
    async with RpcTurn(client, HELLO) as turn:
        worker.exit(code=1)
        with pytest.raises(WorkerExited):
            await turn.wait()
    with pytest.raises(WorkerExited):
        _ = turn.result


async def test_leaving_early_aborts_the_run_and_waits_for_its_end(
    worker: MemoryTransport, client: AskingClient, nursery: trio.Nursery
) -> None:
    aborted = trio.Event()

    async def stream_until_aborted() -> None:
        await worker.next_request()
        worker.say({"event": "run_start"}, piece("a"))
        assert (await worker.next_request())["method"] == "abort"
        worker.say({"id": "2", "result": {}}, {"event": "done"}, {"id": "1", "result": {"stop_reason": "aborted"}})
        aborted.set()

    nursery.start_soon(stream_until_aborted)
    async with RpcTurn(client, HELLO) as turn:
        async for event in turn:
            if event.event == "assistant_message":
                break
    assert aborted.is_set()
    assert not client.is_running
    assert turn.has_ended
    assert client.statistics().pending == 0
    assert client.statistics().late_answers == 0
    assert trio.current_time() == 0


async def test_an_error_of_the_block_comes_out_as_it_is_and_the_run_is_aborted(worker: MemoryTransport) -> None:
    async with running(worker, RpcSettings(abort_grace=Seconds(2))) as client:
        with pytest.raises(KeyError):
            async with RpcTurn(client, HELLO):
                raise KeyError
        assert (await worker.next_request())["method"] == "prompt"
        assert (await worker.next_request())["method"] == "abort"
        assert trio.current_time() == pytest.approx(2)


async def test_a_worker_that_ignores_the_abort_is_left_after_the_grace(worker: MemoryTransport) -> None:
    async with running(worker, RpcSettings(abort_grace=Seconds(2))) as client:
        worker.say({"event": "run_start"})
        async with RpcTurn(client, HELLO) as turn:
            await anext(turn)
        assert trio.current_time() == pytest.approx(2)
        assert client.is_running
        await trio.testing.wait_all_tasks_blocked()
        assert client.statistics().pending == 0
        worker.say({"id": "1", "result": RESULT})
        await trio.testing.wait_all_tasks_blocked()
        assert client.statistics().late_answers == 1
        with pytest.raises(UsageError, match="has not ended"):
            _ = turn.result


async def test_cancelling_a_turn_aborts_its_run_within_the_grace(worker: MemoryTransport) -> None:
    async with running(worker, RpcSettings(abort_grace=Seconds(2))) as client:
        with trio.move_on_after(5) as scope:
            async with RpcTurn(client, HELLO) as turn:
                await turn.wait()
        assert scope.cancelled_caught
        assert trio.current_time() == pytest.approx(7)
        assert worker.written.count(b'"method":"abort"') == 1


async def test_a_turn_over_its_time_is_aborted_and_fails(
    worker: MemoryTransport, client: AskingClient, nursery: trio.Nursery
) -> None:
    async def abort_slowly() -> None:
        await worker.next_request()
        assert (await worker.next_request())["method"] == "abort"
        assert trio.current_time() == pytest.approx(4.9998)
        worker.say({"event": "done"}, {"id": "1", "result": {"stop_reason": "aborted"}})

    nursery.start_soon(abort_slowly)
    worker.say({"event": "run_start"})
    with pytest.raises(RequestTimeout, match="within 5 s"):
        await read_turn(client, [], timeout=4.9998)
    assert trio.current_time() == pytest.approx(4.9998)
    assert not client.is_running
    assert client.statistics().pending == 1  # the abort's own answer, until its deadline


async def test_a_worker_that_ignores_the_abort_cannot_hold_up_the_end_of_the_time(worker: MemoryTransport) -> None:
    async with running(worker, RpcSettings(abort_grace=Seconds(2))) as client:
        seen: list[str | None] = []
        worker.say({"event": "run_start"})
        with pytest.raises(RequestTimeout):
            await read_turn(client, seen, timeout=5)
        assert seen == ["run_start"]
        assert trio.current_time() == pytest.approx(7)


async def test_leaving_early_with_a_full_buffer_still_hears_the_run_end(worker: MemoryTransport) -> None:
    async with running(worker, RpcSettings(subscriber_events=1)) as client:
        async with RpcTurn(client, HELLO) as turn:
            for _ in range(10):
                worker.say(piece("x"))
            worker.say({"id": "1", "result": {"stop_reason": "aborted"}})
            await anext(turn)
            await trio.testing.wait_all_tasks_blocked()
            assert client.statistics().backpressured
        assert trio.current_time() == 0
        assert turn.result.stop_reason == "aborted"


async def test_a_block_that_does_not_read_is_aborted_in_time_all_the_same(
    worker: MemoryTransport, client: AskingClient
) -> None:
    aborts = []
    with pytest.raises(RequestTimeout):  # noqa: PT012 - the block goes on after the deadline; that is the point
        async with RpcTurn(client, HELLO, timeout=5):
            for _ in range(3):
                await trio.sleep(3)
                aborts.append(worker.written.count(b'"method":"abort"'))
    assert aborts == [0, 1, 1]


async def test_a_result_of_another_shape_is_the_workers_fault(worker: MemoryTransport, client: AskingClient) -> None:
    worker.say({"id": "1", "result": {"text": 7}})
    with pytest.raises(ProtocolViolation, match="answered prompt in a wrong shape"):
        await read_turn(client, [])
    assert client.end_error is None


async def test_a_slow_reader_sees_every_event_of_a_turn_that_is_larger_than_its_buffer(
    worker: MemoryTransport, nursery: trio.Nursery
) -> None:
    total = 500
    async with running(worker, RpcSettings(subscriber_events=10)) as client:

        async def stream() -> None:
            request = await worker.next_request()
            for _ in range(total):
                worker.say(piece("x"))
            worker.say({"id": request["id"], "result": RESULT})

        nursery.start_soon(stream)
        async with RpcTurn(client, HELLO) as turn:
            seen = 0
            async for _ in turn:
                seen += 1
                if seen % 50 == 0:
                    await trio.sleep(1)
            assert seen == total


async def test_a_dead_client_opens_no_turn(worker: MemoryTransport, client: AskingClient) -> None:
    worker.exit(code=0)
    await client.wait_ended()
    with pytest.raises(WorkerExited) as caught:
        async with RpcTurn(client, HELLO):
            pass
    assert not caught.value.sent


async def test_a_turn_is_entered_once_and_only_with_async_with(worker: MemoryTransport, client: AskingClient) -> None:
    turn = RpcTurn(client, HELLO)
    with pytest.raises(UsageError, match="async with"):
        await anext(turn)
    worker.say({"id": "1", "result": RESULT})
    async with turn:
        await turn.wait()
    with pytest.raises(PoolError, match="only once"):
        await turn.__aenter__()
