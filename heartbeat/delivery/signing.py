"""How a webhook's request proves where it comes from: the headers of the Standard Webhooks convention. Pure.

The signature is HMAC-SHA256 over ``{id}.{timestamp}.{body}``. The receiver computes it anew, refuses timestamps that
are minutes old, and takes an id that it has seen for the same alert.
"""

import base64
import binascii
import hashlib
import hmac

__all__ = ["SHORTEST_SECRET", "SigningKey", "headers_of"]

SHORTEST_SECRET = 16
"""Characters, or bytes where it is base64: what can be guessed signs nothing."""
_ENCODED = "whsec_"


class SigningKey:
    """The secret that a webhook and its receiver share. It signs, and shows itself to nobody."""

    __slots__ = ("_key",)

    def __init__(self, secret: str) -> None:
        """``whsec_...`` is base64 as receivers' libraries expect it, anything else the key itself.

        Raises ValueError, whose message does not hold the secret.
        """
        self._key = _decoded(secret)
        if len(self._key) < SHORTEST_SECRET:
            msg = f"the secret is too short: {SHORTEST_SECRET} characters at least"
            raise ValueError(msg)

    def __repr__(self) -> str:
        return "SigningKey(***)"

    def signature(self, message: bytes) -> str:
        """Base64 of the HMAC-SHA256."""
        return base64.b64encode(hmac.digest(self._key, message, hashlib.sha256)).decode()


def headers_of(key: SigningKey, alert_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """What goes with the body. ``timestamp``: Unix time in seconds, of this attempt."""
    signed = key.signature(b"%b.%d.%b" % (alert_id.encode(), timestamp, body))
    return {
        "webhook-id": alert_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{signed}",
        "idempotency-key": alert_id,
    }


def _decoded(secret: str) -> bytes:
    if not secret.startswith(_ENCODED):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_ENCODED), validate=True)
    except binascii.Error:
        msg = f'the secret begins with "{_ENCODED}", but what follows is not base64'
        raise ValueError(msg) from None
