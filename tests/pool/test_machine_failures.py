"""What goes wrong with workers, and who is charged for it."""

import pytest

from errors import ProfileBroken, ResumeFailed, UsageError, WorkerError
from pool import stimuli
from pool.stimuli import FailureKind, Spawn, Stop, StopReason
from profiles.profile import CapabilityProfile
from tests.pool.world import World, make_profile

A = make_profile("a")
B = make_profile("b")


def breaker(world: World, profile: CapabilityProfile = A) -> str:
    found = [each for each in world.machine.snapshot(world.now).profiles if each.profile == profile.short]
    return found[0].breaker if found else "closed"


def exits(world: World) -> dict[str, int]:
    return world.machine.snapshot(world.now).counters.exits


def fail_start(world: World, *, stderr_tail: str | None = None) -> None:
    (worker,) = (name for name, paper in world.workers.items() if not paper.ready and not paper.stopping)
    world.fail(worker, FailureKind.START, stderr_tail=stderr_tail)
    world.exit(worker)


def break_profile(world: World, *, stderr_tail: str | None = None) -> str:
    """Let starts fail until the breaker opens; returns the request that waited for them."""
    request = world.acquire("s", A, timeout=1000.0)
    for _ in range(5):
        fail_start(world, stderr_tail=stderr_tail)
        if breaker(world) == "closed":
            world.pass_time(60.0 if world.settings.breaker_window > 1000 else 8.0)
    return request


# --- starts ----------------------------------------------------------------------------------------------------------


def test_a_failed_start_is_stopped_and_tried_again_after_back_off() -> None:
    world = World()
    request = world.acquire("s")
    assert world.fail("w1", FailureKind.START) == [Stop("w1", StopReason.FAILED, force=True)]
    assert world.exit("w1") == []
    due = world.machine.next_wakeup()
    assert due is not None
    assert world.now < due <= world.now + 0.5
    assert [type(action) for action in world.pass_time(0.5)] == [Spawn]
    world.run_until_settled()
    assert request in world.holds
    assert exits(world) == {"start": 1}


def test_a_process_that_ends_while_starting_counts_as_a_failed_start() -> None:
    world = World()
    world.acquire("s")
    world.exit("w1")
    assert exits(world) == {"start": 1}
    assert not world.workers
    world.pass_time(0.5)
    assert list(world.workers) == ["w2"]


def test_five_failed_starts_break_the_profile_and_its_waiters_learn_why() -> None:
    world = World(breaker_window=1e6)
    request = break_profile(world, stderr_tail="agent: command not found")
    error = world.errors[request]
    assert isinstance(error, ProfileBroken)
    assert error.stderr_tail == "agent: command not found"
    assert error.retry_after == pytest.approx(30.0)
    assert "stopping=1 waiting=1 max=4" in str(error)
    again = world.acquire("other", A)
    assert isinstance(world.errors[again], ProfileBroken)
    assert [event for event, _ in world.events].count("breaker_opened") == 1


def test_one_profiles_failures_never_block_another() -> None:
    world = World(breaker_window=1e6)
    break_profile(world)
    assert world.held("t", B)


def test_a_broken_profile_still_serves_from_the_workers_it_has() -> None:
    world = World(breaker_window=1e6, max=3, breaker_failures=1)
    world.held("mine", A)
    other = world.held("other", A)
    third = world.acquire("third", A)
    fail_start(world)
    assert isinstance(world.errors[third], ProfileBroken)
    assert world.acquire("mine", A) in world.holds
    world.release(other)
    fourth = world.acquire("fourth", A)
    world.run_until_settled()
    assert fourth in world.holds


def test_half_open_lets_one_trial_through_which_closes_the_breaker_when_it_is_ready() -> None:
    world = World(breaker_window=1e6)
    break_profile(world)
    world.pass_time(30.0)
    assert breaker(world) == "half_open"
    first, second = world.acquire("one"), world.acquire("two")
    assert len(world.workers) == 1
    world.ready(next(iter(world.workers)))
    assert breaker(world) == "closed"
    world.run_until_settled()
    assert {first, second} <= set(world.holds)
    names = [event for event, _ in world.events]
    assert names.index("breaker_opened") < names.index("breaker_half_open") < names.index("breaker_closed")


def test_a_failed_trial_opens_the_breaker_again() -> None:
    world = World(breaker_window=1e6)
    break_profile(world)
    world.pass_time(30.0)
    request = world.acquire("one")
    fail_start(world)
    assert breaker(world) == "open"
    assert isinstance(world.errors[request], ProfileBroken)


def test_a_worker_that_dies_before_it_ever_served_is_charged_to_the_profile() -> None:
    world = World(breaker_failures=2)
    world.acquire("s")
    world.ready("w1")
    world.exit("w1")
    assert exits(world) == {"crashed": 1}
    world.pass_time(0.5)
    world.ready("w2")
    world.exit("w2")
    assert breaker(world) == "open"


def test_a_worker_that_has_served_may_crash_without_being_charged_to_the_profile() -> None:
    world = World(breaker_failures=1)
    world.held("s")
    world.exit("w1")
    assert breaker(world) == "closed"


# --- resets ----------------------------------------------------------------------------------------------------------


def test_a_failed_reset_kills_the_worker_and_the_waiter_tries_again() -> None:
    world = World()
    world.release(world.held("old"))
    world.tell(stimuli.SettingsChanged(world.settings.__class__(max=1, min=0)))
    world.limit = 1
    request = world.acquire("new")
    assert world.fail("w1", FailureKind.RESET) == [Stop("w1", StopReason.FAILED, force=True)]
    assert request in world.open_requests
    happened = world.exit("w1")
    assert [type(action) for action in happened] == [Spawn]
    world.run_until_settled()
    assert request in world.holds


def test_two_failed_resumes_fail_the_session_and_not_the_profile() -> None:
    world = World(max=1, breaker_failures=1)
    world.tell(stimuli.SessionKnown("s", "broken.jsonl"))
    request = world.acquire("s")
    world.ready("w1")
    assert world.workers["w1"].resetting == ("s", "broken.jsonl")
    world.fail("w1", FailureKind.RESUME)
    world.exit("w1")
    assert request in world.open_requests
    world.ready("w2")
    world.fail("w2", FailureKind.RESUME)
    error = world.errors[request]
    assert isinstance(error, ResumeFailed)
    assert error.details["transcript"] == "broken.jsonl"
    world.exit("w2")
    assert breaker(world) == "closed"
    assert isinstance(world.errors[world.acquire("s")], ResumeFailed)
    assert ("session_failed", "s") in [(event, data.get("session")) for event, data in world.events]
    assert world.held("other")


def test_forgetting_a_failed_session_lets_it_begin_anew() -> None:
    world = World(max=1)
    world.tell(stimuli.SessionKnown("s", "broken.jsonl"))
    world.acquire("s")
    for worker in ("w1", "w2"):
        world.ready(worker)
        world.fail(worker, FailureKind.RESUME)
        world.exit(worker)
    world.tell(stimuli.ForgetSession("s"))
    world.acquire("s")
    world.run_until_settled()
    assert not world.open_requests
    assert session_transcript(world, "s") == "s.jsonl"


def session_transcript(world: World, key: str) -> str | None:
    return next(each.transcript for each in world.machine.snapshot(world.now).sessions if each.key == key)


def test_a_successful_resume_clears_the_sessions_record() -> None:
    world = World(max=1)
    world.tell(stimuli.SessionKnown("s", "s.jsonl"))
    world.acquire("s")
    for _ in range(3):
        name = next(iter(world.workers))
        world.ready(name)
        world.fail(name, FailureKind.RESUME)
        world.exit(name)
        world.pass_time(1.0)
        name = next(iter(world.workers))
        world.ready(name)
        world.reset_done(name)
        world.exit(name)
        world.acquire("s")
        world.pass_time(1.0)
    assert not any(isinstance(error, ResumeFailed) for error in world.errors.values())


def test_a_worker_that_dies_over_a_transcript_charges_the_session_too() -> None:
    world = World(max=1)
    world.tell(stimuli.SessionKnown("s", "poison.jsonl"))
    request = world.acquire("s")
    for worker in ("w1", "w2"):
        world.ready(worker)
        world.exit(worker)
    assert isinstance(world.errors[request], ResumeFailed)


def test_no_one_else_opens_the_transcript_while_the_failed_worker_still_lives() -> None:
    world = World(max=3)
    request = world.acquire("s")
    world.ready("w1")
    world.fail("w1", FailureKind.RESET)
    world.tell(stimuli.SetPrewarm(((A, 2),)))
    world.pass_time(1.0)
    assert len(world.workers) == 3
    for name in [name for name, paper in world.workers.items() if not paper.ready]:
        world.ready(name)
    assert request in world.open_requests
    assert not any(paper.resetting for name, paper in world.workers.items() if name != "w1")
    world.exit("w1")
    world.run_until_settled()
    assert request in world.holds


# --- reconciling -----------------------------------------------------------------------------------------------------


def test_a_refused_model_fails_the_request_with_the_workers_words_and_the_worker_goes_on() -> None:
    world = World()
    world.release(world.held("s", A))
    request = world.acquire("s", make_profile("a", model="unheard-of"))
    world.fail("w1", FailureKind.RECONCILE)
    assert isinstance(world.errors[request], WorkerError)
    assert "reconcile" in str(world.errors[request])
    again = world.acquire("s", A)
    assert world.workers["w1"].reconciling == A.soft, "nobody knows what is in force after a refusal"
    world.reconciled("w1")
    assert again in world.holds


# --- health ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "force"),
    [(FailureKind.UNRESPONSIVE, True), (FailureKind.PROTOCOL, True), (FailureKind.STALLED, False)],
)
def test_a_sick_worker_is_stopped_and_started_again_even_above_min(
    kind: FailureKind,
    force: bool,  # noqa: FBT001  # a column of the table above
) -> None:
    world = World(max=2)
    request = world.held("s")
    assert world.fail("w1", kind) == [Stop("w1", StopReason.FAILED, force=force)]
    assert world.exit("w1") == [Spawn("w2", A)]
    world.ready("w2")
    world.release(request)
    assert exits(world) == {kind.value: 1}
    again = world.acquire("s")
    assert world.workers["w2"].resetting == ("s", "s.jsonl")
    world.reset_done("w2")
    assert again in world.holds


def test_a_crashed_worker_is_started_again_and_its_session_resumes_there() -> None:
    world = World()
    world.held("s")
    assert world.exit("w1") == [Spawn("w2", A)]
    world.ready("w2")
    world.acquire("s")
    assert world.workers["w2"].resetting == ("s", "s.jsonl")


def test_lost_capacity_is_given_up_where_the_pool_is_full_anyway() -> None:
    world = World(max=2)
    world.held("a", A)
    world.held("b", A)
    world.acquire("c", B)
    world.exit("w1")
    assert [paper.profile for paper in world.workers.values()] == [A, B]
    world.run_until_settled()
    world.tell(stimuli.StopWorker("w3"))
    world.exit("w3")
    assert list(world.workers) == ["w2"]


def test_a_hold_whose_worker_died_may_be_released_once() -> None:
    world = World()
    request = world.held("s")
    hold = world.holds[request]
    world.exit("w1")
    assert world.release(request) == []
    counters = world.machine.snapshot(world.now).counters
    assert (counters.releases, counters.lost, counters.active) == (0, 1, 0)
    with pytest.raises(UsageError):
        world.tell(stimuli.Release(hold))


def test_a_request_id_stays_taken_until_its_lost_hold_is_released_or_cancelled() -> None:
    world = World()
    request = world.held("s")
    world.exit("w1")
    with pytest.raises(UsageError, match="in use"):
        world.machine.handle(stimuli.Acquire(request=request, session="s", profile=A), world.now)
    world.cancel(request)
    with pytest.raises(UsageError, match="not in force"):
        world.tell(stimuli.Release(stimuli.WorkerHold(request, "s", "w1", 1)))


def test_late_news_of_a_dead_or_stopping_worker_changes_nothing() -> None:
    world = World()
    world.acquire("s")
    world.tell(stimuli.StopWorker("w1"))
    before = world.machine.snapshot(world.now)
    error = WorkerError("late")
    late: list[stimuli.Stimulus] = [
        stimuli.WorkerReady("w1"),
        stimuli.WorkerResetDone("w1", "s", None),
        stimuli.WorkerReconciled("w1"),
        stimuli.WorkerFailed("w1", FailureKind.PROTOCOL, error),
        stimuli.BackgroundCount("w1", 1),
    ]
    for news in late:
        assert world.tell(news) == []
    assert world.machine.snapshot(world.now) == before
    world.exit("w1")
    for news in [*late, stimuli.ProcessExited("w1", error)]:
        assert world.tell(news) == []


def test_news_of_a_worker_that_never_was_is_refused() -> None:
    world = World()
    for name in ("w1", "x", "", "w-1", "w²"):
        with pytest.raises(UsageError, match="no worker"):
            world.tell(stimuli.WorkerReady(name))


def test_answers_to_questions_never_asked_are_refused() -> None:
    world = World()
    world.release(world.held("s"))
    for news in (
        stimuli.WorkerReady("w1"),
        stimuli.WorkerResetDone("w1", "s", None),
        stimuli.WorkerReconciled("w1"),
        stimuli.WorkerFailed("w1", FailureKind.RECONCILE, WorkerError("x")),
    ):
        with pytest.raises(UsageError):
            world.tell(news)
    world.machine.validate()


def test_a_reset_of_a_new_conversation_is_not_charged_to_the_session() -> None:
    world = World(max=1)
    request = world.acquire("s")
    for _ in range(3):
        name = next(iter(world.workers))
        world.ready(name)
        assert world.workers[name].resetting == ("s", None)
        world.fail(name, FailureKind.RESUME)
        world.exit(name)
        world.pass_time(2.0)
    world.run_until_settled()
    assert request in world.holds


def test_every_first_grant_on_a_worker_is_preceded_by_a_reset() -> None:
    world = World(max=1)
    for session in ("a", "b", "a"):
        request = world.acquire(session)
        world.run_until_settled()
        world.release(request)
    resets = [data["session"] for event, data in world.events if event == "session_bound"]
    assert resets == ["a", "b", "a"]
