"""What becomes of workers whose profile the settings yield no more."""

from pool import stimuli
from pool.stimuli import ProfilesChanged, Spawn, Stop, StopReason
from tests.pool.world import World, make_profile

OLD = make_profile("a", model="old")
NEW = make_profile("a", model="new")
OTHER = make_profile("b")

CHANGED = ProfilesChanged(frozenset({NEW.signature, OTHER.signature}))
RETIRED = StopReason.RETIRED


def test_idle_workers_of_an_outdated_profile_stop_at_once_and_the_others_stay() -> None:
    world = World(max=4)
    world.tell(stimuli.SetPrewarm(((OLD, 2), (OTHER, 1))))
    world.run_until_settled()
    world.tell(stimuli.SetPrewarm(()))
    assert world.tell(CHANGED) == [Stop("w1", RETIRED), Stop("w2", RETIRED)]
    world.run_until_settled()
    assert list(world.workers) == ["w3"]


def test_the_worker_of_a_quiescent_session_stops_and_the_session_goes_on_elsewhere() -> None:
    world = World()
    world.release(world.held("s", OLD))
    assert world.tell(CHANGED) == [Stop("w1", RETIRED)]
    request = world.acquire("s", NEW)
    world.exit("w1")
    world.ready("w2")
    assert world.workers["w2"].resetting == ("s", "s.jsonl")
    world.run_until_settled()
    assert request in world.holds


def test_a_worker_in_use_finishes_its_turn_first() -> None:
    world = World()
    request = world.held("s", OLD)
    assert world.tell(CHANGED) == []
    assert world.release(request) == [Stop("w1", RETIRED)]
    assert world.exit("w1") == [], "nobody will ask for that kind again"


def test_a_session_with_output_to_deliver_or_processes_of_its_own_counts_as_in_use() -> None:
    world = World()
    world.release(world.held("s", OLD))
    world.set_busy("s")
    world.tell(stimuli.BackgroundCount("w1", 1))
    assert world.tell(CHANGED) == []
    assert world.set_quiet("s") == []
    world.workers["w1"].background = 0
    assert world.tell(stimuli.BackgroundCount("w1", 0)) == [Stop("w1", RETIRED)]


def test_a_worker_that_starts_for_nobody_is_stopped() -> None:
    world = World()
    world.tell(stimuli.SetPrewarm(((OLD, 1),)))
    assert world.tell(CHANGED) == [Stop("w1", RETIRED)]
    assert world.exit("w1") == [], "it is not kept warm any more"


def test_a_worker_that_starts_for_a_waiter_serves_it_and_goes() -> None:
    world = World()
    request = world.acquire("s", OLD)
    assert world.tell(CHANGED) == []
    world.run_until_settled()
    assert request in world.holds
    assert world.release(request) == [Stop("w1", RETIRED)]
    assert world.exit("w1") == []


def test_a_worker_whose_waiter_has_left_goes_as_soon_as_it_is_ready() -> None:
    world = World()
    request = world.acquire("s", OLD)
    world.tell(CHANGED)
    world.cancel(request)
    assert world.ready("w1") == [Stop("w1", RETIRED)]


def test_a_request_of_before_still_gets_a_worker_of_its_profile() -> None:
    world = World(max=1)
    first = world.held("s", OTHER)
    late = world.acquire("t", OLD)
    assert world.tell(CHANGED) == []
    world.release(first)
    world.run_until_settled()
    assert late in world.holds


def test_neither_target_nor_loss_brings_an_outdated_profile_back() -> None:
    world = World(max=2)
    world.tell(stimuli.SetPrewarm(((OLD, 1), (OTHER, 1))))
    world.run_until_settled()
    held = world.held("s", OLD)
    world.tell(CHANGED)
    world.exit(world.worker_of(held))
    world.release(held)
    world.pass_time(100.0)
    world.run_until_settled()
    assert [paper.profile for paper in world.workers.values()] == [OTHER]


def test_what_was_lost_before_the_change_is_not_started_again() -> None:
    world = World(max=2)
    world.release(world.held("s", OLD))
    world.tell(stimuli.Pause())
    world.exit("w1")
    world.tell(CHANGED)
    world.tell(stimuli.Resume())
    world.pass_time(100.0)
    assert world.workers == {}


def test_an_outdated_worker_is_not_replaced_by_one_of_its_kind() -> None:
    world = World(max=4, max_turns=1, max_age=50.0)
    request = world.held("s", OLD)
    world.tell(CHANGED)
    world.pass_time(100.0)
    world.tell(stimuli.RecycleWorker("w1"))
    assert world.release(request) == [Stop("w1", RETIRED)]
    assert len(world.spawn_times) == 1


def test_a_worker_that_waits_for_its_replacement_goes_with_it() -> None:
    world = World(max=2)
    world.tell(stimuli.SetPrewarm(((OLD, 1),)))
    world.ready("w1")
    world.tell(stimuli.SetPrewarm(()))
    assert world.tell(stimuli.RecycleWorker("w1")) == [Spawn("w2", OLD)]
    assert {action.worker for action in world.tell(CHANGED) if isinstance(action, Stop)} == {"w1", "w2"}


def test_a_change_that_outdates_nothing_stops_nobody() -> None:
    world = World()
    world.tell(stimuli.SetPrewarm(((NEW, 1),)))
    world.ready("w1")
    assert world.tell(CHANGED) == []
    world.exit("w1")
    world.pass_time(10.0)
    assert len(world.workers) == 1, "and what is to be kept warm is"


def test_a_worker_that_came_too_late_is_not_replaced_when_it_grows_old() -> None:
    world = World(max=4, max_age=50.0)
    request = world.acquire("s", OLD)
    world.tell(CHANGED)
    world.run_until_settled()
    world.pass_time(100.0)
    assert len(world.spawn_times) == 1
    assert world.release(request) == [Stop("w1", RETIRED)]


def test_it_does_not_wait_for_a_replacement_that_serves_somebody_else() -> None:
    world = World(max=2)
    first = world.held("s", OLD)
    world.tell(stimuli.RecycleWorker("w1"))
    second = world.acquire("t", OLD)
    world.tell(CHANGED)
    assert world.release(first) == [Stop("w1", RETIRED)]
    world.run_until_settled()
    assert world.worker_of(second) == "w2"


def test_nothing_is_remembered_of_an_outdated_profile() -> None:
    world = World(max=2)
    world.tell(stimuli.SetPrewarm(((OLD, 1), (OTHER, 1))))
    world.run_until_settled()
    world.tell(CHANGED)
    world.run_until_settled()
    state = world.machine._state
    assert list(state.profiles) == [OTHER.signature]
    assert [kind.profile for kind in state.prewarm_targets] == [OTHER]
