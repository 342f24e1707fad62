"""The pool with real workers of the bundled agent: acquire with its reset; rebind; idle CPU."""

import time
from collections.abc import Awaitable, Callable

import trio

from benchmarks.harness import Result, median, result
from benchmarks.promises import Promise
from pool import LocalLauncher, Pool, PoolSettings
from pool.stimuli import ForgetSession
from profiles import CapabilityProfile, ProfilesSettings, build_profile

_SAMPLES = 300
_IDLE_SECONDS = 3.0


def run() -> list[Result]:
    profile = build_profile(ProfilesSettings(), "main", "default", "/")
    return [*trio.run(_acquire_idle, profile), *trio.run(_rebind, profile), *trio.run(_idle, profile)]


# --- acquire and rebind ---------------------------------------------------------------------------------------------


async def _acquire_idle(profile: CapabilityProfile) -> list[Result]:
    """Every session is new and takes a worker that is idle, warm, unbound and of exactly its profile."""
    taken: list[float] = []
    bare: list[float] = []
    async with LocalLauncher.temporary() as launcher, Pool(PoolSettings(min=0, max=1), launcher=launcher) as pool:
        for number in range(_SAMPLES):
            started = time.perf_counter()
            async with pool.lease(f"s{number}", profile) as lease:
                taken.append((time.perf_counter() - started) * 1e6)
                bare.append(await _two_round_trips(lease.request))
            pool.submit(ForgetSession(f"s{number}"))
        assert pool.statistics().workers[0].session is None  # not in between: it would cool the caches
    return [_beside_bare(Promise.ACQUIRE_IDLE, taken[1:], bare[1:], at_most=2.0)]


async def _rebind(profile: CapabilityProfile) -> list[Result]:
    """Two sessions share one worker: each acquire parks the other and resumes its own transcript."""
    taken: list[float] = []
    bare: list[float] = []
    async with LocalLauncher.temporary() as launcher, Pool(PoolSettings(min=0, max=1), launcher=launcher) as pool:
        for session in ("a", "b"):
            async with pool.lease(session, profile) as lease:
                await lease.prompt("hello").wait()
        for number in range(_SAMPLES):
            started = time.perf_counter()
            async with pool.lease("ab"[number % 2], profile) as lease:
                taken.append((time.perf_counter() - started) * 1e6)
                bare.append(await _two_round_trips(lease.request))
    return [_beside_bare(Promise.REBIND, taken, bare, at_most=4.0)]


async def _two_round_trips(request: Callable[[str], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await request("ping")
    await request("ping")
    return (time.perf_counter() - started) * 1e6


def _beside_bare(promise: Promise, taken: list[float], bare: list[float], *, at_most: float) -> Result:
    beside = (median(bare), "us two bare round trips")
    return result("p50", median(taken), "us", promise=promise, beside=beside, ratio_at_most=at_most)


# --- idle -----------------------------------------------------------------------------------------------------------


async def _idle(profile: CapabilityProfile) -> list[Result]:
    """CPU of the supervisor's process while four workers and their sessions want nothing."""
    async with LocalLauncher.temporary() as launcher, Pool(PoolSettings(min=0, max=4), launcher=launcher) as pool:
        for session in "abcd":
            async with pool.lease(session, profile) as lease:
                await lease.prompt("hello").wait()
        before = time.process_time()
        await trio.sleep(_IDLE_SECONDS)
        share = (time.process_time() - before) / _IDLE_SECONDS * 100
    before = time.process_time()
    await trio.sleep(_IDLE_SECONDS)
    bare = (time.process_time() - before) / _IDLE_SECONDS * 100
    return [result("idle supervisor", share, "% CPU", beside=(bare, "% bare trio"), at_most=0.5)]
