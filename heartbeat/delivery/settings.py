"""Settings of alert delivery, and signatures of webhook requests by the Standard Webhooks convention. Pure.

The signature is HMAC-SHA256 over ``{id}.{timestamp}.{body}``. The receiver recomputes it, refuses timestamps that are
minutes old, and recognizes repeated alerts by their id.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

import msgspec

from errors import UsageError
from wire.units import Seconds

MIN_SECRET_LENGTH = 16
"""Characters, or bytes where it is base64: what can be guessed signs nothing."""
_BASE64_PREFIX = "whsec_"


class SigningKey:
    """The secret shared by a webhook and its receiver. It signs, and is never shown."""

    __slots__ = ("_key",)

    def __init__(self, secret: str) -> None:
        """``whsec_...`` is base64 as receivers' libraries expect it, anything else the key itself.

        Raises ValueError, whose message does not hold the secret.
        """
        self._key = secret.encode()
        if secret.startswith(_BASE64_PREFIX):
            try:
                self._key = base64.b64decode(secret.removeprefix(_BASE64_PREFIX), validate=True)
            except binascii.Error:
                msg = f'the secret begins with "{_BASE64_PREFIX}", but what follows is not base64'
                raise ValueError(msg) from None
        if len(self._key) < MIN_SECRET_LENGTH:
            msg = f"the secret is too short: {MIN_SECRET_LENGTH} characters at least"
            raise ValueError(msg)

    def __repr__(self) -> str:
        return "SigningKey(***)"

    def signature(self, message: bytes) -> str:
        """Base64 of the HMAC-SHA256."""
        return base64.b64encode(hmac.digest(self._key, message, hashlib.sha256)).decode()


def signature_headers(key: SigningKey, alert_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """What goes with the body. ``timestamp``: Unix time in seconds, of this attempt."""
    signed = key.signature(b"%b.%d.%b" % (alert_id.encode(), timestamp, body))
    return {
        "webhook-id": alert_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{signed}",
        "idempotency-key": alert_id,
    }


_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_MAX_WEBHOOKS = 64
_LONGEST_URL = 2048
_LONGEST_TIMEOUT = 300


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address that alerts are posted to, as the target ``webhook:NAME``."""

    url: str
    """Begins with https:// or http://. A redirect is not followed: it counts as a failure."""
    secret: str = ""
    """The signing secret, at least 16 characters: ``whsec_`` and base64, or any text."""
    secret_env: str = ""
    """The environment variable with the secret, instead of ``secret``."""
    allow_private: bool = False
    """Whether the host may be on this machine or in a private network."""
    timeout: Seconds = Seconds(10)
    """The time of one attempt, from name resolution to the answer."""
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 12
    """The pauses grow from 5 s to 10 min; 12 attempts take about an hour."""

    def __post_init__(self) -> None:
        _check_url(self.url)
        if bool(self.secret) == bool(self.secret_env):
            msg = "one of secret and secret_env must be set, and only one"
            raise ValueError(msg)
        if self.secret:
            SigningKey(self.secret)
        if not 0 < self.timeout <= _LONGEST_TIMEOUT:
            msg = f"timeout must be more than 0 and at most {_LONGEST_TIMEOUT}s"
            raise ValueError(msg)

    def __repr__(self) -> str:
        """Without the secret, and without the path, which is one with many services."""
        return f"WebhookSettings({self.origin})"

    @property
    def origin(self) -> str:
        """The part of the URL that may be shown: scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


class DeliverySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Webhooks for alerts of heartbeats and scheduled tasks, besides the event stream and the terminal."""

    webhooks: dict[str, WebhookSettings] = {}
    """At most 64, by name."""

    def __post_init__(self) -> None:
        for name in self.webhooks:
            if not _NAME.fullmatch(name):
                msg = f"{name[:80]!r} is no name for a webhook: 1 to 64 of a-z, 0-9, _ and -"
                raise ValueError(msg)
        if len(self.webhooks) > _MAX_WEBHOOKS:
            msg = f"there are {len(self.webhooks)} webhooks, more than {_MAX_WEBHOOKS}"
            raise ValueError(msg)


def signing_key(name: str, settings: WebhookSettings, environment: Mapping[str, str]) -> SigningKey:
    """The key of a webhook. Raises UsageError where the environment does not have it."""
    if settings.secret:
        return SigningKey(settings.secret)
    secret = environment.get(settings.secret_env, "").strip()
    where = f"the environment variable {settings.secret_env} (delivery.webhooks.{name}.secret_env)"
    if not secret:
        raise UsageError(f"{where} is not set; it must hold the secret of the webhook")
    try:
        return SigningKey(secret)
    except ValueError as exc:
        raise UsageError(f"{where}: {exc}") from None


def _check_url(url: str) -> None:
    """Raises ValueError that does not quote the URL."""
    problem = f"cannot be read; it must be ASCII (a host in its xn-- form) of at most {_LONGEST_URL} characters"
    with suppress(ValueError):  # raised also for a port that is no number
        parts = urlsplit(url)
        _ = parts.port
        if len(url) <= _LONGEST_URL and url.isascii() and url.isprintable() and " " not in url:
            problem = _url_problem(parts)
    if problem:
        msg = f"url {problem}"
        raise ValueError(msg)


def _url_problem(parts: SplitResult) -> str:
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return "must begin with https://HOST or http://HOST"
    if parts.username is not None or parts.password is not None:
        return "may not hold a user name or password; requests are signed with the secret"
    return "may not hold a fragment" if parts.fragment else ""
