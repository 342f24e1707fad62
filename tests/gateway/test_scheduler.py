"""The scheduler's time: one stimulus after the other, deadlines without polling; on a virtual clock."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import trio
from trio.testing import MockClock

from gateway.lanes.messages import LaneAction, StartTurn, Submit, TurnEnded
from gateway.settings import CurrentSettings, GatewaySettings, QueueSettings
from gateway.turns.scheduler import TurnScheduler
from wire.messages import QueueMode
from wire.units import Seconds


@asynccontextmanager
async def _running(perform: Callable[[LaneAction], None], queue: QueueSettings) -> AsyncIterator[TurnScheduler]:
    """A scheduler whose actions ``perform`` gets."""
    async with trio.open_nursery() as nursery:
        nothing = cast("Any", None)
        scheduler = TurnScheduler(CurrentSettings(GatewaySettings(queue=queue)), nothing, nothing, nursery)
        scheduler._perform = perform  # type: ignore[method-assign,assignment]
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
            scheduler._handle(_submit("b"))
        scheduler._handle(TurnEnded(action.turn))
        story.append(f"begun {action.text}")

    async with _running(perform, QueueSettings()) as scheduler:
        scheduler._handle(_submit("a"))
        assert story == ["begin a", "begun a", "begin b", "begun b"]
        assert scheduler.lanes.snapshot().sessions == ()


async def test_a_debounce_ends_at_its_time_also_where_new_limits_shorten_it(autojump_clock: MockClock) -> None:
    begun: list[float] = []
    queue = QueueSettings(debounce=Seconds(100))
    async with _running(lambda _action: begun.append(trio.current_time()), queue) as scheduler:
        scheduler._handle(_submit("a"))
        scheduler._handle(_submit("b", QueueMode.COLLECT))
        scheduler._handle(TurnEnded("t1"))
        await trio.sleep(5)
        scheduler._settings.value = GatewaySettings(queue=QueueSettings(debounce=Seconds(7)))
        scheduler.update_limits()
        await trio.sleep(100)
        assert begun == [0, 7]
