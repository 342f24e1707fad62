"""The webhook channel: a signed POST to addresses that are resolved once and checked."""

import socket
import time
from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
import trio

from heartbeat.delivery.channel import Alert, DeliveryFailed
from heartbeat.delivery.settings import DeliverySettings, SigningKey, WebhookSettings, signature_headers, signing_key
from heartbeat.delivery.targets import blocked_reason


async def resolve_host(host: str, port: int, *, allow_private: bool) -> list[str]:
    """Every address of the host, in the order of preference. Cancellable; a literal address is checked all the same.

    One address that is refused refuses them all: a name that leads inwards as well as outwards is a trap or a mistake.
    Raises DeliveryFailed.
    """
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise DeliveryFailed(f"the host {host} cannot be resolved: {_error_text(exc)}") from exc
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not addresses:
        raise DeliveryFailed(f"the host {host} has no address")
    for address in addresses:
        if why := blocked_reason(address, allow_private=allow_private):
            text = f"the host {host} leads to {address}, which is refused: {why} (see allow_private)"
            raise DeliveryFailed(text, permanent=True)
    return addresses


def _error_text(error: OSError | UnicodeError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


_PORTS = {"http": 80, "https": 443}
_RETRYABLE = frozenset({408, 425, 429})
"""Refusals that time mends, beside those of 500 and above."""


class WebhookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is ready to go. ``addresses``: where ``host`` was found, the only ones to connect to.

    ``path`` is what follows the host in the URL; ``patience``: seconds for one connection to be made.
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
        return f"Parcel({self.origin})"

    @property
    def origin(self) -> str:
        """What errors call the other side; the path stays untold, since with many services it is a secret."""
        return f"{self.scheme}://{self.authority}"


class WebhookResponse(msgspec.Struct, frozen=True):
    """The head of a reply. ``retry_after``: the header as it came."""

    status: int
    retry_after: str = ""


class WebhookSender(Protocol):
    """What sends parcels: see ``post.HttpPoster``."""

    async def send(self, parcel: WebhookRequest) -> WebhookResponse:
        """Send it to the first of its addresses that can be reached. Raises DeliveryFailed."""
        ...


class _Payload(msgspec.Struct, frozen=True, kw_only=True):
    """The body, as JSON. ``type`` is always ``alert``; ``timestamp`` is Unix time in seconds."""

    type: str
    timestamp: float
    id: str
    agent: str
    session: str
    reason: str
    text: str
    media: tuple[str, ...]


class _Webhook(msgspec.Struct, frozen=True):
    settings: WebhookSettings
    key: SigningKey


class WebhookChannel:
    """All webhooks of the settings, each reached by its name."""

    def __init__(
        self, hooks: Mapping[str, tuple[WebhookSettings, SigningKey]], poster: WebhookSender, clock: Callable[[], float]
    ) -> None:
        """``clock`` gives Unix time in seconds."""
        self._webhooks = {name: _Webhook(settings, key) for name, (settings, key) in hooks.items()}
        self._sender = poster
        self._clock = clock

    def max_attempts(self, peer: str) -> int:
        """As the settings say; one for a webhook that is not there."""
        hook = self._webhooks.get(peer)
        return hook.settings.max_attempts if hook else 1

    async def deliver(self, alert: Alert, peer: str, attempt: int) -> None:
        """Post the alert; returns when it was taken (2xx). Raises DeliveryFailed."""
        hook = self._webhooks.get(peer)
        if hook is None:
            raise DeliveryFailed(f"there is no webhook {peer!r} in the settings", permanent=True)
        timeout = hook.settings.timeout
        with trio.move_on_after(timeout) as scope:
            answer = await self._send(alert, hook, attempt)
        if scope.cancelled_caught:
            raise DeliveryFailed(f"{hook.settings.origin} did not answer within {timeout:g} s")
        _check_response(answer, hook.settings.origin)

    async def _send(self, alert: Alert, hook: _Webhook, attempt: int) -> WebhookResponse:
        url, settings = urlsplit(hook.settings.url), hook.settings
        host, port = url.hostname or "", url.port or _PORTS[url.scheme]
        addresses = await resolve_host(host, port, allow_private=settings.allow_private)
        body = _body_of(alert)
        return await self._sender.send(
            WebhookRequest(
                scheme=url.scheme,
                host=host,
                port=port,
                authority=url.netloc,
                path=f"{url.path or '/'}{'?' if url.query else ''}{url.query}",
                addresses=tuple(addresses[:4]),
                headers={
                    "content-type": "application/json",
                    "user-agent": "pool",
                    "pool-attempt": str(attempt),
                    **signature_headers(hook.key, alert.id, int(self._clock()), body),
                },
                body=body,
                connect_timeout=settings.timeout / min(len(addresses), 4),
            )
        )


def open_webhooks(
    settings: DeliverySettings, environment: Mapping[str, str], clock: Callable[[], float] = time.time
) -> WebhookChannel:
    """The webhooks of the settings; without any, nothing of HTTP is loaded.

    Raises UsageError where the environment does not have a secret.
    """
    hooks = {name: (hook, signing_key(name, hook, environment)) for name, hook in settings.webhooks.items()}
    return WebhookChannel(hooks, _make_sender() if hooks else _NoSender(), clock)


def _make_sender() -> WebhookSender:
    from heartbeat.delivery.http_sender import HttpSender  # noqa: PLC0415 - httpx is heavy, and may never be needed

    return HttpSender()


class _NoSender:
    """Stands where no webhook is: nothing comes here."""

    async def send(self, parcel: WebhookRequest) -> WebhookResponse:
        raise DeliveryFailed(f"{parcel.origin}: no webhook is configured", permanent=True)


def _body_of(alert: Alert) -> bytes:
    return msgspec.json.encode(
        _Payload(
            type="alert",
            timestamp=alert.ts,
            id=alert.id,
            agent=alert.agent,
            session=alert.session,
            reason=alert.reason,
            text=alert.text,
            media=alert.media,
        )
    )


def _check_response(answer: WebhookResponse, origin: str) -> None:
    """Raises DeliveryFailed unless the alert was taken."""
    status = answer.status
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        why = "which is not followed: set the URL that it leads to"
        raise DeliveryFailed(f"{origin} answered with a redirect ({status}), {why}", permanent=True)
    wish = answer.retry_after.strip()
    raise DeliveryFailed(
        f"{origin} answered {status}",
        permanent=status < 500 and status not in _RETRYABLE,
        retry_after=float(wish) if wish.isascii() and wish.isdigit() and len(wish) < 9 else None,
    )
