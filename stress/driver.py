"""Makes the requests of a load and hears what comes of them, whatever happens to the supervisor meanwhile."""

import math
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import trio

from stress.connection import Connection, Push
from stress.facts import Disordered, Fact, LifeBegan, Silence
from stress.ledger import EVENT_KINDS, Ledger
from stress.loads import Arrival
from stress.plan import Plan
from wire.messages import ErrorBody

__all__ = ["Driver"]

_PATIENCE = 15.0
"""Seconds beyond the deadline of the last request until nobody waits for it any more."""
_LOOK_SECONDS = 1.0
"""Where this process was stopped for a while, what came meanwhile is read by then."""
_ASKED_AT_ONCE = 2000
_ENDS = frozenset({"closing", "behind"})
"""Why a subscription may end: with its supervisor, or because more was said than is kept for who has not read it.

It goes on from the bookmark in either case, where nothing is lost.
"""


class Driver:
    """One connection asks, one hears all events; both have to be run beside it."""

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        *,
        ready: Callable[[], Awaitable[Path]],
        clock: Callable[[], float],
        tell: Callable[[Fact], None],
    ) -> None:
        self.asking = Connection(ready)
        self.hearing = Connection(ready, greeting=self._subscription, on_greeted=self._subscribed, on_push=self._hear)
        self._plan = plan
        self._ledger = ledger
        self._clock = clock
        self._tell = tell
        self._news = trio.Event()
        self._hears = trio.Event()

    async def run(self, arrivals: Iterable[Arrival], askers: Callable[[str], Connection | None]) -> None:
        """Make the requests in their time, and wait for their outcomes.

        No more where the plan's time is up, or nobody answers. ``askers``: who asks for a session, if not one
        connection for all.
        """
        for arrival in arrivals:
            if arrival.alone:
                await self._until_quiet(self._plan.timeout + _PATIENCE)
            await trio.sleep(max(0.0, arrival.at - self._clock()))
            has_room = await self._until_room()
            if not has_room or (self._plan.is_timed and self._clock() > self._plan.seconds):
                break
            self._ask(arrival, askers(arrival.session) or self.asking)
        await self.settle()

    async def hears(self) -> None:
        """Wait until no event can be missed."""
        await self._hears.wait()

    async def settle(self) -> None:
        """Wait for the outcomes of what is open, then ask for them by id, then give up."""
        await self._until_quiet(self._plan.timeout + _PATIENCE)
        with trio.move_on_after(_PATIENCE):
            await self._ask_for_outcomes()
            await self._until_quiet(_PATIENCE)
        self._tell(Silence(t=self._clock()))

    def notice(self, fact: Fact) -> None:
        """A new life of the supervisor is asked what it knows of what is open."""
        if isinstance(fact, LifeBegan) and fact.life > 1:
            for number in list(self._ledger.promised)[:_ASKED_AT_ONCE]:
                self._ask_for_outcome(number)

    # --- asking -------------------------------------------------------------------------------------------------------

    def _ask(self, arrival: Arrival, connection: Connection) -> None:
        params = self._ledger.ask(arrival, self._plan.timeout, self._clock())
        connection.call(
            "agent", params, partial(self._accepted, arrival.number), partial(self._refused, arrival.number)
        )

    def _accepted(self, number: int, answer: Any) -> None:
        self._ledger.accepted(number, answer, self._clock())

    def _refused(self, number: int, error: ErrorBody) -> None:
        self._ledger.refused(number, error, self._clock())
        self._look()

    def _ask_for_outcome(self, number: int) -> None:
        self.asking.call(
            "agent.wait",
            {"run_id": self._ledger.run_id(number), "session": self._ledger.open[number], "timeout_ms": 0},
            partial(self._remembered, number),
            partial(self._unknown, number),
        )

    def _remembered(self, number: int, answer: Any) -> None:
        self._ledger.remembered(number, answer, self._clock())

    def _unknown(self, number: int, error: ErrorBody) -> None:
        self._ledger.unknown(number, error, self._clock())
        self._look()

    async def _ask_for_outcomes(self) -> None:
        for number in list(self._ledger.open):
            self._ask_for_outcome(number)
        await self.asking.ask("ping")  # answered after all of those

    # --- hearing ------------------------------------------------------------------------------------------------------

    def _subscription(self) -> tuple[str, dict[str, Any]]:
        since = {} if self._ledger.bookmark is None else {"since": self._ledger.bookmark}
        return "subscribe", {"kinds": list(EVENT_KINDS), **since}

    def _subscribed(self, answer: Any) -> None:
        if not answer["complete"]:
            what = f"events after the bookmark {self._ledger.bookmark} are gone"
            self._tell(Disordered(t=self._clock(), what=what))
        if self._ledger.bookmark is None:
            self._ledger.bookmark = answer["head"]
        self._hears.set()

    def _hear(self, push: Push) -> None:
        now = self._clock()
        for event in push.events:
            self._ledger.hear(event, now)
        if push.reason is not None and push.reason not in _ENDS:
            self._tell(Disordered(t=now, what=f"the subscription ended: {push.reason}"))
        self._look()

    def _look(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def _until_room(self) -> bool:
        """Wait for it where there is none. False: nobody answers any more, which is told of."""
        patience = self._plan.timeout + _PATIENCE
        with trio.move_on_after(patience) as scope:
            while self._is_full():
                await self._news.wait()
        if scope.cancelled_caught:
            await trio.sleep(_LOOK_SECONDS)
        if self._is_full():
            what = f"nobody is asked any more: {len(self._ledger.open)} requests had no outcome for {patience:g} s"
            self._tell(Disordered(t=self._clock(), what=what))
        return not self._is_full()

    def _is_full(self) -> bool:
        return 0 < self._plan.most_open <= len(self._ledger.open)

    async def _until_quiet(self, seconds: float = math.inf) -> None:
        with trio.move_on_after(seconds):
            while self._ledger.open:
                await self._news.wait()
