"""What the event stream is told of alerts: each one for whoever governs, and for its session where it goes there."""

import msgspec

from heartbeat.delivery.channel import Alert, EventStream
from heartbeat.delivery.records import Record
from heartbeat.delivery.targets import Place
from wire.envelope import Channel as EventChannel

__all__ = ["ALERT", "HEARTBEAT", "StreamVoice"]

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
