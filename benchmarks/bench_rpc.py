"""One worker's wire: a warm round trip, events per second, and what one very long line costs."""

import asyncio
import json
import os
import subprocess
import tempfile
import time
import tracemalloc
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from benchmarks.harness import Result, best_of, median, percentile, result, timed
from benchmarks.programs import ECHO, Program, on_one_cpu, program
from benchmarks.promises import Promise
from rpc.children import ChildRegistry
from rpc.client import RpcClient
from rpc.native import NativeDialect
from rpc.process import WorkerProcess
from rpc.settings import RpcSettings
from rpc.spawn import WorkerSpec
from rpc.subscription import WorkerSubscription
from wire.framing import LineFramer, decode_block
from wire.messages import Message

_PIECES = 400_000
_ROUNDS = 20
_TRIPS = 200
_SETTINGS = RpcSettings()
_BLOCKING, _ASYNCIO = "us blocking ping-pong", "us asyncio streams and json"


class _RoundTrips(NamedTuple):
    """Microseconds of each, every kind with a worker of its own."""

    blocking: list[float]
    asyncio: list[float]
    ours: list[float]


def run() -> list[Result]:
    return [*_round_trips(), *_streams(), *_long_lines()]


@asynccontextmanager
async def _client_of(
    *argv: str, cpu: int | None = None, first: Callable[[RpcClient], None] = lambda _: None
) -> AsyncIterator[RpcClient]:
    """``first`` is called before anything is read: a subscriber gets what comes after it subscribed."""
    spec = WorkerSpec(worker_id="bench", marker="bench:1", argv=argv, env=tuple(os.environ.items()), cwd="/")
    async with trio.open_nursery() as nursery:
        process = WorkerProcess.spawn(spec, ChildRegistry(), _SETTINGS)
        if cpu is not None:
            os.sched_setaffinity(process.pid, {cpu})
        nursery.start_soon(process.supervise)
        client = RpcClient(process, NativeDialect(), _SETTINGS, name="bench")
        first(client)
        await nursery.start(client.run)
        yield client
        nursery.cancel_scope.cancel()


# --- round trips ------------------------------------------------------------------------------------------------------


def _round_trips() -> list[Result]:
    with on_one_cpu() as cpus:
        free = _measure_round_trips(worker_cpu=cpus[-1])
        pinned = _measure_round_trips(worker_cpu=cpus[0])
    judge = partial(result, promise=Promise.ROUND_TRIP)
    usual, most = (median(free.blocking), _BLOCKING), (percentile(free.blocking, 0.99), _BLOCKING)
    peer, pinned_peer = (median(free.asyncio), _ASYNCIO), (median(pinned.asyncio), _ASYNCIO)
    above = median(pinned.ours) - median(pinned.blocking)
    return [
        judge("two CPUs, p50", median(free.ours), "us", beside=usual, ratio_at_most=2.0),
        judge("two CPUs, p50, beside asyncio", median(free.ours), "us", beside=peer, ratio_at_most=1.0),
        judge("two CPUs, p99", percentile(free.ours, 0.99), "us", beside=most),
        judge(
            "one CPU, p50 above the ping-pong's", above, "us", beside=(median(pinned.blocking), _BLOCKING), at_most=45.0
        ),
        judge("one CPU, p50, beside asyncio", median(pinned.ours), "us", beside=pinned_peer),
    ]


def _measure_round_trips(worker_cpu: int) -> _RoundTrips:
    with program(ECHO) as plain, _asyncio_program(worker_cpu) as streams:
        os.sched_setaffinity(plain.pid, {worker_cpu})
        plain.wait_for(b'{"event":"ready"')
        return trio.run(_take_turns, plain, streams, worker_cpu)


async def _take_turns(plain: Program, streams: Callable[[], list[float]], worker_cpu: int) -> _RoundTrips:
    """In turns, so that all see the same machine; the first one is not counted."""
    taken = _RoundTrips([], [], [])
    async with _client_of(*ECHO, cpu=worker_cpu) as client:
        await client.wait_ready(10)
        for _ in range(_ROUNDS):
            taken.blocking.extend(plain.ping_pong(_TRIPS))
            taken.asyncio.extend(streams())
            taken.ours.extend(await _requests(client))
    return _RoundTrips(*(times[_TRIPS:] for times in taken))


@contextmanager
def _asyncio_program(cpu: int) -> Iterator[Callable[[], list[float]]]:
    """Round trips by asyncio's streams and plain ``json``, with a worker of their own; the loop rests in between."""
    with asyncio.Runner() as runner:
        worker = runner.run(asyncio.create_subprocess_exec(*ECHO, stdin=PIPE, stdout=PIPE))
        os.sched_setaffinity(worker.pid, {cpu})
        assert worker.stdout is not None
        runner.run(worker.stdout.readline())  # that it is ready
        try:
            yield lambda: runner.run(_ask_by_streams(worker))
        finally:
            worker.kill()
            runner.run(worker.wait())


async def _ask_by_streams(worker: asyncio.subprocess.Process) -> list[float]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    times = []
    for number in range(_TRIPS):
        begin = time.perf_counter()
        worker.stdin.write(json.dumps({"id": str(number), "method": "ping", "params": {}}).encode() + b"\n")
        await worker.stdin.drain()
        json.loads(await worker.stdout.readline())
        times.append((time.perf_counter() - begin) * 1e6)
    return times


async def _requests(client: RpcClient) -> list[float]:
    times = []
    for _ in range(_TRIPS):
        begin = time.perf_counter()
        await client.request("ping")
        times.append((time.perf_counter() - begin) * 1e6)
    return times


# --- streams ----------------------------------------------------------------------------------------------------------


def _streams() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pieces.jsonl")
        path.write_bytes(b"".join(map(_piece, range(_PIECES))))
        cat = _PIECES / best_of(3, lambda: timed(lambda: _read_cat(path)))
        loads = _PIECES / timed(lambda: _load_lines(path))
        batches = _PIECES / best_of(3, lambda: trio.run(_consume, path, _in_batches))
        singly = _PIECES / best_of(3, lambda: trio.run(_consume, path, _one_by_one))
    judge, unread = partial(result, promise=Promise.EVENTS), (cat, "/s cat, unread")
    return [
        judge("in batches", batches, "/s", beside=unread, at_least=1_800_000),
        judge("one by one", singly, "/s", beside=unread, at_least=500_000),
        judge("in batches", batches, "/s", beside=(loads, "/s json.loads a line")),
    ]


def _piece(number: int) -> bytes:
    return b'{"event":"assistant_message","data":{"partial":"word ","run_id":"r1","seq":%d}}\n' % number


def _read_cat(path: Path) -> None:
    with subprocess.Popen(["/bin/cat", str(path)], stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdout is not None
        while os.read(child.stdout.fileno(), 65536):
            pass


def _load_lines(path: Path) -> None:
    with subprocess.Popen(["/bin/cat", str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for line in child.stdout:
            json.loads(line)


async def _consume(path: Path, count: Callable[[WorkerSubscription], Awaitable[int]]) -> float:
    opened: list[WorkerSubscription] = []
    begin = time.perf_counter()
    async with _client_of("/bin/cat", str(path), first=lambda client: opened.append(client.subscribe())):
        seen = await count(opened[0])
        took = time.perf_counter() - begin
    if seen != _PIECES:
        raise AssertionError(f"{seen} of {_PIECES} events arrived; {opened[0].end_error}")
    return took


async def _in_batches(events: WorkerSubscription) -> int:
    seen = 0
    async for batch in events.batches():
        seen += len(batch)
    return seen


async def _one_by_one(events: WorkerSubscription) -> int:
    seen = 0
    async for _ in events:
        seen += 1
    return seen


# --- one very long line -----------------------------------------------------------------------------------------------


def _long_lines() -> list[Result]:
    small, large = (best_of(5, partial(timed, partial(_read, _chunks(mib << 20)))) for mib in (1, 16))
    beside = (small * 1e3, "ms a line of 1 MiB")
    return [
        result("a line of 16 MiB, per MiB", large / 16 * 1e3, "ms", beside=beside, ratio_at_most=3.0),
        result("copies of a line of 16 MiB at the peak", _copies(16 << 20), "copies", at_most=3.0),
    ]


def _chunks(size: int) -> list[bytes]:
    line = b'{"event":"x","data":"' + b"\xc3\xa4" * (size // 2) + b'"}\n'
    return [line[start : start + 65536] for start in range(0, len(line), 65536)]


def _read(chunks: Iterable[bytes]) -> None:
    framer, decoder = LineFramer(), msgspec.json.Decoder(Message)
    for chunk in chunks:
        block = framer.feed_block(chunk)
        if block:
            assert len(decode_block(block, decoder).messages) == 1


def _copies(size: int) -> float:
    tracemalloc.start()
    chunks = _chunks(size)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    _read(chunks)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (peak - before) / size
