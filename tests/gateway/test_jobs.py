"""Jobs alone: what they tell the lanes, and what becomes of them by the lanes' decisions; on a virtual clock."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import AcquireTimeout, PoolSaturated
from gateway.lanes.messages import LaneStimulus, RejectionReason, RejectRun, StartTurn, Submit, TurnEnded, Withdraw
from gateway.turns.exclusive import ExclusiveAccess


class Lane:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[LaneStimulus] = []
        self.jobs = ExclusiveAccess(self.told.append)

    @property
    def submitted(self) -> Submit:
        assert isinstance(self.told[0], Submit)
        return self.told[0]

    async def occupy(self, events: list[str], **options: float) -> None:
        async with self.jobs.acquire("alice", **options):  # type: ignore[arg-type]  # an int and a float
            events.append("in")
        events.append("out")

    def grant(self) -> None:
        submitted = self.submitted
        self.jobs.grant(
            StartTurn(turn="t1", session="alice", lane="main", priority=5, runs=(submitted.run,), text=submitted.text)
        )


async def test_a_job_waits_for_its_turn_and_ends_it_with_its_block(nursery: trio.Nursery) -> None:
    lane, events = Lane(), list[str]()
    nursery.start_soon(lane.occupy, events)
    await wait_all_tasks_blocked()
    assert (lane.submitted.session, lane.submitted.exclusive, events) == ("alice", True, [])
    assert lane.submitted.run in lane.jobs._requests
    lane.grant()
    await wait_all_tasks_blocked()
    assert events == ["in", "out"]
    assert lane.told[1:] == [TurnEnded("t1")]
    assert len(lane.jobs._requests) == 0


async def test_a_job_that_is_refused_never_begins_and_has_nothing_to_take_back(nursery: trio.Nursery) -> None:
    lane, events = Lane(), list[str]()

    async def refused() -> None:
        with pytest.raises(PoolSaturated, match="the lane was cleared"):
            await lane.occupy(events)
        events.append("refused")

    nursery.start_soon(refused)
    await wait_all_tasks_blocked()
    lane.jobs.reject(RejectRun(lane.submitted.run, RejectionReason.CLEARED, "the lane was cleared"))
    await wait_all_tasks_blocked()
    assert (events, len(lane.told), len(lane.jobs._requests)) == (["refused"], 1, 0)


async def test_a_job_that_waits_too_long_leaves_its_lane(autojump_clock: MockClock) -> None:
    lane, events = Lane(), list[str]()
    with pytest.raises(AcquireTimeout, match="busy for all of 5 s"):
        await lane.occupy(events, timeout=5)
    assert trio.current_time() == 5
    assert (events, lane.told[1:], len(lane.jobs._requests)) == ([], [Withdraw(lane.submitted.run)], 0)


async def test_jobs_that_wait_for_one_session_have_names_of_their_own(nursery: trio.Nursery) -> None:
    lane, events = Lane(), list[str]()
    nursery.start_soon(lane.occupy, events)
    nursery.start_soon(lane.occupy, events)
    await wait_all_tasks_blocked()
    names = {told.run for told in lane.told if isinstance(told, Submit)}
    assert len(names) == len(lane.jobs._requests) == 2
    nursery.cancel_scope.cancel()
