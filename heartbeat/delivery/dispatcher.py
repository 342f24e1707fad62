"""Outbox shell; event-stream and stdout outlets.

What the event stream is told of alerts: each one for whoever governs, and for its session where it goes there.

The outbox's async shell: it takes alerts, keeps them, has them delivered, and goes on after a restart.

Towards the event stream an alert goes exactly once: it is published in the step that keeps it. Out of this process it
goes at least once, with its id, by which the other side knows it again.

Alerts on the terminal of ``pool run``: a line that says whose it is, then its text, indented.
"""

import datetime as dt
import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import assert_never

import msgspec
import structlog
import trio

from heartbeat.delivery.channel import Alert, Channel, DeliveryFailed, EventStream, Outlet, bounded
from heartbeat.delivery.outbox import (
    KIND,
    Action,
    Attempt,
    GiveUp,
    Keep,
    Limits,
    Outbox,
    Record,
    Statistics,
    Tell,
    decode_record,
    encode_record,
)
from heartbeat.delivery.targets import Place, place_of
from heartbeat.ports import Documents, Together
from wire.messages import Channel as EventChannel

ALERT = "alert"
"""The progress event that front ends show, or carry to ``to``."""
HEARTBEAT = "heartbeat"
"""The monitor event."""
_BEGINNING = 200


class _AlertEvent(msgspec.Struct, frozen=True, kw_only=True):
    """``to``: the channel and the peer whom a front end is to bring it to; ``events`` = whoever follows the session."""

    id: str
    agent: str
    to: str
    reason: str
    ts: float
    text: str
    media: tuple[str, ...]


class _Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``state``: ``alert`` or ``undeliverable``; ``text`` is the beginning of it."""

    state: str
    id: str
    agent: str
    to: str
    reason: str
    text: str
    attempts: int = 0
    error: str = ""


class StreamVoice:
    """Puts alerts into the event stream. Durable: nobody sees one that a crash could take back."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream

    def tell(self, alert: Alert, place: Place) -> None:
        """There is an alert; its session hears of it unless a channel of ours brings it somewhere else."""
        self._monitor(alert, place, "alert")
        if place.is_carried:
            event = _AlertEvent(
                id=alert.id,
                agent=alert.agent,
                to=str(place),
                reason=alert.reason,
                ts=alert.ts,
                text=alert.text,
                media=alert.media,
            )
            self._stream.publish(alert.session, EventChannel.PROGRESS, ALERT, event, durable=True)

    def tell_lost(self, alert: Alert, record: Record) -> None:
        """It could not be delivered."""
        self._monitor(alert, record.place, "undeliverable", attempts=record.attempts, error=record.error)

    def _monitor(self, alert: Alert, place: Place, state: str, *, attempts: int = 0, error: str = "") -> None:
        outcome = _Outcome(
            state=state,
            id=alert.id,
            agent=alert.agent,
            to=str(place),
            reason=alert.reason,
            text=alert.text[:_BEGINNING],
            attempts=attempts,
            error=error,
        )
        self._stream.publish(alert.session, EventChannel.MONITOR, HEARTBEAT, outcome, durable=True)


_OUTLET_ATTEMPTS = 12


class Courier:
    """Delivers alerts. ``accept`` can be called from the start, attempts are made while ``run`` runs."""

    def __init__(
        self,
        documents: Documents,
        stream: EventStream,
        *,
        records: Iterable[Record],
        channels: Mapping[str, Channel],
        outlets: Mapping[str, Outlet],
        last_spoke: Callable[[str], str | None],
        together: Together,
        limits: Limits,
        clock: Callable[[], float],
    ) -> None:
        """See ``open_courier``."""
        self._documents = documents
        self._voice = StreamVoice(stream)
        self._channels = channels
        self._outlets = outlets
        self._last_spoke = last_spoke
        self._together = together
        self._clock = clock
        self._log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
        self._outbox = Outbox(limits)
        self._nursery: trio.Nursery | None = None
        self._wake = trio.Event()
        self._armed_for = math.inf
        self._do(self._outbox.restore(records, trio.current_time(), clock()))

    def accept(self, alert: Alert) -> None:
        """Take an alert over; from here on it is the courier's. It is kept in the same step.

        One whose id is known is nothing new: it is delivered once, however often it is handed over. Raises UsageError
        for a target or an id that makes no sense.
        """
        place = place_of(alert.target, self._last_spoke(alert.session))
        if place is not None:
            self._do(self._outbox.accept(bounded(alert), place, trio.current_time(), self._clock()))

    def reconfigure(self, channels: Mapping[str, Channel]) -> None:
        """Other channels from the next attempt on; those of a channel that is gone become undeliverable."""
        self._channels = channels

    def statistics(self) -> Statistics:
        """What waits where, and what could not be delivered."""
        return self._outbox.statistics()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Deliver until cancelled; what is under way then is tried again by the next supervisor."""
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
                self._do(self._outbox.tick(trio.current_time()))

    # --- performing ---------------------------------------------------------------------------------------------------

    def _do(self, actions: Sequence[Action]) -> None:
        """Perform actions and what they lead to at once, in one step of the store."""
        todo = deque(actions)
        with self._together():
            while todo:
                todo.extend(self._perform(todo.popleft()))
        due = self._outbox.next_due()
        if due is not None and due < self._armed_for:
            self._wake.set()

    def _perform(self, action: Action) -> Sequence[Action]:
        match action:
            case Tell(alert, place):
                self._voice.tell(alert, place)
            case Keep(alert_id, record):
                self._documents.put(KIND, alert_id, None if record is None else encode_record(record))
            case GiveUp(alert, record):
                self._voice.tell_lost(alert, record)
                self._log.warning("alert_undeliverable", alert=alert.id, to=str(record.place), error=record.error)
            case Attempt():
                return self._begin(action)
            case _:
                assert_never(action)
        return ()

    def _begin(self, attempt: Attempt) -> Sequence[Action]:
        outlet = self._outlets.get(attempt.place.channel)
        if outlet is None:
            assert self._nursery is not None  # noqa: S101 - only ticks begin, and only ``run`` ticks
            self._nursery.start_soon(self._deliver, attempt)
            return ()
        try:
            outlet.show(attempt.alert)
        except DeliveryFailed as failure:
            return self._failed(attempt, failure, _OUTLET_ATTEMPTS)
        return self._outbox.delivered(attempt.alert.id)

    async def _deliver(self, attempt: Attempt) -> None:
        channel, peer = self._channels.get(attempt.place.channel), attempt.place.peer
        if channel is None:
            failure = DeliveryFailed(f"there is no channel {attempt.place.channel!r} any more", permanent=True)
            self._do(self._failed(attempt, failure, 1))
        elif failed := await self._failure_of(channel, attempt):
            self._do(self._failed(attempt, failed, channel.max_attempts(peer)))
        else:
            self._do(self._outbox.delivered(attempt.alert.id))

    async def _failure_of(self, channel: Channel, attempt: Attempt) -> DeliveryFailed | None:
        try:
            await channel.deliver(attempt.alert, attempt.place.peer, attempt.number)
        except DeliveryFailed as failure:
            return failure
        except Exception:  # noqa: BLE001  # a channel's own defect must not end the supervisor; the log has all of it
            self._log.exception("alert_delivery_defect", alert=attempt.alert.id, to=str(attempt.place))
            return DeliveryFailed("a defect of the supervisor; its log has the traceback")
        return None

    def _failed(self, attempt: Attempt, failure: DeliveryFailed, max_attempts: int) -> Sequence[Action]:
        now, wall = trio.current_time(), self._clock()
        return self._outbox.failed(attempt.alert.id, failure, max_attempts, now, wall)


async def open_courier(
    documents: Documents,
    stream: EventStream,
    *,
    channels: Mapping[str, Channel],
    outlets: Mapping[str, Outlet],
    last_spoke: Callable[[str], str | None],
    together: Together = nullcontext,
    limits: Limits | None = None,
    clock: Callable[[], float] = time.time,
) -> Courier:
    """A courier that knows what the ones before it have left undone.

    ``channels`` and ``outlets`` go by the first part of a target (``webhook``, ``stdout``). ``last_spoke`` says where a
    session last spoke, as ``channel:peer``. What is put into the store and the stream inside of ``together()`` becomes
    durable in one step. ``clock`` gives Unix time in seconds.
    """
    bodies = await documents.load(KIND)
    return Courier(
        documents,
        stream,
        records=[record for key, body in bodies.items() if (record := _read(key, body))],
        channels=channels,
        outlets=outlets,
        last_spoke=last_spoke,
        together=together,
        limits=limits or Limits(),
        clock=clock,
    )


def _read(key: str, body: bytes) -> Record | None:
    """A document that makes no sense is left where it is, for whoever can read it; the log says so."""
    try:
        return decode_record(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        structlog.get_logger().error("alert_unreadable", alert=key, error=str(exc))
        return None


_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control codes and changes of direction: an agent's text must not move the cursor or pretend to be another line."""


class StdoutOutlet:
    """Writes alerts out."""

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
    return "\n".join([_fit(head), *(f"    {_fit(line)}".rstrip() for line in (*body, *files))])


def _fit(line: str) -> str:
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", line.replace("\n", " "))
