"""Signatures of webhooks, held to the published examples of the convention."""

import base64
import hashlib
import hmac
import traceback

import pytest

from heartbeat.delivery.settings import SigningKey, signature_headers

SECRET = "correct horse battery staple"


def test_the_signature_is_that_of_the_convention() -> None:
    headers = signature_headers(SigningKey(SECRET), "a1", 1700000000, b'{"text":"x"}')
    expected = base64.b64encode(hmac.digest(SECRET.encode(), b'a1.1700000000.{"text":"x"}', hashlib.sha256)).decode()
    assert headers == {
        "webhook-id": "a1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": f"v1,{expected}",
        "idempotency-key": "a1",
    }


def test_a_known_signature_comes_out() -> None:
    """Written down once, so that the key, the order and the encoding stay what receivers have been told."""
    headers = signature_headers(SigningKey("whsec_" + base64.b64encode(b"k" * 32).decode()), "id", 1, b"body")
    assert headers["webhook-signature"] == "v1,42jVZDBFyNM5w+qB0fxxMo8D6DDkDfpaIcNE4dqfFI8="


@pytest.mark.parametrize("secret", ["short", "whsec_not base64 at all!", "whsec_c2hvcnQ="])
def test_a_secret_that_is_none_is_refused_without_showing_it(secret: str) -> None:
    with pytest.raises(ValueError, match="secret") as caught:
        SigningKey(secret)
    said = "".join(traceback.format_exception(caught.value, chain=True))
    assert secret.removeprefix("whsec_") not in said.replace("too short", "")


def test_a_key_shows_itself_nowhere() -> None:
    key = SigningKey(SECRET)
    assert SECRET not in f"{key!r} {key} {[key]}"
