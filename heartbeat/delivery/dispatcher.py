"""Delivery of alerts: the outbox's async shell, its events, and alerts on standard output.

An alert is published exactly once, in the transaction that keeps it. Out of this process it goes at least once, with
the id by which the receiver recognizes it.
"""

import datetime as dt
import logging
import math
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, assert_never

import trio

from heartbeat.delivery.channel import Alert, DeliveryChannel, DeliveryFailed, EventPublisher, Outlet, truncate_alert
from heartbeat.delivery.outbox import (
    ALERT_KIND,
    AlertOutbox,
    DeliveryAttempt,
    DeliveryStatistics,
    OutboxAction,
    OutboxLimits,
    PublishAlert,
    PublishUndeliverable,
    SaveRecord,
    decode_record,
    encode_record,
)
from heartbeat.delivery.targets import DeliveryTarget, resolve_target
from heartbeat.ports import Documents, TransactionFactory
from wire.events import EventType
from wire.framing import DECODE_ERRORS
from wire.log_context import facts

_EXCERPT_LENGTH = 200
_OUTLET_ATTEMPTS = 12
_logger = logging.getLogger("pool.delivery")


class AlertDispatcher:
    """Delivers alerts: ``await load()`` once, then ``accept`` at any time; attempts are made while ``run`` runs.

    ``channels`` and ``outlets`` go by the first part of a target (``webhook``, ``stdout``). ``last_channel`` gives the
    ``channel:peer`` of a session's latest message. Changes to documents and stream inside ``transaction()`` become
    durable in one step. ``clock`` gives Unix time in seconds.
    """

    def __init__(
        self,
        documents: Documents,
        stream: EventPublisher,
        *,
        channels: Mapping[str, DeliveryChannel],
        outlets: Mapping[str, Outlet],
        last_channel: Callable[[str], str | None],
        transaction: TransactionFactory = nullcontext,
        limits: OutboxLimits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._documents = documents
        self._stream = stream
        self.channels = channels
        """May be replaced; alerts of a removed channel become undeliverable."""
        self._outlets = outlets
        self._last_channel = last_channel
        self._transaction = transaction
        self._clock = clock
        self._outbox = AlertOutbox(limits or OutboxLimits())
        self._nursery: trio.Nursery | None = None
        self._wake = trio.Event()
        self._armed_for = math.inf

    async def load(self) -> None:
        """Take over the alerts of the previous supervisor. An unreadable document stays in place and is logged."""
        records = []
        for key, body in (await self._documents.load(ALERT_KIND)).items():
            try:
                records.append(decode_record(body))
            except DECODE_ERRORS as exc:
                _logger.error("alert_unreadable", extra=facts(alert=key, error=str(exc)))  # noqa: TRY400  # what is wrong is in the document
        self._perform_all(self._outbox.restore(records, trio.current_time(), self._clock()))

    def accept(self, alert: Alert) -> None:
        """Take an alert over and keep it in the same step; a known id is ignored.

        Raises UsageError for an invalid target or id.
        """
        place = resolve_target(alert.target, self._last_channel(alert.session))
        if place is not None:
            self._perform_all(self._outbox.accept(truncate_alert(alert), place, trio.current_time(), self._clock()))

    def statistics(self) -> DeliveryStatistics:
        """Waiting and undeliverable alerts."""
        return self._outbox.statistics()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Deliver until cancelled; the next supervisor retries attempts in progress."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            while True:
                due = self._outbox.next_due()
                self._armed_for = math.inf if due is None else due
                self._wake = trio.Event()
                with trio.move_on_at(self._armed_for):
                    await self._wake.wait()
                    continue
                self._perform_all(self._outbox.tick(trio.current_time()))

    def _perform_all(self, actions: Sequence[OutboxAction]) -> None:
        """Perform actions and their follow-ups in one store transaction."""
        todo = deque(actions)
        with self._transaction():
            while todo:
                todo.extend(self._perform(todo.popleft()))
        due = self._outbox.next_due()
        if due is not None and due < self._armed_for:
            self._wake.set()

    def _perform(self, action: OutboxAction) -> Sequence[OutboxAction]:
        match action:
            case PublishAlert(alert, place):
                self._publish_alert(alert, place)
            case SaveRecord(alert_id, record):
                self._documents.put(ALERT_KIND, alert_id, None if record is None else encode_record(record))
            case PublishUndeliverable(alert, record):
                self._publish_monitor(
                    alert, record.place, "undeliverable", attempts=record.attempts, error=record.error
                )
                known = facts(alert=alert.id, to=str(record.place), error=record.error)
                _logger.warning("alert_undeliverable", extra=known)
            case DeliveryAttempt():
                return self._start_attempt(action)
            case _:
                assert_never(action)
        return ()

    def _publish_alert(self, alert: Alert, place: DeliveryTarget) -> None:
        """Publish for operators and, unless one of our channels delivers it elsewhere, for the session. Durable."""
        self._publish_monitor(alert, place, "alert")
        if place.is_carried:
            event = {**_facts(alert, place), "ts": alert.ts, "text": alert.text, "media": alert.media}
            self._stream.publish(alert.session, EventType.ALERT, event)

    def _publish_monitor(self, alert: Alert, place: DeliveryTarget, state: str, **failure: int | str) -> None:
        event = {"state": state, **_facts(alert, place), "text": alert.text[:_EXCERPT_LENGTH], **failure}
        self._stream.publish(alert.session, EventType.HEARTBEAT, event)

    def _start_attempt(self, attempt: DeliveryAttempt) -> Sequence[OutboxAction]:
        outlet = self._outlets.get(attempt.target.channel)
        if outlet is None:
            assert self._nursery is not None  # noqa: S101 - only ticks begin, and only ``run`` ticks
            self._nursery.start_soon(self._deliver, attempt)
            return ()
        try:
            outlet.show(attempt.alert)
        except DeliveryFailed as failure:
            return self._record_failure(attempt, failure, _OUTLET_ATTEMPTS)
        return self._outbox.delivered(attempt.alert.id)

    async def _deliver(self, attempt: DeliveryAttempt) -> None:
        channel, peer = self.channels.get(attempt.target.channel), attempt.target.peer
        if channel is None:
            failure = DeliveryFailed(f"the settings have no {attempt.target} any more", permanent=True)
            self._perform_all(self._record_failure(attempt, failure, 1))
        elif failed := await self._try_deliver(channel, attempt):
            self._perform_all(self._record_failure(attempt, failed, channel.max_attempts(peer)))
        else:
            self._perform_all(self._outbox.delivered(attempt.alert.id))

    async def _try_deliver(self, channel: DeliveryChannel, attempt: DeliveryAttempt) -> DeliveryFailed | None:
        try:
            await channel.deliver(attempt.alert, attempt.target.peer, attempt.number)
        except DeliveryFailed as failure:
            return failure
        except Exception:  # a defect of a channel must not end the supervisor
            _logger.exception("alert_delivery_defect", extra=facts(alert=attempt.alert.id, to=str(attempt.target)))
            return DeliveryFailed("a defect of the supervisor; its log has the traceback")
        return None

    def _record_failure(
        self, attempt: DeliveryAttempt, failure: DeliveryFailed, max_attempts: int
    ) -> Sequence[OutboxAction]:
        now, wall = trio.current_time(), self._clock()
        return self._outbox.failed(attempt.alert.id, failure, max_attempts, now, wall)


def _facts(alert: Alert, place: DeliveryTarget) -> dict[str, Any]:
    """``to``: the channel and peer to which a front end delivers it; ``events`` = the session's followers."""
    return {"id": alert.id, "agent": alert.agent, "to": str(place), "reason": alert.reason}


_CONTROL_CODES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control codes and changes of direction: an agent's text must not move the cursor or pretend to be another line."""


class StdoutOutlet:
    """Writes alerts to standard output."""

    def __init__(self, write: Callable[[str], None]) -> None:
        """``write`` takes lines without the last line end and does not wait; it may raise OSError."""
        self._write = write

    def show(self, alert: Alert) -> None:
        """Write it. Raises DeliveryFailed."""
        try:
            self._write(render_alert(alert))
        except OSError as exc:
            raise DeliveryFailed(f"the output cannot be written: {exc.strerror or type(exc).__name__}") from exc


def render_alert(alert: Alert) -> str:
    """``2026-01-02T03:04:05Z alert AGENT (SESSION, REASON)``, below it the text, indented; files as ``MEDIA:``."""
    at = dt.datetime.fromtimestamp(alert.ts, dt.UTC)
    head = f"{at:%Y-%m-%dT%H:%M:%SZ} alert {alert.agent} ({alert.session}, {alert.reason})"
    body = alert.text.replace("\r\n", "\n").split("\n")
    files = (f"MEDIA:{path}" for path in alert.media)
    return "\n".join([_clean_line(head), *(f"    {_clean_line(line)}".rstrip() for line in (*body, *files))])


def _clean_line(line: str) -> str:
    return _CONTROL_CODES.sub("\N{REPLACEMENT CHARACTER}", line.replace("\n", " "))
