"""A real pool whose callers leave at any moment, and many of them among workers of every kind: nothing is lost."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from errors import PoolError
from profiles import CapabilityProfile
from tests.acceptance.hostile_pool import (
    HASTY_RPC,
    QUICK_PINGS,
    TIME_LIMIT,
    HostilePool,
    counted_children,
    hostile_pool,
    profile_of,
    until_suspended,
)

pytestmark = [pytest.mark.process, pytest.mark.timeout(TIME_LIMIT + 10)]


class AtStep(trio.abc.Instrument):
    """Does something once, when a task has made so many steps."""

    def __init__(self, task: trio.lowlevel.Task, steps: int, action: Callable[[], None]) -> None:
        self._task = task
        self._left = steps
        self._action = action

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._left -= 1
            if self._left == 0:
                self._action()


async def is_cancelled_after(steps: int, world: HostilePool, session: str, profile: CapabilityProfile) -> bool:
    """Whether a caller that is cancelled at that step has not come to its end before."""
    with trio.CancelScope() as scope:
        instrument = AtStep(trio.lowlevel.current_task(), steps, scope.cancel)
        trio.lowlevel.add_instrument(instrument)
        try:
            await world.say(session, profile, f"step {steps}")
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return scope.cancelled_caught


@pytest.mark.parametrize("sessions", ["one session", "a session each"])
async def test_a_caller_cancelled_at_any_step_holds_nothing_afterwards(tmp_path: Path, sessions: str) -> None:
    """From the request over the reset, the grant and the turn to the release."""
    profile = profile_of(tmp_path)
    async with hostile_pool(tmp_path, max=1) as world:
        await world.say("s", profile, "warm")
        steps, session = 0, "s"
        cancelled = True
        while cancelled:
            steps += 1
            session = "s" if sessions == "one session" else f"s{steps}"
            cancelled = await is_cancelled_after(steps, world, session, profile)
            figures = world.pool.statistics()
            assert (figures.counters.active, figures.pool.waiting) == (0, 0)
        assert steps > 2
        assert (await world.say("s", profile, "end")).startswith("echo: end | before: warm")
        assert world.exits == {}


async def test_a_caller_cancelled_while_its_worker_starts_leaves_the_worker_to_the_next_one(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, "--behaviour", "late-ready=0.2")
    async with hostile_pool(tmp_path) as world:
        with trio.CancelScope() as scope:
            world.events.on("worker_spawned", scope.cancel)
            await world.say("s", profile, "never said")
        assert scope.cancelled_caught
        assert await world.say("t", profile, "one") == "echo: one"
        assert world.pool.statistics().counters.spawned == 1


async def test_a_caller_cancelled_in_a_turn_that_cannot_be_aborted_leaves_soon_and_that_worker_is_not_used_again(
    tmp_path: Path,
) -> None:
    profile = profile_of(tmp_path, "--behaviour", "suspend", "--skip", "1", "--once", str(tmp_path / "once"))
    async with hostile_pool(tmp_path, rpc=HASTY_RPC) as world:
        await world.say("s", profile, "one")
        async with trio.open_nursery() as callers:
            callers.start_soon(world.say, "s", profile, "lost")
            await until_suspended(world.pid_of("s"))
            callers.cancel_scope.cancel()
        assert callers.cancel_scope.cancelled_caught
        assert (await world.say("s", profile, "two")).startswith("echo: two | before: one")
        assert world.pool.statistics().counters.spawned == 2


BEHAVIOURS = {
    "good": (),
    "garbage": ("garbage",),
    "crash": ("exit-after-read",),
    "half": ("half-line-exit",),
    "parting": ("exit-after-answer",),
    "mute": ("close-stdout", "ignore-eof"),
    "deaf": ("ignore-pings",),
    "asleep": ("suspend",),
    "broken": ("crash-at-start",),
    "clingy": ("grandchild-holds-stdout", "ignore-eof", "ignore-sigterm"),
}
WORKERS = 4
PROMPTS = 3


async def test_workers_of_every_kind_side_by_side_never_exceed_max_and_every_request_ends_once(tmp_path: Path) -> None:
    """Processes are counted in /proc whenever the pool does anything; ten profiles share four places."""
    ended: Counter[tuple[str, int]] = Counter()
    failed: Counter[str] = Counter()
    wrong: list[str] = []
    counts: list[int] = []

    async def converse(session: str, kind: str, profile: CapabilityProfile) -> None:
        answered: list[str] = []
        for number in range(PROMPTS):
            try:
                answer = await world.say(session, profile, f"{session}-{number}", timeout=30)
            except PoolError:
                failed[kind] += 1
            else:
                said = answer.removeprefix("echo: ").replace(" | before:", ",").split(", ")
                wrong.extend(word for word in said if not word.startswith(f"{session}-"))
                wrong.extend(f"forgotten: {word}" for word in answered if word not in said)
                answered.append(f"{session}-{number}")
            ended[session, number] += 1

    def look() -> None:
        counts.append(len(counted_children(world.launcher.instance)))
        for life in world.lives:
            if {"ignore-pings", "suspend"} & {*life.profile.command}:
                world.hurry(life, ping_timeout=0.2, ping_failures=2)

    async with hostile_pool(tmp_path, max=WORKERS, **QUICK_PINGS) as world:
        world.events.on("*", look)
        async with trio.open_nursery() as callers:
            for kind, behaviours in BEHAVIOURS.items():
                flags = [word for behaviour in behaviours for word in ("--behaviour", behaviour)]
                profile = profile_of(tmp_path, *flags)
                for number in range(2):
                    callers.start_soon(converse, f"{kind}{number}", kind, profile)
    assert max(counts) == WORKERS
    assert ended == Counter({(f"{kind}{one}", i): 1 for kind in BEHAVIOURS for one in (0, 1) for i in range(PROMPTS)})
    assert not wrong
    assert failed["good"] == failed["garbage"] == failed["clingy"] == 0
    assert failed["crash"] == failed["half"] == failed["broken"] == 2 * PROMPTS
