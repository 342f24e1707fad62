"""Forty conversations over four real workers of three profiles, while workers are killed and suspended at random."""

import os
import random
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import trio

from errors import PoolError
from pool import LocalLauncher, Pool, PoolSettings
from profiles import CapabilityProfile, ProfilesSettings, RoleSettings, build_profile
from wire.units import Seconds

pytestmark = pytest.mark.process

SESSIONS = 40
WORKERS = 4
ROUNDS = 3
SETTINGS = PoolSettings(
    min=0,
    max=WORKERS,
    waiting_capacity=SESSIONS,
    spawn_burst=64,
    spawn_rate=64.0,
    backoff_min=Seconds(0.01),
    backoff_max=Seconds(0.05),
    breaker_failures=1000,
    ping_interval_idle=Seconds(0.5),
    ping_interval_busy=Seconds(0.5),
    ping_timeout=Seconds(0.5),
    ping_failures=2,
)


def three_profiles(cwd: Path) -> list[CapabilityProfile]:
    settings = ProfilesSettings(
        roles={name: RoleSettings(append_system_prompt=f"You are {name}.") for name in ("red", "green", "blue")}
    )
    return [build_profile(settings, "main", role, str(cwd)) for role in ("red", "green", "blue")]


class Ledger:
    """What each session was told and what came of it, kept outside the pool."""

    def __init__(self) -> None:
        self.answered: dict[str, list[str]] = {}
        self.outcomes: Counter[str] = Counter()
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.forgotten: list[str] = []

    def check(self, session: str, nonce: str, text: str, every_nonce: set[str]) -> None:
        own = {word for word in every_nonce if word.startswith(f"nonce-{session}-")}
        self.foreign += [word for word in every_nonce - own if word in text]
        before = self.answered.setdefault(session, [])
        self.forgotten += [word for word in before if word not in text]
        before.append(nonce)


async def talk(pool: Pool, session: str, profile: CapabilityProfile, ledger: Ledger, nonces: set[str]) -> None:
    for number in range(ROUNDS):
        nonce = f"nonce-{session}-{number}-end"
        nonces.add(nonce)
        try:
            async with pool.lease(session, profile, timeout=90) as lease:
                result = await lease.prompt(f"RECALL DELAY=20 {nonce}").wait()
        except PoolError as exc:
            ledger.outcomes[nonce] += 1
            ledger.errors.append(f"{type(exc).__name__}: {exc}")
        else:
            ledger.outcomes[nonce] += 1
            ledger.check(session, nonce, result.text, nonces)


async def harass(pool: Pool, rng: random.Random, limit: int) -> None:
    """Kill or suspend a random live worker now and then; never more than ``limit`` times."""
    for _ in range(limit):
        await trio.sleep(rng.uniform(0.05, 0.25))
        pids = [worker.pid for worker in pool.statistics().workers if worker.pid and worker.state == "leased"]
        if not pids:
            continue
        pid = rng.choice(pids)
        with suppress(ProcessLookupError):  # it has died, and the pool is about to notice
            os.kill(pid, signal.SIGKILL if rng.random() < 0.6 else signal.SIGSTOP)


async def watch_the_limit(worker_marker: str, seen: list[int]) -> None:
    while True:
        children = [child for child in psutil.Process().children() if worker_marker in " ".join(_cmdline(child))]
        seen.append(len(children))
        await trio.sleep(0.02)


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


@pytest.mark.timeout(180)
async def test_every_request_ends_once_with_its_own_answer_while_workers_die_at_random(tmp_path: Path) -> None:
    rng = random.Random(20_26)
    ledger, nonces, seen = Ledger(), set[str](), list[int]()
    profiles = three_profiles(tmp_path)
    with trio.fail_after(170):
        async with LocalLauncher.temporary() as launcher, Pool(SETTINGS, launcher=launcher, rng=rng) as pool:
            async with trio.open_nursery() as around:
                around.start_soon(watch_the_limit, "--mode rpc", seen)
                async with trio.open_nursery() as callers:
                    callers.start_soon(harass, pool, rng, 25)
                    for number in range(SESSIONS):
                        callers.start_soon(talk, pool, f"s{number:02}", profiles[number % 3], ledger, nonces)
                around.cancel_scope.cancel()
            figures = pool.statistics()
    assert ledger.outcomes == Counter(dict.fromkeys(nonces, 1))
    assert not ledger.foreign
    assert not ledger.forgotten
    assert max(seen) <= WORKERS
    assert figures.counters.parked > 0
    assert len(ledger.errors) < len(nonces) / 2, ledger.errors
    assert not [child for child in psutil.Process().children() if "--mode rpc" in " ".join(_cmdline(child))]
