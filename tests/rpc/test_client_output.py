import math
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import PoolError, ProtocolViolation, RequestTimeout, UsageError, WorkerExited
from rpc.dialect import Step
from rpc.native import NativeDialect
from rpc.settings import RpcSettings
from rpc.transport import ExitStatus
from tests.rpc.clients import READY, AskingClient, Deferring, make_client, outcome_of, running
from tests.rpc.memory_transport import MemoryTransport
from wire.units import ByteCount

pytestmark = pytest.mark.usefixtures("virtual_time")

# --- hostile output -------------------------------------------------------------------------------------------------


async def test_contamination_is_counted_and_passed_over(worker: MemoryTransport, client: AskingClient) -> None:
    asked = client.ask("get_state")
    await worker.next_request()
    worker.print(b'npm WARN deprecated\n\xff\xfe\n{"neither":1}\n[]\n{"id":"1","result":1}\n')
    assert await asked.answer() == 1
    assert client.statistics().invalid_lines == 4
    assert client.invalid_lines.samples == [b"npm WARN deprecated", b"\xff\xfe", b'{"neither":1}', b"[]"]


async def test_of_contamination_the_last_few_lines_are_kept_and_cut(
    worker: MemoryTransport, client: AskingClient
) -> None:
    worker.print(b"".join(b"%d %s\n" % (number, b"x" * 5000) for number in range(20)))
    await trio.testing.wait_all_tasks_blocked()
    assert client.statistics().invalid_lines == 20
    assert client.invalid_lines.samples == [(b"%d " % number).ljust(512, b"x") for number in range(12, 20)]


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


async def test_a_line_over_the_limit_ends_the_client_after_what_came_before_it(worker: MemoryTransport) -> None:
    async with running(worker, RpcSettings(max_line_bytes=ByteCount(100))) as client:
        asked = client.ask("get_state")
        await worker.next_request()
        pending = client.ask("get_messages")
        await worker.next_request()
        worker.print(b'{"id":"1","result":1}\n' + b"x" * 200)
        assert await asked.answer() == 1
        error = await pending.error()
        assert isinstance(error, ProtocolViolation)
        assert "over the limit of 100" in str(error)


async def test_a_fault_in_the_dialect_ends_its_worker_and_stays_attached(worker: MemoryTransport) -> None:
    class Broken(NativeDialect):
        def receive(self, block: bytes, now: float) -> Step:  # noqa: ARG002 - the contract's
            raise KeyError(block)

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
            return seen, (type(ended), statistics.invalid_lines, statistics.late_answers, statistics.answers)

    assert trio.run(drive, places) == trio.run(drive, [])


# --- a dialect of another kind --------------------------------------------------------------------------------------


async def test_a_dialect_speaks_first_and_at_its_own_times(worker: MemoryTransport) -> None:
    async with running(worker, dialect=Deferring()):
        await trio.sleep(4)
        assert worker.written == b"hello\n"
        await trio.sleep(100)
        assert worker.written == b"hello\n" + b"hello again\n" * 3


async def test_what_a_dialect_answers_itself_is_an_answer() -> None:
    async with running(MemoryTransport(), dialect=Deferring()) as client:
        assert bytes(await client.request("local")) == b'"at once"'
        with pytest.raises(UsageError):
            await client.request("refused")
        assert client.statistics().pending == 0


async def test_a_request_that_the_dialect_holds_back_is_unsent_until_it_may_have_been_sent(
    worker: MemoryTransport,
) -> None:
    async with running(worker, dialect=Deferring()) as client:
        one, two = client.submit("prompt"), client.submit("prompt")
        assert not one.sent
        worker.print(b"go\n")
        await trio.testing.wait_all_tasks_blocked()
        three = client.submit("prompt")
        assert [one.sent, two.sent, three.sent] == [True, True, False]
        worker.print(b"1\n")
        assert bytes(await one.wait()) == b"1"


async def test_the_dialect_is_told_whom_to_forget() -> None:
    dialect = Deferring()
    async with running(MemoryTransport(), dialect=dialect) as client:
        assert isinstance(await outcome_of(client, "get_state", timeout=1), RequestTimeout)
        assert dialect.forgotten == ["1"]


async def test_an_exit_of_unknown_kind_is_still_an_exit() -> None:
    assert str(ExitStatus()) == "ended"
    assert math.isinf(make_client(MemoryTransport())._deadline_of("prompt", ...))
