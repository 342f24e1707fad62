"""What becomes of workers that nobody uses, and of the sessions that they still have; all times on paper."""

import msgspec

from pool import stimuli
from pool.stimuli import Reset, Stop, StopReason
from profiles.profile import SoftArgs
from tests.pool.world import World, make_profile

A = make_profile("a")
B = make_profile("b")


def session_states(world: World) -> dict[str, str]:
    return {session.key: session.state for session in world.machine.snapshot(world.now).sessions}


def test_an_idle_worker_above_min_is_stopped_after_idle_timeout_and_min_stays() -> None:
    world = World(max=3, min=1, idle_timeout=300.0)
    world.tell(stimuli.SetPrewarm(((A, 3),)))
    world.run_until_settled()
    world.tell(stimuli.SetPrewarm(()))
    assert world.pass_time(299.0) == []
    assert world.pass_time(1.0) == [Stop("w1", StopReason.IDLE), Stop("w2", StopReason.IDLE)]
    world.run_until_settled()
    assert world.pass_time(10_000.0) == []
    assert world.machine.next_wakeup() is None


def test_a_worker_in_use_does_not_count_as_idle() -> None:
    world = World(max=3, min=0, idle_timeout=10.0)
    request = world.held("s")
    assert world.pass_time(100.0) == []
    world.release(request)
    assert world.pass_time(9.0) == []
    assert world.pass_time(1.0) == [Stop("w1", StopReason.IDLE)], "the session that it is bound to wants nothing"
    world.run_until_settled()
    assert session_states(world) == {"s": "parked"}


def test_idle_workers_are_stopped_from_the_one_used_longest_ago_whether_or_not_they_have_a_session() -> None:
    world = World(max=3, min=1, idle_timeout=10.0)
    for session in ("one", "two", "three"):
        world.release(world.held(session))
        world.pass_time(1.0)
    world.forget("one")
    assert world.pass_time(7.0) == [], "a conversation that ends is a use of its worker"
    assert world.pass_time(1.0) == [Stop("w2", StopReason.IDLE)]
    assert world.pass_time(100.0) == [Stop("w3", StopReason.IDLE)]


def test_a_session_is_parked_so_long_after_its_last_turn_and_its_worker_is_stopped_then_if_it_may_not_stay() -> None:
    world = World(min=1, idle_timeout=300.0, session_idle_timeout=1800.0)
    world.release(world.held("s"))
    assert world.pass_time(1799.0) == []
    assert session_states(world) == {"s": "active"}
    assert world.pass_time(1.0) == []
    assert session_states(world) == {"s": "parking"}, "the idle worker still has the transcript open"
    assert world.tell(stimuli.SettingsChanged(world.machine._state.settings.__class__(min=0))) == [
        Stop("w1", StopReason.IDLE)
    ], "its time was over long ago"


def test_a_session_that_is_never_parked_keeps_its_worker() -> None:
    world = World(min=0, idle_timeout=10.0, session_idle_timeout=0.0)
    world.release(world.held("s"))
    assert world.pass_time(1e6) == []
    assert world.machine.next_wakeup() is None


def test_a_session_timeout_of_zero_means_never() -> None:
    world = World(session_idle_timeout=0.0)
    world.release(world.held("s"))
    world.pass_time(1e6)
    assert session_states(world) == {"s": "active"}


def test_a_parked_session_goes_back_to_its_idle_worker_by_a_reset() -> None:
    world = World(max=3, session_idle_timeout=10.0)
    world.release(world.held("s"))
    world.pass_time(10.0)
    world.tell(stimuli.SetPrewarm(((A, 2),)))
    world.run_until_settled()
    request = world.acquire("s")
    assert world.workers["w1"].resetting == ("s", "s.jsonl")
    world.reset_done("w1")
    assert world.worker_of(request) == "w1"


def test_an_idle_worker_that_still_has_the_transcript_open_makes_way_if_it_does_not_fit() -> None:
    world = World(max=3, session_idle_timeout=10.0)
    world.release(world.held("s", A))
    world.pass_time(10.0)
    request = world.acquire("s", B)
    assert world.workers["w1"].stopping
    world.run_until_settled()
    assert world.worker_of(request) == "w2"


def test_the_default_model_of_another_provider_cannot_be_asked_for_so_the_worker_is_replaced() -> None:
    world = World()
    default = make_profile("a", model=None)
    other = msgspec.structs.replace(default, soft=SoftArgs("other", None, "low"), signature="of the other provider")
    world.release(world.held("s", default))
    request = world.acquire("s", other)
    assert world.workers["w1"].stopping
    world.run_until_settled()
    assert world.worker_of(request) == "w2"


def test_an_idle_worker_whose_default_was_changed_does_not_take_its_session_back() -> None:
    world = World(max=3, session_idle_timeout=10.0)
    default = make_profile("a", model=None)
    world.release(world.held("s", default))
    world.release(world.held("s", make_profile("a", model="large")))
    world.pass_time(10.0)
    request = world.acquire("s", default)
    assert world.workers["w1"].stopping
    world.run_until_settled()
    assert world.worker_of(request) == "w2"


def test_a_parked_session_whose_old_worker_serves_another_waits_for_that_reset() -> None:
    world = World(max=2, session_idle_timeout=10.0)
    world.release(world.held("s"))
    world.pass_time(10.0)
    world.acquire("other")
    assert world.workers["w1"].resetting == ("other", None)
    request = world.acquire("s")
    assert len(world.workers) == 1
    world.reset_done("w1")
    assert len(world.workers) == 2
    world.run_until_settled()
    assert request in world.holds


def test_a_worker_that_has_waited_for_a_request_is_fresh_no_more() -> None:
    """What it has read at its start may have changed since."""
    world = World()
    world.tell(stimuli.SetPrewarm(((A, 1),)))
    assert world.ready("w1") == []
    world.pass_time(1)
    assert Reset("w1", "s", None) in world.tell(stimuli.Acquire(request="r1", session="s", profile=A))
