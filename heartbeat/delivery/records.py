"""What is kept of an alert, from its acceptance until long after its end; one document each."""

from enum import StrEnum

import msgspec

from heartbeat.delivery.channel import Alert
from heartbeat.delivery.targets import Place

__all__ = ["KIND", "PlaceStatus", "Record", "State", "Statistics", "Undelivered", "decode_record", "encode_record"]

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
