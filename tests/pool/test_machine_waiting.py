"""Who waits, who is refused, and whose hold counts, seen from the machine."""

import pytest

from errors import AcquireTimeout, PoolSaturated, UsageError
from pool import stimuli
from pool.stimuli import Action, Reject, Reset, WorkerHold
from tests.pool.world import World, make_profile

A = make_profile("a")
B = make_profile("b")


def kinds(happened: list[Action]) -> list[type]:
    return [type(action) for action in happened]


def states(world: World) -> dict[str, str]:
    return {worker.id: worker.state for worker in world.machine.snapshot(world.now).workers}


# --- the waiting list's bounds ---------------------------------------------------------------------------------------


def test_a_full_list_refuses_with_a_hint_when_to_come_again_and_the_pools_figures() -> None:
    world = World(max=1, waiting_capacity=2)
    world.held("s")
    world.acquire("one")
    world.acquire("two")
    refused = world.acquire("three")
    error = world.errors[refused]
    assert isinstance(error, PoolSaturated)
    assert error.retry_after is not None
    assert error.retry_after > 0
    assert "total=1 idle=0 leased=1 starting=0 stopping=0 waiting=2 max=1" in str(error)
    assert error.details["figures"]["waiting"] == 2


def test_a_full_list_makes_room_for_a_higher_priority_by_pushing_out_the_newest_of_the_lowest() -> None:
    world = World(max=1, waiting_capacity=3)
    world.held("s")
    old_low, new_low, middle = (world.acquire(f"x{p}", priority=p // 10) for p in (30, 31, 50))
    high = world.acquire("high", priority=6)
    assert isinstance(world.errors[new_low], PoolSaturated)
    assert set(world.open_requests) == {old_low, middle, high}


def test_a_gateways_runs_do_not_count_against_the_capacity() -> None:
    world = World(max=1, waiting_capacity=1)
    world.held("s")
    for number in range(5):
        world.acquire(f"run{number}", bounded=False)
    assert world.acquire("direct") in world.open_requests
    assert isinstance(world.errors[world.acquire("second")], PoolSaturated)


def test_a_full_list_does_not_refuse_what_can_be_served_at_once() -> None:
    world = World(max=2, waiting_capacity=0)
    world.tell(stimuli.SetPrewarm(((A, 2),)))
    world.run_until_settled()
    for session in ("one", "two", "three"):
        request = world.acquire(session, A)
        world.run_until_settled()
        assert request in world.holds
        world.release(request)


def test_a_full_list_takes_a_request_that_lets_another_one_go_on() -> None:
    world = World(max=2, waiting_capacity=1)
    world.release(world.held("quiet"))
    first = world.acquire("first")
    assert len(world.workers) == 2
    second = world.acquire("second")
    assert world.workers["w1"].resetting == ("first", None)
    world.run_until_settled()
    assert {first, second} == set(world.holds)


def test_a_waiter_ends_by_its_deadline_and_the_machine_asks_to_be_woken_for_it() -> None:
    world = World(max=1)
    world.held("s")
    world.acquire("late", timeout=7.5)
    assert world.machine.next_wakeup() == world.now + 7.5
    happened = world.pass_time(8.0)
    (reject,) = happened
    assert isinstance(reject, Reject)
    assert isinstance(reject.error, AcquireTimeout)
    assert "waiting=1 max=1" in str(reject.error)
    assert world.machine.snapshot(world.now).counters.expired == 1


def test_without_a_deadline_a_direct_acquire_waits_for_waiting_timeout() -> None:
    world = World(max=1, waiting_timeout=12.0)
    world.held("s")
    request = world.acquire("late")
    world.pass_time(11.9)
    assert request in world.open_requests
    world.pass_time(0.1)
    assert isinstance(world.errors[request], AcquireTimeout)


def test_a_waiter_past_its_deadline_is_not_granted_even_if_the_tick_is_late() -> None:
    world = World(max=1)
    first = world.held("s")
    late = world.acquire("late", timeout=1.0)
    world.now += 1.5
    world.release(first)
    assert isinstance(world.errors[late], AcquireTimeout)


def test_a_waiter_may_expire_while_its_worker_is_being_prepared_and_the_binding_stays() -> None:
    world = World()
    request = world.acquire("s", timeout=1.0)
    world.ready("w1")
    world.pass_time(1.0)
    assert isinstance(world.errors[request], AcquireTimeout)
    assert world.reset_done("w1") == []
    assert states(world) == {"w1": "idle"}
    assert world.acquire("s") in world.holds


def test_a_deadline_that_has_passed_already_is_refused_unless_a_worker_is_at_hand() -> None:
    world = World()
    late = world.acquire("s", timeout=0.0)
    assert isinstance(world.errors[late], AcquireTimeout)
    assert not world.workers


# --- holds -----------------------------------------------------------------------------------------------------------


def test_every_grant_has_a_higher_generation_and_a_stale_hold_is_refused() -> None:
    world = World()
    first = world.held("s")
    hold = world.holds[first]
    world.release(first)
    second = world.acquire("s")
    assert world.holds[second].generation > hold.generation
    for stale in (hold, WorkerHold(second, "s", "w1", hold.generation), WorkerHold("nobody", "s", "w1", 1)):
        with pytest.raises(UsageError, match="hold"):
            world.tell(stimuli.Release(stale))
    assert states(world) == {"w1": "leased"}
    world.release(second)


def test_a_request_id_in_use_is_refused_without_harm() -> None:
    world = World(max=1)
    held = world.held("s")
    waiting = world.acquire("t")
    for request in (held, waiting):
        with pytest.raises(UsageError, match="in use"):
            world.machine.handle(stimuli.Acquire(request=request, session="u", profile=A), world.now)
    world.machine.validate()
    world.release(held)
    world.run_until_settled()
    assert waiting in world.holds


def test_cancelling_a_granted_request_gives_the_hold_back() -> None:
    world = World(max=1)
    first = world.held("s")
    second = world.acquire("t")
    assert kinds(world.cancel(first)) == [Reset]
    world.reset_done("w1")
    assert second in world.holds
    counters = world.machine.snapshot(world.now).counters
    assert (sum(counters.grants.values()), counters.releases, counters.active) == (2, 1, 1)


def test_cancelling_an_unknown_request_does_nothing() -> None:
    assert World().tell(stimuli.Cancel("nobody")) == []


def test_what_was_due_is_not_lost_when_the_stimulus_makes_no_sense() -> None:
    world = World(max=1)
    world.held("s")
    late = world.acquire("late", timeout=1.0)
    world.now += 2.0
    with pytest.raises(UsageError):
        world.tell(stimuli.StopWorker("w99"))
    assert world.machine.next_wakeup() is not None
    world.pass_time(0.0)
    assert isinstance(world.errors[late], AcquireTimeout)


def test_the_session_is_warm_exactly_while_an_acquire_would_be_granted_at_once() -> None:
    world = World()
    assert not world.machine.is_warm("s", A)
    request = world.acquire("s")
    assert not world.machine.is_warm("s", A)
    world.run_until_settled()
    world.release(request)
    assert world.machine.is_warm("s", A)
    assert not world.machine.is_warm("s", B)
    assert not world.machine.is_warm("s", make_profile("a", model="large"))
    world.tell(stimuli.Pause())
    assert not world.machine.is_warm("s", A)


def test_a_reset_that_was_made_for_another_session_grants_nobody_the_worker() -> None:
    world = World()
    request = world.acquire("s", A)
    world.ready("w1")
    with pytest.raises(UsageError, match="not being reset for session 't'"):
        world.tell(stimuli.WorkerResetDone("w1", "t", "t.jsonl"))
    assert request in world.open_requests
    world.reset_done("w1")
    assert request in world.holds
    assert world.machine.transcript_of("s") == "s.jsonl"
