"""The pool with real workers of the bundled agent: acquire with its reset, rebind, spawn to first ping, idle CPU."""

import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import trio

from benchmarks.harness import Result, best_of, median, result
from benchmarks.promises import Promise
from pool import LocalLauncher, Pool, PoolSettings
from pool.stimuli import ForgetSession
from profiles import CapabilityProfile, ProfilesSettings, build_profile
from wire.messages import StateResult

_AGENT = (sys.executable, "-P", "-m", "agent", "--mode", "rpc", "--no-session")
_SAMPLES = 300
_IDLE_SECONDS = 3.0


def run() -> list[Result]:
    profile = build_profile(ProfilesSettings(), "main", "default", "/")
    return [*trio.run(_acquire_idle, profile), *trio.run(_rebind, profile), *_first_ping(), *trio.run(_idle, profile)]


# --- acquire and rebind ---------------------------------------------------------------------------------------------


async def _acquire_idle(profile: CapabilityProfile) -> list[Result]:
    """Every session is new and takes a worker that is idle, warm, unbound and of exactly its profile."""
    taken: list[float] = []
    bare: list[float] = []
    made: list[float] = []
    async with LocalLauncher.temporary() as launcher, Pool(PoolSettings(min=0, max=1), launcher=launcher) as pool:
        for number in range(_SAMPLES):
            started = time.perf_counter()
            async with pool.lease(f"s{number}", profile) as lease:
                taken.append((time.perf_counter() - started) * 1e6)
                bare.append(await _two_round_trips(lease.request))
                made.append(_make_file_beside(msgspec.json.decode(await lease.request("get_state"), type=StateResult)))
            pool.submit(ForgetSession(f"s{number}"))
        assert pool.statistics().workers[0].session is None  # not in between: it would cool the caches
    return [
        _beside_bare(Promise.ACQUIRE_IDLE, taken[1:], bare[1:], at_most=3.0),
        result(
            "p50, beside making a file where it makes the transcript",
            median(taken[1:]),
            "us",
            promise=Promise.ACQUIRE_IDLE,
            baseline=median(made),
            baseline_name="us one file made",
        ),
    ]


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


def _make_file_beside(state: StateResult) -> float:
    path = Path(state.session_file or "").with_suffix(".bare")
    started = time.perf_counter()
    path.touch(mode=0o600, exist_ok=False)
    return (time.perf_counter() - started) * 1e6


async def _two_round_trips(request: Callable[[str], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await request("ping")
    await request("ping")
    return (time.perf_counter() - started) * 1e6


def _beside_bare(promise: Promise, taken: list[float], bare: list[float], *, at_most: float) -> Result:
    return result(
        "p50",
        median(taken),
        "us",
        promise=promise,
        baseline=median(bare),
        baseline_name="us two bare round trips",
        ratio_at_most=at_most,
    )


# --- spawn ----------------------------------------------------------------------------------------------------------


def _first_ping() -> list[Result]:
    def ping() -> float:
        started = time.perf_counter()
        with subprocess.Popen(_AGENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path("/")) as agent:
            assert agent.stdin is not None
            assert agent.stdout is not None
            agent.stdin.write(b'{"id":"1","method":"ping"}\n')
            agent.stdin.flush()
            while b'"id":"1"' not in agent.stdout.readline():
                pass
            taken = time.perf_counter() - started
            agent.stdin.close()
        return taken

    def nothing() -> float:
        started = time.perf_counter()
        subprocess.run((sys.executable, "-c", "pass"), check=True)
        return time.perf_counter() - started

    samples = [ping() for _ in range(15)]
    return [
        result(
            "p50",
            median(samples) * 1e3,
            "ms",
            promise=Promise.FIRST_PING,
            baseline=best_of(10, nothing) * 1e3,
            baseline_name="ms python -c pass",
            at_most=150.0,
        )
    ]


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
    return [result("idle supervisor", share, "% CPU", baseline=bare, baseline_name="% bare trio", at_most=0.5)]
