"""Sends the requests of a load and records their outcomes, across restarts of the supervisor.

Simulated front ends have a connection and a session each; some disconnect and return, some read slowly.
"""

import math
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import trio

from stress.arrivals import Arrival
from stress.connection import PushMessage, ReconnectingClient
from stress.facts import Fact, Journal, OutcomeReceived, RequestAnswered, SupervisorStarted, WaitingEnded
from stress.plan import Plan
from stress.request_tracker import EVENT_KINDS, RequestTracker
from wire.messages import ErrorBody

_GRACE_SECONDS = 15.0
"""Seconds beyond the last request's deadline until the run stops waiting."""
_CATCH_UP_SECONDS = 1.0
"""Seconds to read what arrived while this process was stopped."""
_MAX_QUERIES = 2000
_EXPECTED_ENDS = frozenset({"closing", "behind"})
"""Reasons for which a subscription may end: its supervisor ends, or the reader is too far behind.

It continues from the bookmark in either case, and nothing is lost.
"""


class LoadDriver:
    """One connection sends requests, one receives all events; the caller runs both."""

    def __init__(
        self,
        plan: Plan,
        ledger: RequestTracker,
        *,
        ready: Callable[[], Awaitable[Path]],
        journal: Journal,
    ) -> None:
        self.request_client = ReconnectingClient(ready)
        self.event_client = ReconnectingClient(
            ready, greeting=self._subscription, on_greeted=self._subscribed, on_push=self._on_push
        )
        self._plan = plan
        self._tracker = ledger
        self._journal = journal
        self._changed = trio.Event()
        self._is_subscribed = trio.Event()

    async def run(self, arrivals: Iterable[Arrival], askers: Callable[[str], ReconnectingClient | None]) -> None:
        """Send each request at its time, and wait for the outcomes.

        Stops when the plan's time is up or no supervisor answers. ``askers``: the connection of a session; None = the
        shared one.
        """
        for arrival in arrivals:
            if arrival.alone:
                await self._wait_idle(self._plan.timeout + _GRACE_SECONDS)
            await trio.sleep(max(0.0, arrival.at - self._journal.now()))
            has_room = await self._wait_for_room()
            if not has_room or (self._plan.is_timed and self._journal.now() > self._plan.seconds):
                break
            self._send_request(arrival, askers(arrival.session) or self.request_client)
        await self.settle()

    async def wait_subscribed(self) -> None:
        """Wait until the event stream is subscribed."""
        await self._is_subscribed.wait()

    async def settle(self) -> None:
        """Wait for outstanding outcomes, then query them by id, then give up."""
        await self._wait_idle(self._plan.timeout + _GRACE_SECONDS)
        with trio.move_on_after(_GRACE_SECONDS):
            await self._query_outcomes()
            await self._wait_idle(_GRACE_SECONDS)
        self._journal.record(WaitingEnded(t=self._journal.now()))

    def on_fact(self, fact: Fact) -> None:
        """Query a new supervisor for outstanding outcomes."""
        if isinstance(fact, SupervisorStarted) and fact.life > 1:
            for number in list(self._tracker.accepted_numbers)[:_MAX_QUERIES]:
                self._query_outcome(number)

    # --- asking -------------------------------------------------------------------------------------------------------

    def _send_request(self, arrival: Arrival, connection: ReconnectingClient) -> None:
        params = self._tracker.open_request(arrival, self._plan.timeout)
        on_accepted = partial(self._tracker.on_accepted, arrival.number)
        connection.call("agent", params, on_accepted, partial(self._on_error, self._tracker.on_refused, arrival.number))

    def _on_error(self, note: Callable[[int, ErrorBody], None], number: int, error: ErrorBody) -> None:
        note(number, error)
        self._wake()

    def _query_outcome(self, number: int) -> None:
        self.request_client.call(
            "agent.wait",
            {"run_id": self._tracker.run_id(number), "session": self._tracker.open[number], "timeout_ms": 0},
            partial(self._tracker.on_outcome, number),
            partial(self._on_error, self._tracker.on_unknown, number),
        )

    async def _query_outcomes(self) -> None:
        for number in list(self._tracker.open):
            self._query_outcome(number)
        await self.request_client.request("ping")  # answered after all of those

    # --- hearing ------------------------------------------------------------------------------------------------------

    def _subscription(self) -> tuple[str, dict[str, Any]]:
        since = {} if self._tracker.bookmark is None else {"since": self._tracker.bookmark}
        return "subscribe", {"kinds": list(EVENT_KINDS), **since}

    def _subscribed(self, answer: Any) -> None:
        if not answer["complete"]:
            what = f"events after the bookmark {self._tracker.bookmark} are gone"
            self._journal.record_violation(what)
        if self._tracker.bookmark is None:
            self._tracker.bookmark = answer["head"]
        self._is_subscribed.set()

    def _on_push(self, push: PushMessage) -> None:
        for event in push.events:
            self._tracker.on_event(event)
        if push.reason is not None and push.reason not in _EXPECTED_ENDS:
            self._journal.record_violation(f"the subscription ended: {push.reason}")
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _wait_for_room(self) -> bool:
        """Wait until a request may be sent. False if no supervisor answers any more, which is recorded."""
        patience = self._plan.timeout + _GRACE_SECONDS
        with trio.move_on_after(patience) as scope:
            while self._is_full():
                await self._changed.wait()
        if scope.cancelled_caught:
            await trio.sleep(_CATCH_UP_SECONDS)
        if self._is_full():
            what = f"no more requests are sent: {len(self._tracker.open)} had no outcome for {patience:g} s"
            self._journal.record_violation(what)
        return not self._is_full()

    def _is_full(self) -> bool:
        return 0 < self._plan.most_open <= len(self._tracker.open)

    async def _wait_idle(self, seconds: float = math.inf) -> None:
        with trio.move_on_after(seconds):
            while self._tracker.open:
                await self._changed.wait()


_SLOW_EVERY = 10
_SLOW_BYTES_PER_SECOND = 1000.0
_CONNECTED_SECONDS = 5.0
"""Mean seconds of a connection under L4."""


class _SimulatedFrontEnd:
    """One front end; ``received``: requests whose outcomes it has received."""

    def __init__(self, number: int, session: str, *, is_slow: bool) -> None:
        self.number = number
        self.session = session
        self.is_slow = is_slow
        self.bookmark: int | None = None
        self.received: set[int] = set()
        self.expected: set[int] = set()
        self.connection: ReconnectingClient


class SimulatedFrontEnds:
    """All front ends, by session; each must receive each of its outcomes exactly once."""

    def __init__(
        self,
        sessions: list[str],
        ledger: RequestTracker,
        *,
        ready: Callable[[], Awaitable[Path]],
        journal: Journal,
        some_are_slow: bool,
    ) -> None:
        """``some_are_slow``: one in ten follows all events, and reads 1 KB of them a second."""
        self._tracker = ledger
        self._journal = journal
        self._answered: dict[int, float] = {}
        self._changed = trio.Event()
        self._all = {
            session: _SimulatedFrontEnd(number, session, is_slow=some_are_slow and number % _SLOW_EVERY == 0)
            for number, session in enumerate(sessions)
        }
        for each in self._all.values():
            each.connection = ReconnectingClient(
                ready,
                greeting=partial(self._subscription, each),
                on_greeted=partial(self._subscribed, each),
                on_push=partial(self._on_push, each),
                **({"bytes_per_second": _SLOW_BYTES_PER_SECOND} if each.is_slow else {}),
            )

    def client_for(self, session: str) -> ReconnectingClient | None:
        """The session's connection; None for a slow reader, which would delay the answer, and without front ends."""
        found = self._all.get(session)
        return None if found is None or found.is_slow else found.connection

    def on_fact(self, fact: Fact) -> None:
        """Expect the outcome at the front end of its session too."""
        if isinstance(fact, RequestAnswered) and (found := self._all.get(fact.session)) and not found.is_slow:
            found.expected.add(fact.number)
            self._answered[fact.number] = fact.t
            if fact.number in found.received:
                self._record_delay(found, fact.number)

    async def run(self, rng: Random, *, come_and_go: bool) -> None:
        """Stay connected until cancelled; ``come_and_go``: disconnect at random times."""
        async with trio.open_nursery() as nursery:
            for each in self._all.values():
                nursery.start_soon(each.connection.run)
                if come_and_go:
                    nursery.start_soon(_disconnect_at_random, each.connection, Random(rng.random()))  # noqa: S311 - seeded

    async def settle(self) -> None:
        """Wait for the deliveries that are missing, then record those that never came."""
        with trio.move_on_after(_GRACE_SECONDS):
            while any(each.expected - each.received for each in self._all.values()):
                await self._changed.wait()
        for each in self._all.values():
            for number in each.expected - each.received:
                self._journal.record_violation(f"front end {each.number} never received request {number}")

    def _subscription(self, front_end: _SimulatedFrontEnd) -> tuple[str, dict[str, Any]]:
        if front_end.is_slow:
            return "subscribe", {}
        since = {} if front_end.bookmark is None else {"since": front_end.bookmark}
        return "subscribe", {"session": front_end.session, "kinds": ["done"], **since}

    def _subscribed(self, front_end: _SimulatedFrontEnd, answer: Any) -> None:
        if front_end.bookmark is None:
            front_end.bookmark = answer["head"]

    def _on_push(self, front_end: _SimulatedFrontEnd, push: PushMessage) -> None:
        if front_end.is_slow:
            return
        for event in push.events:
            number = None if event.run_id is None else self._tracker.number_of(event.run_id)
            is_again = event.seq <= (front_end.bookmark or 0) or number in front_end.received
            if is_again:
                what = f"front end {front_end.number} received event {event.seq} twice, request {number}"
                self._journal.record_violation(what)
            front_end.bookmark = max(front_end.bookmark or 0, event.seq)
            if number is not None and not is_again:
                front_end.received.add(number)
                self._record_delay(front_end, number)
        self._changed.set()
        self._changed = trio.Event()

    def _record_delay(self, front_end: _SimulatedFrontEnd, number: int) -> None:
        answered = self._answered.pop(number, None)
        if answered is not None:
            late = self._journal.now() - answered
            self._journal.record(OutcomeReceived(t=self._journal.now(), front_end=front_end.number, seconds=late))


async def _disconnect_at_random(connection: ReconnectingClient, rng: Random) -> None:
    while True:
        await trio.sleep(rng.expovariate(1 / _CONNECTED_SECONDS))
        connection.disconnect()
