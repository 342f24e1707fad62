"""The webhook channel: a signed POST to addresses that are resolved once and checked."""

import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

import msgspec
import trio

from heartbeat.delivery.channel import Alert, DeliveryFailed, WebhookRequest, WebhookResponse
from heartbeat.delivery.settings import DeliverySettings, SigningKey, WebhookSettings, signature_headers, signing_key
from heartbeat.delivery.targets import WEBHOOK, blocked_reason


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


Send = Callable[[WebhookRequest], Awaitable[WebhookResponse]]
_PORTS = {"http": 80, "https": 443}
_RETRYABLE = frozenset({408, 425, 429})
"""Refusals that time mends, beside those of 500 and above."""


class WebhookChannel:
    """All webhooks of the settings, each reached by its name."""

    def __init__(
        self, hooks: Mapping[str, tuple[WebhookSettings, SigningKey]], send: Send, clock: Callable[[], float]
    ) -> None:
        """``send`` sends a request to the first address that can be reached. ``clock`` gives Unix time in seconds."""
        self._webhooks = hooks
        self._send = send
        self._clock = clock

    def max_attempts(self, peer: str) -> int:
        """As the settings say; one for a webhook that is not there."""
        return self._webhooks[peer][0].max_attempts if peer in self._webhooks else 1

    async def deliver(self, alert: Alert, peer: str, attempt: int) -> None:
        """Post the alert; returns when it was taken (2xx). Raises DeliveryFailed."""
        if peer not in self._webhooks:
            raise DeliveryFailed(f"there is no webhook {peer!r} in the settings", permanent=True)
        settings, key = self._webhooks[peer]
        with trio.move_on_after(settings.timeout) as scope:
            answer = await self._send(await self._request(alert, settings, key, attempt))
        if scope.cancelled_caught:
            raise DeliveryFailed(f"{settings.origin} did not answer within {settings.timeout:g} s")
        _check_response(answer, settings.origin)

    async def _request(self, alert: Alert, settings: WebhookSettings, key: SigningKey, attempt: int) -> WebhookRequest:
        url = urlsplit(settings.url)
        host, port = url.hostname or "", url.port or _PORTS[url.scheme]
        addresses = await resolve_host(host, port, allow_private=settings.allow_private)
        facts = ("id", "agent", "session", "reason", "text", "media")
        said = {"type": "alert", "timestamp": alert.ts} | {name: getattr(alert, name) for name in facts}
        body = msgspec.json.encode(said)
        return WebhookRequest(
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
                **signature_headers(key, alert.id, int(self._clock()), body),
            },
            body=body,
            connect_timeout=settings.timeout / min(len(addresses), 4),
        )


def open_webhooks(settings: DeliverySettings, environment: Mapping[str, str]) -> dict[str, WebhookChannel]:
    """The channel of the webhooks by its name; none, and nothing of HTTP is loaded, where the settings have none.

    Raises UsageError where the environment does not have a secret.
    """
    hooks = {name: (hook, signing_key(name, hook, environment)) for name, hook in settings.webhooks.items()}
    if not hooks:
        return {}
    from heartbeat.delivery.http_sender import HttpSender  # noqa: PLC0415 - httpx is heavy, and may never be needed

    return {WEBHOOK: WebhookChannel(hooks, HttpSender().send, time.time)}


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
