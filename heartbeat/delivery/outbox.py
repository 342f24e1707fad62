"""Alert outbox machine and records. Pure.

What is kept of an alert, from its acceptance until long after its end; one document each.

Which alert is tried when, and what becomes of it: a pure machine, told what happened, answers what to do.

Every alert that is not simply published has a lane of its place: one attempt at a time there, so that a place that is
slow, or dead, holds up nobody but itself. An alert whose attempt failed is tried again later, on its own schedule, so
that one which is refused for what it says does not hold up the others of its place.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from errors import InternalError
from heartbeat.delivery.channel import Alert, DeliveryFailed
from heartbeat.delivery.targets import Place
from wire.timers import Timetable

KIND = "alert"
"""Of the documents."""


class State(StrEnum):
    """How far an alert has come."""

    WAITING = "waiting"
    UNDELIVERABLE = "undeliverable"
    ENDED = "ended"


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An alert and what became of it so far. Times are Unix seconds.

    Of one that has ended only the id is left, so that it is not delivered again. ``attempts`` are those that failed,
    ``error`` is the last one's, ``next_try`` when the next one is due.
    """

    id: str
    place: Place
    state: State = State.WAITING
    alert: Alert | None = None
    attempts: int = 0
    next_try: float = 0.0
    error: str = ""


class Undelivered(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that could not be delivered, as the status shows it. ``text`` is its beginning."""

    id: str
    agent: str
    session: str
    to: str
    reason: str
    ts: float
    text: str
    attempts: int
    error: str


class PlaceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for one place. ``next_try``: Unix seconds of the next attempt; ``error``: of the latest failure."""

    to: str
    waiting: int
    in_flight: bool
    next_try: float
    error: str


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """The courier's figures. Counts are since the start, but for what waits and what is kept."""

    accepted: int
    delivered: int
    waiting: int
    places: tuple[PlaceStatus, ...]
    undeliverable: tuple[Undelivered, ...]
    """The latest ones, the oldest first."""
    forgotten: int
    """Undeliverable ones that had to make room for later ones."""


encode_record = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(Record).decode


_FIRST_PAUSE = 5.0
_LONGEST_PAUSE = 600.0
_LONGEST_WISH = 3600.0
_SHOWN = 200


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many alerts are kept: waiting for one place, undeliverable, and of those that have ended the ids."""

    waiting: int = 100
    undeliverable: int = 200
    ended: int = 2000


class Tell(msgspec.Struct, frozen=True):
    """Publish the alert in the event stream."""

    alert: Alert
    place: Place


class Keep(msgspec.Struct, frozen=True):
    """Keep what is known of the alert; None = forget it."""

    id: str
    record: Record | None


class Attempt(msgspec.Struct, frozen=True):
    """Try to deliver, and report ``delivered`` or ``failed``."""

    alert: Alert
    place: Place
    number: int


class GiveUp(msgspec.Struct, frozen=True):
    """Tell that the alert could not be delivered."""

    alert: Alert
    record: Record


Action = Tell | Keep | Attempt | GiveUp


def pause_after(attempts: int, retry_after: float | None) -> float:
    """Seconds until the next attempt: 5, 10, 20, ... at most 600; longer (to 3600) where the other side asks for it."""
    grown = min(_FIRST_PAUSE * 2.0 ** min(attempts - 1, 10), _LONGEST_PAUSE)
    return max(grown, min(retry_after or 0.0, _LONGEST_WISH))


@dataclass(slots=True)
class _Lane:
    """The alerts for one place: all of them in their order, those that are due, and the one that is being tried."""

    waiting: dict[str, None] = field(default_factory=dict)
    due: deque[str] = field(default_factory=deque)
    in_flight: str | None = None


class Outbox:
    """``now`` is in seconds on a clock that only goes forward, ``wall`` Unix time in seconds."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: dict[str, tuple[Record, Alert]] = {}
        self._lost: dict[str, tuple[Record, Alert]] = {}
        self._done: dict[str, None] = {}
        self._lanes: dict[Place, _Lane] = {}
        self._timetable: Timetable[str] = Timetable()
        self._accepted = self._delivered = self._forgotten = 0

    # --- stimuli ------------------------------------------------------------------------------------------------------

    def restore(self, records: Iterable[Record], now: float, wall: float) -> list[Action]:
        """Go on with what an earlier supervisor has kept. A pause that has begun is not begun anew."""
        for record in records:
            if record.state is State.ENDED or record.alert is None:
                self._done[record.id] = None
            elif record.state is State.UNDELIVERABLE:
                self._lost[record.id] = (record, record.alert)
            else:
                self._enter(record, record.alert, now + min(max(record.next_try - wall, 0.0), _LONGEST_WISH))
        return self._forget_most()

    def accept(self, alert: Alert, place: Place, now: float, wall: float) -> list[Action]:
        """An alert for a place. One that is known is nothing new, whatever became of it."""
        if alert.id in self._waiting or alert.id in self._lost or alert.id in self._done:
            return []
        self._accepted += 1
        tell = Tell(alert, place)
        if place.is_carried:
            return [tell, *self._finish(Record(id=alert.id, place=place))]
        record = Record(id=alert.id, place=place, alert=alert, next_try=wall)
        self._enter(record, alert, now)
        return [tell, Keep(alert.id, record), *self._make_room(place)]

    def tick(self, now: float) -> list[Action]:
        """Time has passed; to be called at ``next_due``."""
        touched: dict[Place, None] = {}
        for alert_id in self._timetable.pop_due(now):
            place = self._waiting[alert_id][0].place
            self._lanes[place].due.append(alert_id)
            touched[place] = None
        return [action for place in touched for action in self._next_of(place)]

    def delivered(self, alert_id: str) -> list[Action]:
        """The attempt has succeeded."""
        record, _ = self._landed(alert_id)
        self._leave(record)
        return [*self._finish(record), *self._next_of(record.place)]

    def failed(
        self, alert_id: str, failure: DeliveryFailed, max_attempts: int, now: float, wall: float
    ) -> list[Action]:
        """The attempt has failed."""
        record, alert = self._landed(alert_id)
        attempts = record.attempts + 1
        pause = pause_after(attempts, failure.retry_after)
        record = msgspec.structs.replace(record, attempts=attempts, error=failure.message, next_try=wall + pause)
        if failure.permanent or attempts >= max_attempts:
            self._leave(record)
            return [*self._give_up(record, alert), *self._next_of(record.place)]
        self._enter(record, alert, now + pause)
        return [Keep(alert_id, record), *self._next_of(record.place)]

    def next_due(self) -> float | None:
        """When ``tick`` wants to be called; None = not before something else happens."""
        return self._timetable.next_due()

    # --- figures ------------------------------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """What waits where, and what could not be delivered. Goes through all that is kept: for reports."""
        return Statistics(
            accepted=self._accepted,
            delivered=self._delivered,
            waiting=len(self._waiting),
            places=tuple(self._place_status(place, lane) for place, lane in self._lanes.items()),
            undeliverable=tuple(_shown(record, alert) for record, alert in self._lost.values()),
            forgotten=self._forgotten,
        )

    def _place_status(self, place: Place, lane: _Lane) -> PlaceStatus:
        records = [self._waiting[alert_id][0] for alert_id in lane.waiting]
        latest = max(records, key=lambda record: record.next_try if record.error else 0.0)
        return PlaceStatus(
            to=str(place),
            waiting=len(records),
            in_flight=lane.in_flight is not None,
            next_try=min(record.next_try for record in records),
            error=latest.error,
        )

    # --- lanes --------------------------------------------------------------------------------------------------------

    def _enter(self, record: Record, alert: Alert, due: float) -> None:
        self._waiting[record.id] = (record, alert)
        self._lanes.setdefault(record.place, _Lane()).waiting[record.id] = None
        self._timetable.set(record.id, due)

    def _next_of(self, place: Place) -> Iterator[Action]:
        """The attempt that the place is free for, if there is one."""
        lane = self._lanes.get(place)
        if lane is None or lane.in_flight is not None:
            return
        while lane.due:
            alert_id = lane.due.popleft()
            if alert_id in lane.waiting:  # else it has had to make room
                lane.in_flight = alert_id
                record, alert = self._waiting[alert_id]
                yield Attempt(alert, place, record.attempts + 1)
                return

    def _landed(self, alert_id: str) -> tuple[Record, Alert]:
        """The attempt is over; the place is free for another one."""
        record, alert = self._waiting.get(alert_id, (None, None))
        if record is None or alert is None or self._lanes[record.place].in_flight != alert_id:
            raise InternalError(f"the alert {alert_id} is not being delivered")
        self._lanes[record.place].in_flight = None
        return record, alert

    def _leave(self, record: Record) -> None:
        lane = self._lanes[record.place]
        del self._waiting[record.id], lane.waiting[record.id]
        self._timetable.discard(record.id)
        if not lane.waiting:
            del self._lanes[record.place]

    def _make_room(self, place: Place) -> list[Action]:
        """Where too many wait for one place, the oldest that is not being tried gives way."""
        lane = self._lanes[place]
        if len(lane.waiting) <= self._limits.waiting:
            return []
        oldest = next(alert_id for alert_id in lane.waiting if alert_id != lane.in_flight)
        record, alert = self._waiting[oldest]
        self._leave(record)
        why = f"more than {self._limits.waiting} alerts waited for {place}"
        error = f"{why}; the last error: {record.error}" if record.error else why
        return self._give_up(msgspec.structs.replace(record, error=error), alert)

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _finish(self, record: Record) -> list[Action]:
        self._delivered += 1
        return [self._note_end(record), *self._forget_most()]

    def _give_up(self, record: Record, alert: Alert) -> list[Action]:
        lost = msgspec.structs.replace(record, state=State.UNDELIVERABLE, next_try=0.0)
        self._lost[record.id] = (lost, alert)
        return [Keep(record.id, lost), GiveUp(alert, lost), *self._forget_most()]

    def _forget_most(self) -> list[Action]:
        """Of what is over, the oldest makes room for the latest: first its text, long afterwards its id."""
        actions: list[Action] = []
        for alert_id in _oldest(self._lost, self._limits.undeliverable):
            actions.append(self._note_end(self._lost.pop(alert_id)[0]))
            self._forgotten += 1
        for alert_id in _oldest(self._done, self._limits.ended):
            del self._done[alert_id]
            actions.append(Keep(alert_id, None))
        return actions

    def _note_end(self, record: Record) -> Keep:
        self._done[record.id] = None
        return Keep(record.id, Record(id=record.id, place=record.place, state=State.ENDED))


def _oldest(kept: Mapping[str, object], limit: int) -> list[str]:
    return [alert_id for alert_id, _ in zip(kept, range(len(kept) - limit), strict=False)]


def _shown(record: Record, alert: Alert) -> Undelivered:
    return Undelivered(
        id=record.id,
        agent=alert.agent,
        session=alert.session,
        to=str(record.place),
        reason=alert.reason,
        ts=alert.ts,
        text=alert.text[:_SHOWN],
        attempts=record.attempts,
        error=record.error,
    )
