import gc
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from errors import (
    PoolError,
    ProtocolViolation,
    RequestTimeout,
    UsageError,
    WorkerError,
    WorkerExited,
    WorkerRefused,
    WorkerStartFailed,
)
from rpc.client import RpcClient
from rpc.dialect import NOTHING, Dialect, Step
from rpc.exchange import Exchange
from rpc.native import NativeDialect
from rpc.settings import RpcSettings
from rpc.transport import ExitStatus
from tests.rpc.memory_transport import MemoryTransport
from wire.messages import Message, StateResult
from wire.units import ByteCount, Seconds

READY = {"event": "ready", "data": {"protocol": 1, "agent": "memory", "pid": 7}}


def make_client(
    worker: MemoryTransport, rpc_settings: RpcSettings | None = None, dialect: Dialect | None = None
) -> RpcClient:
    return RpcClient(worker, dialect or NativeDialect(), rpc_settings or RpcSettings(), name="w1")


@asynccontextmanager
async def running(
    worker: MemoryTransport, rpc_settings: RpcSettings | None = None, dialect: Dialect | None = None
) -> AsyncIterator[RpcClient]:
    client = make_client(worker, rpc_settings, dialect)
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        yield client
        nursery.cancel_scope.cancel()


async def outcome_of(client: RpcClient, method: str, **options: Any) -> PoolError | msgspec.Raw:
    try:
        return await client.request(method, **options)
    except PoolError as exc:
        return exc


class Asked:
    """A request in a task of its own."""

    def __init__(self, nursery: trio.Nursery, client: RpcClient, method: str, **options: Any) -> None:
        self.done = trio.Event()
        self.outcome: PoolError | msgspec.Raw | None = None
        self.scope = trio.CancelScope()
        nursery.start_soon(self._ask, client, method, options)

    async def _ask(self, client: RpcClient, method: str, options: dict[str, Any]) -> None:
        with self.scope:
            self.outcome = await outcome_of(client, method, **options)
        self.done.set()

    async def error(self) -> PoolError:
        await self.done.wait()
        assert isinstance(self.outcome, PoolError)
        return self.outcome

    async def answer(self) -> Any:
        await self.done.wait()
        assert isinstance(self.outcome, msgspec.Raw), self.outcome
        return msgspec.json.decode(self.outcome)


# --- start ----------------------------------------------------------------------------------------------------------


async def test_a_worker_is_ready_when_it_says_so(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        worker.say(READY)
        ready = await client.wait_ready(5)
        assert (ready.agent, ready.pid) == ("memory", 7)
        assert client.ready is ready
        assert await client.wait_ready(0) is ready


async def test_a_worker_that_exits_before_it_is_ready_failed_to_start_and_its_stderr_says_why(
    autojump_clock: MockClock,
) -> None:
    worker = MemoryTransport()
    worker.stderr = "no API key"
    async with running(worker) as client:
        worker.exit(code=1)
        with pytest.raises(WorkerStartFailed, match="exited with code 1") as caught:
            await client.wait_ready(5)
        assert caught.value.stderr_tail == "no API key"
        assert caught.value.details["exit_code"] == 1


async def test_a_worker_that_is_never_ready_failed_to_start_when_the_time_is_over(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    worker.stderr = "still thinking"
    async with running(worker) as client:
        with pytest.raises(WorkerStartFailed, match="not ready after 5 s") as caught:
            await client.wait_ready(5)
        assert trio.current_time() == pytest.approx(5)
        assert caught.value.stderr_tail == "still thinking"


async def test_a_worker_of_another_protocol_is_refused(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        worker.say({"event": "ready", "data": {"protocol": 2}})
        with pytest.raises(WorkerStartFailed, match="speaks protocol 2"):
            await client.wait_ready(5)
        assert isinstance(client.ended, ProtocolViolation)


# --- requests -------------------------------------------------------------------------------------------------------


async def test_answers_find_their_requests_in_any_order(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        first = Asked(nursery, client, "get_state")
        one = await worker.next_request()
        second = Asked(nursery, client, "get_messages")
        two = await worker.next_request()
        worker.say({"id": two["id"], "result": "second"}, {"id": one["id"], "result": "first"})
        assert await first.answer() == "first"
        assert await second.answer() == "second"
        assert client.statistics().pending == 0
        assert client.statistics().answers == 2


async def test_a_request_is_one_line_with_its_method_and_parameters(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        Asked(nursery, client, "steer", params={"text": "a\nb\u2028c"})
        assert await worker.next_request() == {"id": "1", "method": "steer", "params": {"text": "a\nb\u2028c"}}
        Asked(nursery, client, "ping")
        assert (await worker.next_request())["params"] == {}
        nursery.cancel_scope.cancel()


async def test_an_answer_is_decoded_by_type_and_a_wrong_shape_is_the_workers_fault(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport()

    async def answer(result: object) -> None:
        request = await worker.next_request()
        worker.say({"id": request["id"], "result": result})

    async with running(worker) as client:
        nursery.start_soon(answer, {"session_id": "s1"})
        assert (await client.request_as(StateResult, "get_state")).session_id == "s1"
        nursery.start_soon(answer, [1])
        with pytest.raises(ProtocolViolation, match="answered get_state in a wrong shape"):
            await client.request_as(StateResult, "get_state")
        assert client.ended is None


async def test_an_error_answer_is_the_workers_refusal(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        asked = Asked(nursery, client, "prompt")
        await worker.next_request()
        worker.say({"id": "1", "error": {"code": "busy", "message": "a run is in progress", "data": {"run": "r1"}}})
        error = await asked.error()
        assert isinstance(error, WorkerRefused)
        assert error.message == "a run is in progress"
        assert error.details["worker_code"] == "busy"
        assert error.details["data"] == {"run": "r1"}


async def test_a_request_that_is_not_answered_in_time_fails_and_its_late_answer_goes_to_nobody(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        slow = Asked(nursery, client, "get_state", timeout=2)
        request = await worker.next_request()
        error = await slow.error()
        assert isinstance(error, RequestTimeout)
        assert error.details["sent"] is True
        assert trio.current_time() == pytest.approx(2)

        other = Asked(nursery, client, "get_state")
        request_2 = await worker.next_request()
        worker.say({"id": request["id"], "result": "late"}, {"id": request_2["id"], "result": "mine"})
        assert await other.answer() == "mine"
        statistics = client.statistics()
        assert (statistics.late_answers, statistics.timeouts, statistics.answers) == (1, 1, 1)


async def test_every_request_has_its_own_deadline_also_one_that_comes_after_a_later_one(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        times: dict[float, float] = {}

        async def ask(limit: float) -> None:
            with pytest.raises(RequestTimeout):
                await client.request("get_state", timeout=limit)
            times[limit] = trio.current_time()

        async with trio.open_nursery() as asking:
            for limit in (9.0, 3.0, 6.0, 1.0):
                asking.start_soon(ask, limit)
        assert times == {limit: pytest.approx(limit) for limit in (1.0, 3.0, 6.0, 9.0)}


async def test_requests_have_the_deadline_of_the_settings_and_a_prompt_has_none(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport()
    async with running(worker, RpcSettings(request_timeout=Seconds(7))) as client:
        prompt = Asked(nursery, client, "prompt", params={"text": "hi"})
        assert isinstance(await outcome_of(client, "get_state"), RequestTimeout)
        assert trio.current_time() == pytest.approx(7)
        await trio.testing.wait_all_tasks_blocked()
        assert not prompt.done.is_set()
        prompt.scope.cancel()


async def test_a_cancelled_caller_is_forgotten_and_the_answer_dropped(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        asked = Asked(nursery, client, "get_state")
        request = await worker.next_request()
        asked.scope.cancel()
        await asked.done.wait()
        assert client.statistics().pending == 0
        worker.say({"id": request["id"], "result": 1})
        await trio.testing.wait_all_tasks_blocked()
        assert client.statistics().late_answers == 1


@pytest.mark.parametrize("bad", ["1", 1, None, "999", "", 10**30])
async def test_unknown_and_repeated_ids_are_counted_and_dropped(
    autojump_clock: MockClock, nursery: trio.Nursery, bad: object
) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        asked = Asked(nursery, client, "get_state")
        await worker.next_request()
        worker.say({"id": "1", "result": "good"}, {"id": bad, "error": {"code": "parse_error"}})
        assert await asked.answer() == "good"
        assert client.statistics().late_answers == 1
        assert client.ended is None


@pytest.mark.parametrize(
    "params", [[1], "text", 7, msgspec.Raw(b"null"), msgspec.Raw(b"{"), {"a": object()}, {"a": "\ud800"}]
)
async def test_parameters_that_are_no_json_object_never_reach_the_worker(
    autojump_clock: MockClock, params: object
) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        with pytest.raises(UsageError, match="the parameters of steer"):
            await client.request("steer", params)
        assert worker.written == b""
        assert client.statistics().pending == 0


async def test_raw_parameters_of_several_lines_are_written_as_one(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        Asked(nursery, client, "steer", params=msgspec.Raw(b'{\n"text":\n"x"}'))
        assert (await worker.next_request())["params"] == {"text": "x"}
        Asked(nursery, client, "steer", params={"inner": msgspec.Raw(b"[\n1]")})
        assert (await worker.next_request())["params"] == {"inner": [1]}
        nursery.cancel_scope.cancel()


async def test_settled_requests_do_not_pile_up_behind_their_deadlines(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        for _ in range(500):
            asked = Asked(nursery, client, "ping")
            request = await worker.next_request()
            worker.say({"id": request["id"], "result": None})
            assert await asked.answer() is None
        assert len(client._pending._deadlines) < 100


async def test_an_answer_is_not_kept_until_its_deadline(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        worker.say({"id": "1", "result": "x" * 1000})
        await client.request("get_messages", timeout=1000)
        gc.collect()
        assert [thing for thing in gc.get_objects() if isinstance(thing, Exchange)] == []


async def test_a_dialects_own_answer_does_not_interrupt_a_run_of_bad_lines(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    async with running(worker, RpcSettings(max_contaminated_lines=2), Deferring()) as client:
        worker.print(b"bad\nbad\n")
        await trio.testing.wait_all_tasks_blocked()
        await client.request("local")
        worker.print(b"bad\n")
        assert isinstance(await client.wait_ended(), ProtocolViolation)


# --- writing --------------------------------------------------------------------------------------------------------


async def test_partial_writes_are_finished_before_the_next_line_begins(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport(stdin_capacity=10)
    async with running(worker) as client:
        texts = ["x" * 50, "y" * 30, "z"]
        for text in texts:
            Asked(nursery, client, "steer", params={"text": text})
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


async def test_a_line_cannot_overtake_one_that_was_begun_when_room_comes_up_in_between(
    autojump_clock: MockClock,
) -> None:
    worker = MemoryTransport(stdin_capacity=10)
    async with running(worker) as client:
        client.submit("steer", {"text": "first"})
        worker.read_input(10)  # room again, but the writer task has not run yet
        client.submit("ping")
        for _ in range(20):
            await trio.testing.wait_all_tasks_blocked()
            worker.read_input(10)
        assert [(await worker.next_request())["method"] for _ in range(2)] == ["steer", "ping"]


async def test_a_worker_that_does_not_read_stalls_callers_until_it_reads(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport(stdin_capacity=0)
    async with running(worker, RpcSettings(send_queue_bytes=ByteCount(100))) as client:
        Asked(nursery, client, "steer", params={"text": "x" * 200})  # one line may stand above the limit
        await trio.testing.wait_all_tasks_blocked()
        late = Asked(nursery, client, "ping", timeout=60)
        await trio.testing.wait_all_tasks_blocked()
        assert client.statistics().requests == 1
        worker._capacity = 1000
        worker.read_input(0)
        assert (await worker.next_request())["method"] == "steer"
        assert (await worker.next_request())["method"] == "ping"
        assert not late.done.is_set()
        nursery.cancel_scope.cancel()


async def test_waiting_for_room_counts_against_the_deadline_and_nothing_was_sent(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport(stdin_capacity=0)
    async with running(worker, RpcSettings(send_queue_bytes=ByteCount(10))) as client:
        first = Asked(nursery, client, "ping", timeout=60)
        await trio.testing.wait_all_tasks_blocked()
        error = await outcome_of(client, "ping", timeout=2)
        assert isinstance(error, RequestTimeout)
        assert error.details["sent"] is False
        assert trio.current_time() == pytest.approx(2)
        first.scope.cancel()


async def test_whoever_waits_for_room_learns_that_the_worker_is_gone(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport(stdin_capacity=0)
    async with running(worker, RpcSettings(send_queue_bytes=ByteCount(10))) as client:
        first = Asked(nursery, client, "ping")
        await trio.testing.wait_all_tasks_blocked()
        second = Asked(nursery, client, "ping")
        await trio.testing.wait_all_tasks_blocked()
        worker.exit(code=0)
        for asked in (first, second):
            error = await asked.error()
            assert isinstance(error, WorkerExited)
            assert not error.sent


# --- the end --------------------------------------------------------------------------------------------------------


async def test_the_last_answer_wins_its_race_against_the_exit(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        asked = Asked(nursery, client, "get_state")
        events = client.subscribe()
        await worker.next_request()
        worker.print(b'{"event":"run_start"}\n{"id":"1",')
        worker.print(b'"result":"in time"}\n')
        worker.exit(code=0)
        assert await asked.answer() == "in time"
        assert [event.event async for event in events] == ["run_start"]
        assert isinstance(events.ended, WorkerExited)


async def test_an_exit_fails_everything_pending_once_and_tells_what_was_sent(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport(stdin_capacity=10)
    worker.stderr = "Segmentation fault"
    async with running(worker) as client:
        sent = Asked(nursery, client, "get_state")
        await trio.testing.wait_all_tasks_blocked()
        unsent = Asked(nursery, client, "get_messages")
        await trio.testing.wait_all_tasks_blocked()
        worker.exit(signal=11)
        errors = [await sent.error(), await unsent.error()]
        assert all(isinstance(error, WorkerExited) for error in errors)
        assert [error.details["sent"] for error in errors] == [True, False]
        assert "killed by signal 11" in str(errors[0])
        assert errors[0].stderr_tail == "Segmentation fault"
        assert errors[0] is not errors[1]
        assert await client.wait_ended() is client.ended
        with pytest.raises(WorkerExited) as caught:
            await client.request("ping")
        assert not caught.value.sent
        assert not client.is_running


async def test_half_a_line_at_the_end_is_contamination(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        worker.print(b'{"event":"a"}\n{"event":"half')
        worker.exit(code=0)
        await client.wait_ended()
        assert client.statistics().contaminated == 1
        assert client.contamination() == [b'{"event":"half']


async def test_a_closed_stdout_is_followed_by_an_exit_or_breaks_the_protocol(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport()
    async with running(worker, RpcSettings(eof_grace=Seconds(3))) as client:
        asked = Asked(nursery, client, "get_state")
        await worker.next_request()
        worker.close_output()
        error = await asked.error()
        assert isinstance(error, ProtocolViolation)
        assert "closed its stdout but lives on" in str(error)
        assert trio.current_time() == pytest.approx(3)


async def test_an_exit_after_a_closed_stdout_is_an_exit(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        worker.close_output()
        await trio.testing.wait_all_tasks_blocked()
        worker.exit(code=3)
        assert isinstance(await client.wait_ended(), WorkerExited)
        assert trio.current_time() == 0


async def test_a_worker_with_a_closed_stdin_is_heard_out_until_the_grace_is_over(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport()
    async with running(worker, RpcSettings(eof_grace=Seconds(1), term_grace=Seconds(2))) as client:
        first = Asked(nursery, client, "get_state")
        await worker.next_request()
        worker.close_input()
        second = Asked(nursery, client, "get_state")
        await trio.testing.wait_all_tasks_blocked()
        worker.say({"id": "1", "result": "last words"})
        assert await first.answer() == "last words"
        error = await second.error()
        assert isinstance(error, ProtocolViolation)
        assert "closed its stdin but lives on" in str(error)
        assert error.details["sent"] is False
        assert trio.current_time() == pytest.approx(5)


async def test_an_endless_writer_behind_a_dead_worker_cannot_hold_up_the_end(autojump_clock: MockClock) -> None:
    class Grandchild(MemoryTransport):
        def receive_nowait(self) -> bytes | None:
            self.reads += 1
            return b'{"event":"noise"}\n' * 1000

    worker = Grandchild()
    async with running(worker) as client:
        worker.exit(code=0)
        assert isinstance(await client.wait_ended(), WorkerExited)
        assert worker.reads < 100


async def test_closing_the_client_fails_what_is_pending(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        asked = Asked(nursery, client, "get_state")
        await worker.next_request()
    error = await asked.error()
    assert type(error) is WorkerError
    assert "was closed" in str(error)
    assert client.subscribe().ended is client.ended


# --- hostile output -------------------------------------------------------------------------------------------------


async def test_contamination_is_counted_and_passed_over(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        asked = Asked(nursery, client, "get_state")
        await worker.next_request()
        worker.print(b'npm WARN deprecated\n\xff\xfe\n{"neither":1}\n[]\n{"id":"1","result":1}\n')
        assert await asked.answer() == 1
        assert client.statistics().contaminated == 4
        assert client.contamination() == [b"npm WARN deprecated", b"\xff\xfe", b'{"neither":1}', b"[]"]


@given(st.lists(st.integers(0, 7 * 10), max_size=12), st.integers(0, 3), st.integers(0, 9))
def test_too_many_bad_lines_in_a_row_end_the_client_however_the_stream_is_cut(
    places: list[int], before: int, run: int
) -> None:
    limit = 5
    stream = b'{"event":"a"}\n' + b"bad\n" * before + b'{"event":"b"}\n' + b"bad\n" * run + b'{"event":"c"}\n'
    bounds = sorted({0, len(stream), *(place % len(stream) for place in places)})

    async def drive() -> PoolError:
        worker = MemoryTransport()
        async with running(worker, RpcSettings(max_contaminated_lines=limit)) as client:
            for start, end in pairwise(bounds):
                worker.print(stream[start:end])
            await trio.testing.wait_all_tasks_blocked()
            worker.exit(code=0)
            return await client.wait_ended()

    error = trio.run(drive)
    assert isinstance(error, ProtocolViolation if run > limit else WorkerExited)


async def test_a_line_over_the_limit_ends_the_client_after_what_came_before_it(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport()
    async with running(worker, RpcSettings(max_line_bytes=ByteCount(100))) as client:
        asked = Asked(nursery, client, "get_state")
        await worker.next_request()
        pending = Asked(nursery, client, "get_messages")
        await worker.next_request()
        worker.print(b'{"id":"1","result":1}\n' + b"x" * 200)
        assert await asked.answer() == 1
        error = await pending.error()
        assert isinstance(error, ProtocolViolation)
        assert "over the limit of 100" in str(error)


async def test_a_fault_in_the_dialect_ends_its_worker_and_stays_attached(autojump_clock: MockClock) -> None:
    class Broken(NativeDialect):
        def receive(self, block: bytes, now: float) -> Step:  # noqa: ARG002 - the contract's
            raise KeyError(block)

    worker = MemoryTransport()
    async with running(worker, dialect=Broken()) as client:
        worker.say(READY)
        error = await client.wait_ended()
        assert isinstance(error, ProtocolViolation)
        assert isinstance(error.__cause__, KeyError)


STREAM_PIECES = st.lists(
    st.binary(max_size=30)
    | st.sampled_from(
        [
            b'{"event":"a","data":1}\n',
            b'{"id":"1","result":1}\n',
            b'{"id":null,"error":{"code":"x"}}\n',
            b'{"event":"background","data":{"running":-1}}\n',
            b'{"event":"background","data":"x"}\n',
            b'{"event":"permission_required","data":[]}\n',
            b'{"event":"ready","data":null}\n',
            b'{"event":"done"}\n',
            b"\n",
            b'{"event":"\\ud800"}\n',
        ]
    ),
    max_size=12,
)


@given(STREAM_PIECES, st.lists(st.integers(0), max_size=8))
@settings(deadline=None)
def test_whatever_a_worker_prints_its_messages_are_the_same_and_nothing_crashes(
    pieces: list[bytes], places: list[int]
) -> None:
    stream = b"".join(pieces)

    async def drive(cuts: list[int]) -> tuple[list[bytes], Any]:
        worker = MemoryTransport()
        bounds = sorted({0, len(stream), *(place % (len(stream) + 1) for place in cuts)})
        async with running(worker, RpcSettings(max_contaminated_lines=4)) as client:
            events = client.subscribe()
            exchange = client.submit("get_state")
            for start, end in pairwise(bounds):
                worker.print(stream[start:end])
            await trio.testing.wait_all_tasks_blocked()
            worker.exit(code=0)
            ended = await client.wait_ended()
            assert exchange.is_settled
            statistics = client.statistics()
            seen = [msgspec.json.encode(event) async for event in events]
            if isinstance(ended, ProtocolViolation):  # how far it was read depends on the cut
                return [], type(ended)
            return seen, (type(ended), statistics.contaminated, statistics.late_answers, statistics.answers)

    assert trio.run(drive, places) == trio.run(drive, [])


# --- events ---------------------------------------------------------------------------------------------------------


async def test_every_subscriber_gets_every_event_in_order_and_lists_of_its_own(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        with client.subscribe() as one, client.subscribe() as two:
            worker.say(*({"event": f"e{number}"} for number in range(5)))
            worker.say({"event": "last"})
            first = await one.take()
            assert first is not None
            first.clear()
            assert [event.event for event in await two.take() or []] == ["e0", "e1", "e2", "e3", "e4"]
            assert [event.event for event in await one.take() or []] == ["last"]
            assert client.statistics().events == 6


async def test_an_event_before_an_answer_is_delivered_before_it_and_one_after_it_after_it(
    autojump_clock: MockClock,
) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        with client.subscribe() as events:
            seen: list[int] = []
            client.submit("ping", on_settled=lambda: seen.append(events._events))
            worker.say({"event": "a"}, {"event": "b"}, {"id": "1", "result": 1}, {"event": "c"})
            assert [event.event for event in await events.take() or []] == ["a", "b"]
            assert [event.event for event in await events.take() or []] == ["c"]
            assert seen == [2]


async def test_reading_one_by_one_can_change_to_batches_without_losing_an_event(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        with client.subscribe() as events:
            worker.say({"event": "a"}, {"event": "b"}, {"event": "c"})
            worker.exit(code=0)
            assert (await anext(events)).event == "a"
            batches = [[event.event for event in batch] async for batch in events.batches()]
            assert batches == [["b", "c"]]


async def test_who_subscribes_before_the_client_runs_misses_nothing_and_who_comes_later_gets_the_rest(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport()
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


async def test_a_full_subscriber_holds_the_worker_back_and_memory_stays_bounded(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        with client.subscribe(max_events=10) as slow, client.subscribe():
            for number in range(100):
                worker.say({"event": "e", "data": number})
            await trio.testing.wait_all_tasks_blocked()
            assert worker.reads == 10
            assert client.statistics().backpressured
            numbers: list[int] = []
            while len(numbers) < 100:
                numbers += [msgspec.json.decode(event.data) for event in await slow.take() or []]
            assert numbers == list(range(100))
            assert not client.statistics().backpressured


async def test_bytes_bound_a_subscriber_as_well(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    async with running(worker, RpcSettings(subscriber_bytes=ByteCount(1000))) as client:
        with client.subscribe():
            for _ in range(10):
                worker.say({"event": "e", "data": "x" * 600})
            await trio.testing.wait_all_tasks_blocked()
            assert worker.reads == 2


async def test_a_subscriber_that_leaves_lets_the_worker_go_on(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        asked = Asked(nursery, client, "get_state")
        with client.subscribe(max_events=1):
            await worker.next_request()
            worker.say({"event": "a"})
            worker.say({"id": "1", "result": 1})
            await trio.testing.wait_all_tasks_blocked()
            assert not asked.done.is_set()
        assert await asked.answer() == 1


async def test_a_full_subscriber_does_not_hold_up_the_end(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        with client.subscribe(max_events=1) as events:
            asked = Asked(nursery, client, "get_state")
            await worker.next_request()
            worker.say({"event": "a"})
            worker.say({"event": "b"}, {"id": "1", "result": "still heard"})
            await trio.testing.wait_all_tasks_blocked()
            worker.exit(code=0)
            assert await asked.answer() == "still heard"
            assert [event.event async for event in events] == ["a", "b"]


async def test_a_cancelled_reader_loses_no_event(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        with client.subscribe() as events:
            with trio.move_on_after(1):
                await anext(events)
            worker.say({"event": "a"})
            assert (await anext(events)).event == "a"


async def test_closing_a_subscription_ends_whoever_reads_it(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        events = client.subscribe()
        seen = trio.Event()

        async def read() -> None:
            assert [event async for event in events] == []
            seen.set()

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        events.close()
        await seen.wait()
        assert events.ended is None


async def test_a_subscription_needs_room_for_one_event(autojump_clock: MockClock) -> None:
    with pytest.raises(UsageError, match="max_events is 0"):
        make_client(MemoryTransport()).subscribe(max_events=0)


async def test_the_client_knows_background_processes_runs_and_questions(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        told: list[int] = []
        client.on_background(told.append)
        call = {"id": "c1", "name": "bash"}
        worker.say({"event": "run_start"}, {"event": "background", "data": {"running": 2}})
        worker.say({"event": "permission_required", "data": {"call": call}})
        await trio.testing.wait_all_tasks_blocked()
        assert (client.is_running, client.background_running, client.awaits_person) == (True, 2, True)
        worker.say({"event": "permission_decided", "data": {"call_id": "c1"}}, {"event": "done"})
        worker.say({"event": "background", "data": {"running": 0}})
        await trio.testing.wait_all_tasks_blocked()
        assert (client.is_running, client.background_running, client.awaits_person) == (False, 0, False)
        assert told == [2, 0]


async def test_a_dialog_waits_for_a_person_until_it_is_answered(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    async with running(worker) as client:
        seen = []
        for question in ({"id": "u0", "method": "notify"}, {"id": "u1", "method": "confirm"}):
            worker.say({"event": "ui_request", "data": question})
            await trio.testing.wait_all_tasks_blocked()
            seen.append(client.awaits_person)
        client.submit("ui_respond", {"id": "u1", "confirmed": True})
        assert [*seen, client.awaits_person] == [False, True, False]


# --- a dialect of another kind --------------------------------------------------------------------------------------


class Deferring:
    """Asks a question when opened, holds requests back until the worker has said ``go``, repeats it every 5 s."""

    name = "deferring"
    is_running = False

    def __init__(self) -> None:
        self.held: list[bytes] = []
        self.forgotten: list[str] = []
        self.due: float | None = None

    def open(self, now: float) -> Step:
        self.due = now + 5
        return Step([], [b"hello\n"], [])

    def request(self, request_id: str, method: str, params: msgspec.Raw, now: float) -> Step:  # noqa: ARG002 - as above
        if method == "refused":
            raise UsageError("not in this dialect")
        if method == "local":
            return Step([Message(id=request_id, result=msgspec.Raw(b'"at once"'))], [], [])
        self.held.append(request_id.encode() + b"\n")
        return NOTHING

    def receive(self, block: bytes, now: float) -> Step:  # noqa: ARG002 - as above
        if block.startswith(b"bad"):
            return Step([], [], block.splitlines())
        if block == b"go\n":
            held, self.held = self.held, []
            return Step([], held, [])
        return Step([Message(id=block.decode().strip(), result=msgspec.Raw(b"1"))], [], [])

    def forget(self, request_id: str) -> None:
        self.forgotten.append(request_id)

    def next_deadline(self) -> float | None:
        return self.due

    def expire(self, now: float) -> Step:
        self.due = now + 5 if now < 12 else None
        return Step([], [b"hello again\n"], [])


async def test_a_dialect_speaks_first_and_at_its_own_times(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    async with running(worker, dialect=Deferring()):
        await trio.sleep(4)
        assert worker.written == b"hello\n"
        await trio.sleep(100)
        assert worker.written == b"hello\n" + b"hello again\n" * 3


async def test_what_a_dialect_answers_itself_is_an_answer(autojump_clock: MockClock) -> None:
    async with running(MemoryTransport(), dialect=Deferring()) as client:
        assert bytes(await client.request("local")) == b'"at once"'
        with pytest.raises(UsageError):
            await client.request("refused")
        assert client.statistics().pending == 0


async def test_a_request_that_the_dialect_holds_back_is_unsent_until_it_may_have_been_sent(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport()
    async with running(worker, dialect=Deferring()) as client:
        one, two = client.submit("prompt"), client.submit("prompt")
        assert not one.sent
        worker.print(b"go\n")
        await trio.testing.wait_all_tasks_blocked()
        three = client.submit("prompt")
        assert [one.sent, two.sent, three.sent] == [True, True, False]
        worker.print(b"1\n")
        assert bytes(await one.wait()) == b"1"


async def test_the_dialect_is_told_whom_to_forget(autojump_clock: MockClock) -> None:
    dialect = Deferring()
    async with running(MemoryTransport(), dialect=dialect) as client:
        assert isinstance(await outcome_of(client, "get_state", timeout=1), RequestTimeout)
        assert dialect.forgotten == ["1"]


def test_an_exit_of_unknown_kind_is_still_an_exit() -> None:
    assert str(ExitStatus()) == "ended"
    assert math.isinf(make_client(MemoryTransport())._deadline("prompt", ...))
