"""Handing a call to a warm worker and taking its answer, beside the process pools that Python programs usually take.

All have two workers and are given the least there is to do: theirs call ``abs``, ours takes the warm worker of a
session and sends it a ``ping``, which a bare loop answers, as a bare loop calls the function in all others. In turns,
so that all see the same machine. What of ours is the choice of the worker shows beside calls to one that is held.
"""

import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import anyio
import anyio.to_process
import loky  # type: ignore[import-untyped]  # it has no types
import trio
import trio_parallel  # type: ignore[import-untyped]  # it has no types

from benchmarks import stream_worker
from benchmarks.harness import Result, median, result
from benchmarks.programs import on_one_cpu
from benchmarks.promises import Promise
from pool import LocalLauncher, Pool, PoolSettings
from profiles import AgentSettings, CapabilityProfile, ProfilesSettings, build_profile

_WORKERS = 2
_ROUNDS = 20
_CALLS = 50
_OURS = "pool"
_HELD = "pool, worker held"
_OTHERS = ("anyio.to_process", "trio-parallel", "loky", "concurrent.futures")
_judge = partial(result, promise=Promise.DISPATCH)
_WORKER = [sys.executable, "-P", str(Path(stream_worker.__file__))]


class _Figures(NamedTuple):
    microseconds: float
    """Of a call when nothing else goes on."""
    rate: float
    """Calls a second when there are always two."""


def run() -> list[Result]:
    free = trio.run(_measure)
    with on_one_cpu():
        pinned = trio.run(_measure)
    held = (pinned[_HELD].microseconds, "us worker held")
    name = "a call, one CPU, p50, beside the worker held all the time"
    return [
        *_calls("a call, free CPUs, p50", free),
        *_calls("a call, one CPU, p50", pinned),
        _judge(name, pinned[_OURS].microseconds, "us", beside=held),
        *_rates(free),
    ]


def _calls(name: str, figures: Mapping[str, _Figures]) -> list[Result]:
    ours, others = figures[_OURS].microseconds, {other: figures[other].microseconds for other in _OTHERS}
    return [
        _judge(f"{name}, beside {other}", ours, "us", beside=(theirs, f"us {other}"), ratio_at_most=1.0)
        for other, theirs in others.items()
    ]


def _rates(figures: Mapping[str, _Figures]) -> list[Result]:
    ours, others = figures[_OURS].rate, {other: figures[other].rate for other in _OTHERS}
    return [
        _judge(f"calls, two at a time, beside {other}", ours, "/s", beside=(theirs, f"/s {other}"), ratio_at_least=1.0)
        for other, theirs in others.items()
    ]


async def _measure() -> dict[str, _Figures]:
    profile = build_profile(ProfilesSettings(agents={"main": AgentSettings(command=_WORKER)}), "main", "default", "/")
    with _executor(ProcessPoolExecutor(_WORKERS)) as futures, _executor(loky.ProcessPoolExecutor(_WORKERS)) as lokys:
        async with _ours(profile) as ours, _held(profile) as held:
            pools: dict[str, _Pool] = {
                _OURS: ours,
                _HELD: held,
                **dict(zip(_OTHERS, (_anyio(), _trio_parallel(), lokys, futures), strict=True)),
            }
            return await _take_turns(pools)


async def _take_turns(pools: Mapping[str, "_Pool"]) -> dict[str, _Figures]:
    """Each a few calls at a time; what the first turn takes to start workers is not counted."""
    singles: dict[str, list[float]] = {name: [] for name in pools}
    rates: dict[str, list[float]] = {name: [] for name in pools}
    for _ in range(_ROUNDS + 1):
        for name, pool in pools.items():
            for _ in range(_CALLS):
                singles[name].append(await _timed(pool.one) * 1e6)
            rates[name].append(_WORKERS * _CALLS / await _timed(pool.two_at_a_time))
    return {name: _Figures(median(singles[name][_CALLS:]), median(rates[name][1:])) for name in pools}


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    begin = time.perf_counter()
    await work()
    return time.perf_counter() - begin


# --- the pools --------------------------------------------------------------------------------------------------------


class _Pool(Protocol):
    async def one(self) -> None:
        """A call and its answer."""

    async def two_at_a_time(self) -> None:
        """Many calls, of which two wait for their answers at any time."""


class _Awaited:
    """One whose calls are awaited; they are given the number of the task that makes them."""

    def __init__(self, call: Callable[[int], Awaitable[object]]) -> None:
        self._call = call

    async def one(self) -> None:
        await self._call(0)

    async def two_at_a_time(self) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(_WORKERS):
                nursery.start_soon(self._go_on, number)

    async def _go_on(self, number: int) -> None:
        for _ in range(_CALLS):
            await self._call(number)


class _Blocking:
    """One whose calls give futures; they are waited for without the event loop, which would only cost time."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def one(self) -> None:
        self._executor.submit(abs, 0).result()

    async def two_at_a_time(self) -> None:
        waiting: deque[Future[int]] = deque()
        for number in range(_WORKERS * _CALLS):
            if len(waiting) == _WORKERS:
                waiting.popleft().result()
            waiting.append(self._executor.submit(abs, number))
        for future in waiting:
            future.result()


@contextmanager
def _executor(executor: Executor) -> Iterator[_Blocking]:
    """Its processes begin here, before there are threads of others."""
    with executor:
        executor.submit(abs, 0).result()
        yield _Blocking(executor)


@asynccontextmanager
async def _our_pool() -> AsyncIterator[Pool]:
    async with (
        LocalLauncher.temporary() as launcher,
        Pool(PoolSettings(min=0, max=_WORKERS), launcher=launcher) as pool,
    ):
        yield pool


@asynccontextmanager
async def _ours(profile: CapabilityProfile) -> AsyncIterator[_Awaited]:
    """A session for each worker, which is warm and stays with it."""
    async with _our_pool() as pool:
        for number in range(_WORKERS):
            await pool.release(await pool.acquire(f"s{number}", profile))

        async def call(number: int) -> None:
            lease = pool.acquire_nowait(f"s{number}", profile)
            try:
                await lease.request("ping")
            finally:
                pool.release_now(lease)

        yield _Awaited(call)


@asynccontextmanager
async def _held(profile: CapabilityProfile) -> AsyncIterator[_Awaited]:
    """The same without taking the worker for each call, and giving it back."""
    async with _our_pool() as pool, AsyncExitStack() as stack:
        leases = [await stack.enter_async_context(pool.lease(f"s{number}", profile)) for number in range(_WORKERS)]
        yield _Awaited(lambda number: leases[number].request("ping"))


def _anyio() -> _Awaited:
    limiter = anyio.CapacityLimiter(_WORKERS)
    return _Awaited(lambda number: anyio.to_process.run_sync(abs, number, limiter=limiter))


def _trio_parallel() -> _Awaited:
    limiter = trio.CapacityLimiter(_WORKERS)
    return _Awaited(lambda number: trio_parallel.run_sync(abs, number, limiter=limiter))
