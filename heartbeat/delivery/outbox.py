"""The alert outbox: when each alert is attempted, and its record until after its end. Pure.

Each target has a queue with one attempt at a time: a slow target delays only itself. A failed alert is retried on a
schedule of its own and does not delay others of its target.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from errors import InternalError
from heartbeat.delivery.channel import Alert, DeliveryFailed
from heartbeat.delivery.targets import DeliveryTarget
from wire.timers import KeyedTimers

ALERT_KIND = "alert"
"""Of the documents."""


class AlertState(StrEnum):
    """How far an alert has come."""

    WAITING = "waiting"
    UNDELIVERABLE = "undeliverable"
    ENDED = "ended"


class AlertRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An alert and what became of it so far. Times are Unix seconds.

    Of one that has ended only the id is left, so that it is not delivered again. ``attempts`` are those that failed,
    ``error`` is the last one's, ``next_try`` when the next one is due.
    """

    id: str
    place: DeliveryTarget
    state: AlertState = AlertState.WAITING
    alert: Alert | None = None
    attempts: int = 0
    next_try: float = 0.0
    error: str = ""


class UndeliveredAlert(msgspec.Struct, frozen=True, kw_only=True):
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


class TargetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for one place. ``next_try``: Unix seconds of the next attempt; ``error``: of the latest failure."""

    to: str
    waiting: int
    in_flight: bool
    next_try: float
    error: str


class DeliveryStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of deliveries. Counts are since the start, but for what waits and what is kept."""

    accepted: int
    delivered: int
    waiting: int
    places: tuple[TargetStatus, ...]
    undeliverable: tuple[UndeliveredAlert, ...]
    """The latest ones, the oldest first."""
    forgotten: int
    """Undeliverable ones that had to make room for later ones."""


encode_record = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(AlertRecord).decode


_FIRST_DELAY = 5.0
_MAX_DELAY = 600.0
_MAX_RETRY_AFTER = 3600.0
_EXCERPT_LENGTH = 200


class OutboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many alerts are kept: waiting for one place, undeliverable, and of those that have ended the ids."""

    waiting: int = 100
    undeliverable: int = 200
    ended: int = 2000


class PublishAlert(msgspec.Struct, frozen=True):
    """Publish the alert in the event stream."""

    alert: Alert
    target: DeliveryTarget


class SaveRecord(msgspec.Struct, frozen=True):
    """Keep what is known of the alert; None = forget it."""

    id: str
    record: AlertRecord | None


class DeliveryAttempt(msgspec.Struct, frozen=True):
    """Try to deliver, and report ``delivered`` or ``failed``."""

    alert: Alert
    target: DeliveryTarget
    number: int


class PublishUndeliverable(msgspec.Struct, frozen=True):
    """Publish that the alert could not be delivered."""

    alert: Alert
    record: AlertRecord


OutboxAction = PublishAlert | SaveRecord | DeliveryAttempt | PublishUndeliverable


def retry_delay(attempts: int, retry_after: float | None) -> float:
    """Seconds until the next attempt: 5, 10, 20, ... at most 600; longer (to 3600) where the other side asks for it."""
    grown = min(_FIRST_DELAY * 2.0 ** min(attempts - 1, 10), _MAX_DELAY)
    return max(grown, min(retry_after or 0.0, _MAX_RETRY_AFTER))


class _TargetQueue(msgspec.Struct):
    """The alerts for one place: all of them in their order, those that are due, and the one that is being tried."""

    waiting: dict[str, None] = msgspec.field(default_factory=dict)
    due: deque[str] = msgspec.field(default_factory=deque)
    in_flight: str | None = None


class AlertOutbox:
    """``now`` is in seconds on a clock that only goes forward, ``wall`` Unix time in seconds."""

    def __init__(self, limits: OutboxLimits) -> None:
        self._limits = limits
        self._waiting: dict[str, tuple[AlertRecord, Alert]] = {}
        self._undeliverable: dict[str, tuple[AlertRecord, Alert]] = {}
        self._ended: dict[str, None] = {}
        self._queues: dict[DeliveryTarget, _TargetQueue] = {}
        self._timers: KeyedTimers[str] = KeyedTimers()
        self._accepted = self._delivered = self._forgotten = 0

    def restore(self, records: Iterable[AlertRecord], now: float, wall: float) -> list[OutboxAction]:
        """Restore the previous supervisor's records; running pauses continue."""
        for record in records:
            if record.state is AlertState.ENDED or record.alert is None:
                self._ended[record.id] = None
            elif record.state is AlertState.UNDELIVERABLE:
                self._undeliverable[record.id] = (record, record.alert)
            else:
                self._enqueue(record, record.alert, now + min(max(record.next_try - wall, 0.0), _MAX_RETRY_AFTER))
        return self._prune()

    def accept(self, alert: Alert, place: DeliveryTarget, now: float, wall: float) -> list[OutboxAction]:
        """Accept an alert for a target. A known id is ignored."""
        if alert.id in self._waiting or alert.id in self._undeliverable or alert.id in self._ended:
            return []
        self._accepted += 1
        publish = PublishAlert(alert, place)
        if place.is_carried:
            return [publish, *self._finish(AlertRecord(id=alert.id, place=place))]
        record = AlertRecord(id=alert.id, place=place, alert=alert, next_try=wall)
        self._enqueue(record, alert, now)
        return [publish, SaveRecord(alert.id, record), *self._evict_oldest(place)]

    def tick(self, now: float) -> list[OutboxAction]:
        """Start due attempts; call it at ``next_due``."""
        touched: dict[DeliveryTarget, None] = {}
        for alert_id in self._timers.pop_due(now):
            place = self._waiting[alert_id][0].place
            self._queues[place].due.append(alert_id)
            touched[place] = None
        return [action for place in touched for action in self._next_attempt(place)]

    def delivered(self, alert_id: str) -> list[OutboxAction]:
        """The attempt has succeeded."""
        record, _ = self._finish_attempt(alert_id)
        self._remove(record)
        return [*self._finish(record), *self._next_attempt(record.place)]

    def failed(
        self, alert_id: str, failure: DeliveryFailed, max_attempts: int, now: float, wall: float
    ) -> list[OutboxAction]:
        """The attempt has failed."""
        record, alert = self._finish_attempt(alert_id)
        attempts = record.attempts + 1
        pause = retry_delay(attempts, failure.retry_after)
        record = msgspec.structs.replace(record, attempts=attempts, error=failure.message, next_try=wall + pause)
        if failure.permanent or attempts >= max_attempts:
            self._remove(record)
            return [*self._give_up(record, alert), *self._next_attempt(record.place)]
        self._enqueue(record, alert, now + pause)
        return [SaveRecord(alert_id, record), *self._next_attempt(record.place)]

    def next_due(self) -> float | None:
        """When to call ``tick``; None = not before another stimulus."""
        return self._timers.next_due()

    def statistics(self) -> DeliveryStatistics:
        """Waiting and undeliverable alerts. Iterates over all records."""
        return DeliveryStatistics(
            accepted=self._accepted,
            delivered=self._delivered,
            waiting=len(self._waiting),
            places=tuple(self._target_status(place, lane) for place, lane in self._queues.items()),
            undeliverable=tuple(_undelivered(record, alert) for record, alert in self._undeliverable.values()),
            forgotten=self._forgotten,
        )

    def _target_status(self, place: DeliveryTarget, lane: _TargetQueue) -> TargetStatus:
        records = [self._waiting[alert_id][0] for alert_id in lane.waiting]
        latest = max(records, key=lambda record: record.next_try if record.error else 0.0)
        return TargetStatus(
            to=str(place),
            waiting=len(records),
            in_flight=lane.in_flight is not None,
            next_try=min(record.next_try for record in records),
            error=latest.error,
        )

    def _enqueue(self, record: AlertRecord, alert: Alert, due: float) -> None:
        self._waiting[record.id] = (record, alert)
        self._queues.setdefault(record.place, _TargetQueue()).waiting[record.id] = None
        self._timers.set(record.id, due)

    def _next_attempt(self, place: DeliveryTarget) -> Iterator[OutboxAction]:
        """The attempt that the place is free for, if there is one."""
        lane = self._queues.get(place)
        if lane is None or lane.in_flight is not None:
            return
        while lane.due:
            alert_id = lane.due.popleft()
            if alert_id in lane.waiting:  # else it has had to make room
                lane.in_flight = alert_id
                record, alert = self._waiting[alert_id]
                yield DeliveryAttempt(alert, place, record.attempts + 1)
                return

    def _finish_attempt(self, alert_id: str) -> tuple[AlertRecord, Alert]:
        """The attempt is over; the place is free for another one."""
        record, alert = self._waiting.get(alert_id, (None, None))
        if record is None or alert is None or self._queues[record.place].in_flight != alert_id:
            raise InternalError(f"the alert {alert_id} is not being delivered")
        self._queues[record.place].in_flight = None
        return record, alert

    def _remove(self, record: AlertRecord) -> None:
        lane = self._queues[record.place]
        del self._waiting[record.id], lane.waiting[record.id]
        self._timers.discard(record.id)
        if not lane.waiting:
            del self._queues[record.place]

    def _evict_oldest(self, place: DeliveryTarget) -> list[OutboxAction]:
        """Give up the oldest waiting alert of a full queue, except the one in flight."""
        lane = self._queues[place]
        if len(lane.waiting) <= self._limits.waiting:
            return []
        oldest = next(alert_id for alert_id in lane.waiting if alert_id != lane.in_flight)
        record, alert = self._waiting[oldest]
        self._remove(record)
        why = f"more than {self._limits.waiting} alerts waited for {place}"
        error = f"{why}; the last error: {record.error}" if record.error else why
        return self._give_up(msgspec.structs.replace(record, error=error), alert)

    def _finish(self, record: AlertRecord) -> list[OutboxAction]:
        self._delivered += 1
        return [self._record_end(record), *self._prune()]

    def _give_up(self, record: AlertRecord, alert: Alert) -> list[OutboxAction]:
        lost = msgspec.structs.replace(record, state=AlertState.UNDELIVERABLE, next_try=0.0)
        self._undeliverable[record.id] = (lost, alert)
        return [SaveRecord(record.id, lost), PublishUndeliverable(alert, lost), *self._prune()]

    def _prune(self) -> list[OutboxAction]:
        """Drop the oldest ended alerts: first the text, much later the id."""
        actions: list[OutboxAction] = []
        while len(self._undeliverable) > self._limits.undeliverable:
            record, _ = self._undeliverable.pop(next(iter(self._undeliverable)))
            actions.append(self._record_end(record))
            self._forgotten += 1
        while len(self._ended) > self._limits.ended:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            actions.append(SaveRecord(oldest, None))
        return actions

    def _record_end(self, record: AlertRecord) -> SaveRecord:
        self._ended[record.id] = None
        return SaveRecord(record.id, AlertRecord(id=record.id, place=record.place, state=AlertState.ENDED))


def _undelivered(record: AlertRecord, alert: Alert) -> UndeliveredAlert:
    return UndeliveredAlert(
        id=record.id,
        agent=alert.agent,
        session=alert.session,
        to=str(record.place),
        reason=alert.reason,
        ts=alert.ts,
        text=alert.text[:_EXCERPT_LENGTH],
        attempts=record.attempts,
        error=record.error,
    )
