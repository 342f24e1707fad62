"""The lanes' shell: one stimulus after the other, alarms at their time, no polling; on a virtual clock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gateway.lanes.messages import LaneAction, StartTurn, Submit, TurnEnded
from gateway.settings import QueueMode, QueueSettings
from gateway.turns.lane_shell import LaneShell
from wire.units import Seconds


@asynccontextmanager
async def _running(scheduler: LaneShell) -> AsyncIterator[LaneShell]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scheduler.run)
        yield scheduler
        nursery.cancel_scope.cancel()


def _submit(run: str, mode: QueueMode = QueueMode.FOLLOWUP) -> Submit:
    return Submit(run=run, session="alice", text=run, mode=mode)


async def test_what_an_action_leads_to_is_handled_after_it_is_performed() -> None:
    story: list[str] = []

    def perform(action: LaneAction) -> None:
        assert isinstance(action, StartTurn)
        story.append(f"begin {action.text}")
        if action.text == "a":
            scheduler.handle(_submit("b"))
        scheduler.handle(TurnEnded(action.turn))
        story.append(f"begun {action.text}")

    scheduler = LaneShell(QueueSettings(), perform)
    scheduler.handle(_submit("a"))
    assert story == ["begin a", "begun a", "begin b", "begun b"]
    assert scheduler.lanes.snapshot().sessions == ()


async def test_alarms_ring_at_their_time_in_their_order_unless_they_are_called_off(autojump_clock: MockClock) -> None:
    rung: list[tuple[str, float]] = []

    def ring(name: str) -> None:
        rung.append((name, trio.current_time()))

    async with _running(LaneShell(QueueSettings(), lambda _action: None)) as scheduler:
        await wait_all_tasks_blocked()
        scheduler.set_timer(5, ring, "late")
        scheduler.set_timer(3, ring, "early")
        never = scheduler.set_timer(4, ring, "never")
        scheduler.cancel_timer(never)
        scheduler.cancel_timer(None)
        await trio.sleep(10)
        assert rung == [("early", 3), ("late", 5)]
        scheduler.set_timer(1, ring, "overdue")
        await trio.sleep(0.001)
        assert rung[-1] == ("overdue", 10)


async def test_a_debounce_ends_at_its_time_without_any_further_stimulus(autojump_clock: MockClock) -> None:
    begun: list[tuple[str, float]] = []

    def perform(action: LaneAction) -> None:
        assert isinstance(action, StartTurn)
        begun.append((action.turn, trio.current_time()))

    async with _running(LaneShell(QueueSettings(debounce=Seconds(2)), perform)) as scheduler:
        scheduler.handle(_submit("a"))
        scheduler.handle(_submit("b", QueueMode.COLLECT))
        scheduler.handle(TurnEnded("t1"))
        await trio.sleep(10)
        assert begun == [("t1", 0), ("t2", 2)]


async def test_new_limits_hold_at_once_also_for_a_debounce_that_runs(autojump_clock: MockClock) -> None:
    begun: list[float] = []
    async with _running(
        LaneShell(QueueSettings(debounce=Seconds(100)), lambda _action: begun.append(trio.current_time()))
    ) as scheduler:
        scheduler.handle(_submit("a"))
        scheduler.handle(_submit("b", QueueMode.COLLECT))
        scheduler.handle(TurnEnded("t1"))
        await trio.sleep(5)
        scheduler.reconfigure(QueueSettings(debounce=Seconds(7)))
        await trio.sleep(100)
        assert begun == [0, 7]
