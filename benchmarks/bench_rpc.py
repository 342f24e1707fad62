"""One worker's wire: a warm round trip, events per second, and what one very long line costs."""

import json
import os
import subprocess
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

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
        base, ours = _measure_round_trips(worker_cpu=cpus[-1])
        pinned_base, pinned_ours = _measure_round_trips(worker_cpu=cpus[0])
    name = "us blocking ping-pong"
    judge = partial(result, promise=Promise.ROUND_TRIP)
    usual, most, pinned = (median(base), name), (percentile(base, 0.99), name), (median(pinned_base), name)
    above = median(pinned_ours) - median(pinned_base)
    return [
        judge("two CPUs, p50", median(ours), "us", beside=usual, ratio_at_most=2.0),
        judge("two CPUs, p99", percentile(ours, 0.99), "us", beside=most),
        judge("one CPU, p50 above the ping-pong's", above, "us", beside=pinned, at_most=60.0),
    ]


def _measure_round_trips(worker_cpu: int) -> tuple[list[float], list[float]]:
    """Microseconds of the blocking baseline and of the client, each with a worker of its own."""
    with program(ECHO) as plain:
        os.sched_setaffinity(plain.pid, {worker_cpu})
        plain.wait_for(b'{"event":"ready"')
        return trio.run(_take_turns, plain, worker_cpu)


async def _take_turns(plain: Program, worker_cpu: int) -> tuple[list[float], list[float]]:
    """In turns, so that both see the same machine."""
    base: list[float] = []
    ours: list[float] = []
    async with _client_of(*ECHO, cpu=worker_cpu) as client:
        await client.wait_ready(10)
        for _ in range(_ROUNDS):
            base += plain.ping_pong(_TRIPS)
            ours += await _requests(client)
    return base[_TRIPS:], ours[_TRIPS:]


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
