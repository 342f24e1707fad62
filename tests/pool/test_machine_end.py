"""Pausing, draining and closing: what is granted no more, what ends at once, what may come to its end."""

import pytest

from errors import AcquireTimeout, PoolClosed, UsageError
from pool import stimuli
from pool.stimuli import Stop, StopReason
from tests.pool.world import World, make_profile

A = make_profile("a")
B = make_profile("b")

# --- pausing ---------------------------------------------------------------------------------------------------------


def test_a_paused_pool_grants_nothing_and_forgets_nobody() -> None:
    world = World(max=2)
    held = world.held("held")
    world.release(world.held("quiet"))
    world.acquire("prepared")
    world.tell(stimuli.Pause())
    world.tell(stimuli.Pause())
    for session in ("held", "quiet", "new"):
        world.acquire(session)
    world.acquire("new")
    short = world.acquire("short", timeout=5.0)
    world.run_until_settled()
    assert list(world.holds) == [held]
    world.machine.validate()
    world.release(held)
    world.pass_time(6.0)
    assert isinstance(world.errors[short], AcquireTimeout)
    world.tell(stimuli.Resume())
    world.run_until_settled()
    for request in list(world.holds):
        world.release(request)
        world.run_until_settled()
    while world.holds:
        world.release(next(iter(world.holds)))
        world.run_until_settled()
    assert not world.open_requests
    assert set(world.errors) == {short}
    world.machine.validate()


# --- draining and closing --------------------------------------------------------------------------------------------


def test_draining_refuses_waiters_stops_idle_workers_and_lets_holds_end() -> None:
    world = World(max=3)
    held = world.held("held")
    world.release(world.held("quiet"))
    world.held("busy")
    world.set_busy("busy")
    waiting = world.acquire("late", B)
    happened = world.tell(stimuli.Drain())
    assert isinstance(world.errors[waiting], PoolClosed)
    assert [action for action in happened if isinstance(action, Stop)] == []
    assert world.workers["w2"].stopping, "it was on its way out already, to make room"
    assert world.release(held) == [Stop("w1", StopReason.DRAINED)]
    assert isinstance(world.errors[world.acquire("more")], PoolClosed)
    world.release(next(iter(world.holds)))
    assert world.set_quiet("busy") == [Stop("w3", StopReason.DRAINED)]
    world.run_until_settled()
    assert not world.workers


def test_draining_stops_starting_workers_and_those_being_prepared_when_they_are_done() -> None:
    world = World(max=2)
    world.acquire("one")
    world.ready("w1")
    world.acquire("two")
    happened = world.tell(stimuli.Drain())
    assert [action for action in happened if isinstance(action, Stop)] == [Stop("w2", StopReason.DRAINED)]
    assert world.reset_done("w1") == [Stop("w1", StopReason.DRAINED)]
    assert len(world.errors) == 2


def test_draining_lets_turns_end_and_waits_for_no_command_in_the_background() -> None:
    world = World(max=2)
    world.release(world.held("resting"))
    held = world.held("held")
    for worker in ("w1", "w2"):
        world.tell(stimuli.BackgroundCount(worker, 1))
    happened = world.tell(stimuli.Drain())
    assert [action for action in happened if isinstance(action, Stop)] == [Stop("w1", StopReason.DRAINED)]
    assert world.release(held) == [Stop("w2", StopReason.DRAINED)]


def test_closing_stops_every_worker_held_or_not() -> None:
    world = World(max=3)
    request = world.held("held")
    world.release(world.held("quiet"))
    world.acquire("starting")
    happened = world.tell(stimuli.Close())
    assert [action.reason for action in happened if isinstance(action, Stop)] == [StopReason.CLOSED] * 3
    assert isinstance(next(iter(world.errors.values())), PoolClosed)
    world.run_until_settled()
    assert not world.workers
    world.release(request)
    assert world.tell(stimuli.Close()) == []
    for refused in (stimuli.Pause(), stimuli.Resume()):
        with pytest.raises(UsageError, match="closed"):
            world.tell(refused)
    assert world.machine.next_wakeup() is None
