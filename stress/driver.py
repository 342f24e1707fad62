"""Load driver and simulated front ends.

Makes the requests of a load and hears what comes of them, whatever happens to the supervisor meanwhile.

Many front ends, each with a connection and a session of its own: some hang up and come back, some read slowly.
"""

import math
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import trio

from stress.connection import Connection, Push
from stress.facts import Answered, Disordered, Fact, LifeBegan, Silence, Told
from stress.loads import Arrival
from stress.plan import Plan
from stress.requests import EVENT_KINDS, Ledger
from wire.messages import ErrorBody

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


_SLOW_EVERY = 10
_SLOW_BYTES_PER_SECOND = 1000.0
_STAY_SECONDS = 5.0
"""How long one stays connected on average, where they come and go."""


class _FrontEnd:
    """One of them. ``heard``: the requests whose outcomes it was told."""

    def __init__(self, number: int, session: str, *, is_slow: bool) -> None:
        self.number = number
        self.session = session
        self.is_slow = is_slow
        self.bookmark: int | None = None
        self.heard: set[int] = set()
        self.expected: set[int] = set()
        self.connection: Connection


class FrontEnds:
    """All of them, by their sessions; each must be told each of its outcomes exactly once."""

    def __init__(
        self,
        sessions: list[str],
        ledger: Ledger,
        *,
        ready: Callable[[], Awaitable[Path]],
        clock: Callable[[], float],
        tell: Callable[[Fact], None],
        some_are_slow: bool,
    ) -> None:
        """``some_are_slow``: one in ten follows everything that happens, and reads 1 KB of it a second."""
        self._ledger = ledger
        self._clock = clock
        self._tell = tell
        self._answered: dict[int, float] = {}
        self._news = trio.Event()
        self._all = {
            session: _FrontEnd(number, session, is_slow=some_are_slow and number % _SLOW_EVERY == 0)
            for number, session in enumerate(sessions)
        }
        for each in self._all.values():
            each.connection = Connection(
                ready,
                greeting=partial(self._subscription, each),
                on_greeted=partial(self._subscribed, each),
                on_push=partial(self._hear, each),
                **({"bytes_per_second": _SLOW_BYTES_PER_SECOND} if each.is_slow else {}),
            )

    def asker(self, session: str) -> Connection | None:
        """The connection that asks for this session; None = anybody's: an answer must not wait for a slow reader."""
        found = self._all.get(session)
        return None if found is None or found.is_slow else found.connection

    def notice(self, fact: Fact) -> None:
        """An outcome was told to somebody: now the front end of its session is to hear of it too."""
        if isinstance(fact, Answered) and (found := self._all.get(fact.session)) and not found.is_slow:
            found.expected.add(fact.number)
            self._answered[fact.number] = fact.t
            if fact.number in found.heard:
                self._tell_how_late(found, fact.number)

    async def run(self, rng: Random, *, come_and_go: bool) -> None:
        """Be connected until cancelled; ``come_and_go``: hang up at random times."""
        async with trio.open_nursery() as nursery:
            for each in self._all.values():
                nursery.start_soon(each.connection.run)
                if come_and_go:
                    nursery.start_soon(_come_and_go, each.connection, Random(rng.random()))  # noqa: S311 - seeded

    async def settle(self) -> None:
        """Give everybody time to hear what is left, then say what was never heard."""
        with trio.move_on_after(_PATIENCE):
            while any(each.expected - each.heard for each in self._all.values()):
                await self._news.wait()
        for each in self._all.values():
            for number in each.expected - each.heard:
                self._tell(Disordered(t=self._clock(), what=f"front end {each.number} never heard of request {number}"))

    def _subscription(self, front_end: _FrontEnd) -> tuple[str, dict[str, Any]]:
        if front_end.is_slow:
            return "subscribe", {}
        since = {} if front_end.bookmark is None else {"since": front_end.bookmark}
        return "subscribe", {"session": front_end.session, "kinds": ["done"], **since}

    def _subscribed(self, front_end: _FrontEnd, answer: Any) -> None:
        if front_end.bookmark is None:
            front_end.bookmark = answer["head"]

    def _hear(self, front_end: _FrontEnd, push: Push) -> None:
        if front_end.is_slow:
            return
        for event in push.events:
            number = None if event.run_id is None else self._ledger.number_of(event.run_id)
            is_again = event.seq <= (front_end.bookmark or 0) or number in front_end.heard
            if is_again:
                what = f"front end {front_end.number} was told twice of event {event.seq}, request {number}"
                self._tell(Disordered(t=self._clock(), what=what))
            front_end.bookmark = max(front_end.bookmark or 0, event.seq)
            if number is not None and not is_again:
                front_end.heard.add(number)
                self._tell_how_late(front_end, number)
        self._news.set()
        self._news = trio.Event()

    def _tell_how_late(self, front_end: _FrontEnd, number: int) -> None:
        answered = self._answered.pop(number, None)
        if answered is not None:
            late = self._clock() - answered
            self._tell(Told(t=self._clock(), front_end=front_end.number, seconds=late))


async def _come_and_go(connection: Connection, rng: Random) -> None:
    while True:
        await trio.sleep(rng.expovariate(1 / _STAY_SECONDS))
        connection.hang_up()
