"""Many front ends, each with a connection and a session of its own: some hang up and come back, some read slowly."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import trio

from stress.connection import Connection, Push
from stress.facts import Answered, Disordered, Fact, Told
from stress.ledger import Ledger

__all__ = ["FrontEnds"]

_SLOW_EVERY = 10
_SLOW_BYTES_PER_SECOND = 1000.0
_STAY_SECONDS = 5.0
"""How long one stays connected on average, where they come and go."""
_PATIENCE = 15.0


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
