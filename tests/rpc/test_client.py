import gc

import msgspec
import pytest
import trio
import trio.testing

from errors import ProtocolViolation, RequestTimeout, UsageError, WorkerRefused, WorkerStartFailed
from rpc.requests import RpcRequest
from rpc.settings import RpcSettings
from tests.rpc.clients import READY, AskingClient, Deferring, outcome_of, running
from tests.rpc.memory_transport import MemoryTransport
from wire.messages import StateResult
from wire.units import Seconds

pytestmark = pytest.mark.usefixtures("virtual_time")

# --- start ----------------------------------------------------------------------------------------------------------


async def test_a_worker_is_ready_when_it_says_so(worker: MemoryTransport, client: AskingClient) -> None:
    worker.say(READY)
    ready = await client.wait_ready(5)
    assert (ready.agent, ready.pid) == ("memory", 7)
    assert client.ready is ready
    assert await client.wait_ready(0) is ready


async def test_a_worker_that_exits_before_it_is_ready_failed_to_start_and_its_stderr_says_why(
    worker: MemoryTransport, client: AskingClient
) -> None:
    worker.stderr = "no API key"
    worker.exit(code=1)
    with pytest.raises(WorkerStartFailed, match="exited with code 1") as caught:
        await client.wait_ready(5)
    assert caught.value.stderr_tail == "no API key"
    assert caught.value.details["exit_code"] == 1


async def test_a_worker_that_is_never_ready_failed_to_start_when_the_time_is_over(
    worker: MemoryTransport, client: AskingClient
) -> None:
    worker.stderr = "still thinking"
    with pytest.raises(WorkerStartFailed, match="not ready after 5 s") as caught:
        await client.wait_ready(5)
    assert trio.current_time() == pytest.approx(5)
    assert caught.value.stderr_tail == "still thinking"


async def test_a_worker_of_another_protocol_is_refused(worker: MemoryTransport, client: AskingClient) -> None:
    worker.say({"event": "ready", "data": {"protocol": 2}})
    with pytest.raises(WorkerStartFailed, match="speaks protocol 2"):
        await client.wait_ready(5)
    assert isinstance(client.end_error, ProtocolViolation)


# --- requests -------------------------------------------------------------------------------------------------------


async def test_answers_find_their_requests_in_any_order(worker: MemoryTransport, client: AskingClient) -> None:
    first = client.ask("get_state")
    one = await worker.next_request()
    second = client.ask("get_messages")
    two = await worker.next_request()
    worker.say({"id": two["id"], "result": "second"}, {"id": one["id"], "result": "first"})
    assert await first.answer() == "first"
    assert await second.answer() == "second"
    assert client.statistics().pending == 0
    assert client.statistics().answers == 2


async def test_a_request_is_one_line_with_its_method_and_parameters(
    worker: MemoryTransport, client: AskingClient
) -> None:
    client.ask("steer", params={"text": "a\nb\u2028c"})
    assert await worker.next_request() == {"id": "1", "method": "steer", "params": {"text": "a\nb\u2028c"}}
    client.ask("ping")
    assert (await worker.next_request())["params"] == {}


async def test_an_answer_is_decoded_by_type_and_a_wrong_shape_is_the_workers_fault(
    worker: MemoryTransport, client: AskingClient, nursery: trio.Nursery
) -> None:
    async def answer(result: object) -> None:
        request = await worker.next_request()
        worker.say({"id": request["id"], "result": result})

    nursery.start_soon(answer, {"session_id": "s1"})
    assert (await client.request_as(StateResult, "get_state")).session_id == "s1"
    nursery.start_soon(answer, [1])
    with pytest.raises(ProtocolViolation, match="answered get_state in a wrong shape"):
        await client.request_as(StateResult, "get_state")
    assert client.end_error is None


async def test_an_error_answer_is_the_workers_refusal(worker: MemoryTransport, client: AskingClient) -> None:
    asked = client.ask("prompt")
    await worker.next_request()
    worker.say({"id": "1", "error": {"code": "busy", "message": "a run is in progress", "data": {"run": "r1"}}})
    error = await asked.error()
    assert isinstance(error, WorkerRefused)
    assert error.message == "a run is in progress"
    assert error.details["worker_code"] == "busy"
    assert error.details["data"] == {"run": "r1"}


async def test_a_request_that_is_not_answered_in_time_fails_and_its_late_answer_goes_to_nobody(
    worker: MemoryTransport, client: AskingClient
) -> None:
    slow = client.ask("get_state", timeout=2)
    request = await worker.next_request()
    error = await slow.error()
    assert isinstance(error, RequestTimeout)
    assert error.details["sent"] is True
    assert trio.current_time() == pytest.approx(2)

    other = client.ask("get_state")
    request_2 = await worker.next_request()
    worker.say({"id": request["id"], "result": "late"}, {"id": request_2["id"], "result": "mine"})
    assert await other.answer() == "mine"
    statistics = client.statistics()
    assert (statistics.late_answers, statistics.timeouts, statistics.answers) == (1, 1, 1)


async def test_every_request_has_its_own_deadline_also_one_that_comes_after_a_later_one(
    worker: MemoryTransport, client: AskingClient
) -> None:
    times: dict[float, float] = {}

    async def ask(limit: float) -> None:
        with pytest.raises(RequestTimeout):
            await client.request("get_state", timeout=limit)
        times[limit] = trio.current_time()

    async with trio.open_nursery() as asking:
        for limit in (9.0, 3.0, 6.0, 1.0):
            asking.start_soon(ask, limit)
    assert times == {limit: pytest.approx(limit) for limit in (1.0, 3.0, 6.0, 9.0)}


async def test_requests_have_the_deadline_of_the_settings_and_a_prompt_has_none(worker: MemoryTransport) -> None:
    async with running(worker, RpcSettings(request_timeout=Seconds(7))) as client:
        prompt = client.ask("prompt", params={"text": "hi"})
        assert isinstance(await outcome_of(client, "get_state"), RequestTimeout)
        assert trio.current_time() == pytest.approx(7)
        await trio.testing.wait_all_tasks_blocked()
        assert not prompt.done.is_set()
        prompt.scope.cancel()


async def test_a_cancelled_caller_is_forgotten_and_the_answer_dropped(
    worker: MemoryTransport, client: AskingClient
) -> None:
    asked = client.ask("get_state")
    request = await worker.next_request()
    asked.scope.cancel()
    await asked.done.wait()
    assert client.statistics().pending == 0
    worker.say({"id": request["id"], "result": 1})
    await trio.testing.wait_all_tasks_blocked()
    assert client.statistics().late_answers == 1


@pytest.mark.parametrize("bad", ["1", 1, None, "999", "", 10**30])
async def test_unknown_and_repeated_ids_are_counted_and_dropped(
    worker: MemoryTransport, client: AskingClient, bad: object
) -> None:
    asked = client.ask("get_state")
    await worker.next_request()
    worker.say({"id": "1", "result": "good"}, {"id": bad, "error": {"code": "parse_error"}})
    assert await asked.answer() == "good"
    assert client.statistics().late_answers == 1
    assert client.end_error is None


@pytest.mark.parametrize(
    "params", [[1], "text", 7, msgspec.Raw(b"null"), msgspec.Raw(b"{"), {"a": object()}, {"a": "\ud800"}]
)
async def test_parameters_that_are_no_json_object_never_reach_the_worker(
    worker: MemoryTransport, client: AskingClient, params: object
) -> None:
    with pytest.raises(UsageError, match="the parameters of steer"):
        await client.request("steer", params)
    assert b"steer" not in worker.written
    assert client.statistics().pending == 0


async def test_raw_parameters_of_several_lines_are_written_as_one(
    worker: MemoryTransport, client: AskingClient
) -> None:
    client.ask("steer", params=msgspec.Raw(b'{\n"text":\n"x"}'))
    assert (await worker.next_request())["params"] == {"text": "x"}
    client.ask("steer", params={"inner": msgspec.Raw(b"[\n1]")})
    assert (await worker.next_request())["params"] == {"inner": [1]}


async def test_settled_requests_do_not_pile_up_behind_their_deadlines(
    worker: MemoryTransport, client: AskingClient
) -> None:
    for _ in range(500):
        asked = client.ask("ping")
        request = await worker.next_request()
        worker.say({"id": request["id"], "result": None})
        assert await asked.answer() is None
    assert len(client._pending._deadlines) < 100


async def test_an_answer_is_not_kept_until_its_deadline(worker: MemoryTransport, client: AskingClient) -> None:
    worker.say({"id": "1", "result": "x" * 1000})
    await client.request("get_messages", timeout=1000)
    gc.collect()
    assert [thing for thing in gc.get_objects() if isinstance(thing, RpcRequest)] == []


async def test_a_dialects_own_answer_does_not_interrupt_a_run_of_bad_lines(worker: MemoryTransport) -> None:
    async with running(worker, RpcSettings(max_contaminated_lines=2), Deferring()) as client:
        worker.print(b"bad\nbad\n")
        await trio.testing.wait_all_tasks_blocked()
        await client.request("local")
        worker.print(b"bad\n")
        assert isinstance(await client.wait_ended(), ProtocolViolation)


async def test_a_worker_that_says_it_never_will_be_ready_is_believed_at_once(
    worker: MemoryTransport, client: AskingClient
) -> None:
    worker.say({"event": "start_failed", "data": {"message": "no model is configured"}})
    with pytest.raises(WorkerStartFailed, match="no model is configured"):
        await client.wait_ready(60)
    assert trio.current_time() < 60
