"""The outbox's async shell: it takes alerts, keeps them, has them delivered, and goes on after a restart.

Towards the event stream an alert goes exactly once: it is published in the step that keeps it. Out of this process it
goes at least once, with its id, by which the other side knows it again.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import assert_never

import msgspec
import structlog
import trio

from heartbeat.delivery.channel import Alert, Channel, DeliveryFailed, EventStream, Outlet, bounded
from heartbeat.delivery.outbox import Action, Attempt, GiveUp, Keep, Limits, Outbox, Tell
from heartbeat.delivery.records import KIND, Record, Statistics, decode_record, encode_record
from heartbeat.delivery.stream import StreamVoice
from heartbeat.delivery.targets import place_of
from heartbeat.ports import Documents
from heartbeat.run_ports import Together

__all__ = ["Courier", "open_courier"]

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
