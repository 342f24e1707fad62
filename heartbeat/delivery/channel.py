"""Alerts, and the interfaces of the channels that deliver them."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import msgspec

from errors import PoolError, UsageError

TEXT_LIMIT = 16_384
"""Characters of an alert; a person is to read it."""
_MEDIA_LIMIT = 20
_PATH_LIMIT = 4096
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class Alert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An unsolicited message of an agent.

    ``id`` is what makes it the same alert when it is handed over twice. ``reason`` says what woke the agent, ``media``
    names files that go with the text, ``ts`` is Unix time in seconds, ``target`` as in the settings (see ``targets``).
    """

    id: str
    agent: str
    session: str
    text: str
    reason: str
    ts: float
    target: str = "last"
    media: tuple[str, ...] = ()


def truncate_alert(alert: Alert) -> Alert:
    """The alert with no more of everything than can be kept; what was cut says so.

    Raises UsageError for an id that could not stand in a header.
    """
    if not _ID.fullmatch(alert.id):
        raise UsageError(f"{alert.id[:140]!r} is no id of an alert: 1 to 128 letters, digits, '.', '_', ':' and '-'")
    left = len(alert.text) - TEXT_LIMIT
    note = f"\n[{left} more characters were left out]" if left > 0 else ""
    media = tuple(_replace_surrogates(path) for path in alert.media if len(path) <= _PATH_LIMIT)[:_MEDIA_LIMIT]
    return msgspec.structs.replace(alert, text=_replace_surrogates(alert.text[:TEXT_LIMIT]) + note, media=media)


def _replace_surrogates(text: str) -> str:
    """Without halves of characters, which no JSON can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class DeliveryFailed(PoolError):
    """An alert did not get through. The message is for a person and holds neither secrets nor the path of an URL.

    ``details``: ``permanent`` True says that trying again is of no use, ``retry_after`` (seconds) what the other side
    asked for.
    """

    code: ClassVar[str] = "delivery_failed"

    @property
    def permanent(self) -> bool:
        """Whether the same alert would fail in the same way again."""
        return bool(self.details.get("permanent", False))


class WebhookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook request that is ready to be sent. ``addresses``: where ``host`` was found, the only ones to connect to.

    ``path`` is what follows the host in the URL; ``connect_timeout``: seconds for one connection to be made.
    """

    scheme: str
    host: str
    port: int
    authority: str
    path: str
    addresses: tuple[str, ...]
    headers: Mapping[str, str]
    body: bytes
    connect_timeout: float

    def __repr__(self) -> str:
        return f"WebhookRequest({self.origin})"

    @property
    def origin(self) -> str:
        """What errors show of the receiver: not the path, which is a secret with many services."""
        return f"{self.scheme}://{self.authority}"


class WebhookResponse(msgspec.Struct, frozen=True):
    """The head of a reply. ``retry_after``: the header as it came."""

    status: int
    retry_after: str = ""


class DeliveryChannel(Protocol):
    """A slow, fallible way out. An alert may arrive more than once."""

    def max_attempts(self, peer: str) -> int:
        """How often an alert for that peer is tried in all."""
        ...

    async def deliver(self, alert: Alert, peer: str, attempt: int) -> None:
        """Hand it over; returns when the other side has it. Bounded in time. Raises DeliveryFailed."""
        ...


class Outlet(Protocol):
    """A way out that never waits; an alert is shown once."""

    def show(self, alert: Alert) -> None:
        """Raises DeliveryFailed when it cannot be shown now."""
        ...


class EventPublisher(Protocol):
    """The gateway's event stream."""

    def publish(self, session: str, type_: str, data: Any = None) -> object:
        """Give an event its place in the order of all events; neither blocks nor raises."""
        ...
