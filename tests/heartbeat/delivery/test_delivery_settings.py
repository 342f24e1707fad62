"""What the ``[delivery]`` table may say, how it is refused without showing secrets, and what the secret signs."""

import base64
import hashlib
import hmac
import traceback
from typing import Any

import msgspec
import pytest

from errors import UsageError
from heartbeat.delivery.settings import DeliverySettings, SigningKey, WebhookSettings, signature_headers, signing_key
from wire.units import decode_unit

SECRET = "correct horse battery staple"
URL = "https://hooks.example:8443/services/T0/B0/very-hidden?key=also-hidden"


def read(**fields: Any) -> WebhookSettings:
    return msgspec.convert({"url": URL, "secret": SECRET, **fields}, WebhookSettings, dec_hook=decode_unit)


def test_a_webhook_needs_an_url_and_a_secret_and_has_defaults_for_the_rest() -> None:
    hook = read()
    assert (hook.allow_private, hook.timeout, hook.max_attempts) == (False, 10.0, 12)
    assert read(timeout="30s").timeout == 30.0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"url": ""}, "must begin with https"),
        ({"url": "ftp://hooks.example/x"}, "must begin with https"),
        ({"url": "https:///x"}, "must begin with https"),
        ({"url": "https://user@hooks.example/x"}, "user name or password"),
        ({"url": "https://user:pass-word@hooks.example/x"}, "user name or password"),
        ({"url": "https://public.example\\@hooks.example/x"}, "user name or password"),
        ({"url": "https://hooks.example/x#y"}, "fragment"),
        ({"url": "https://hooks.example:x/"}, "cannot be read"),
        ({"url": "https://hooks.example:99999/"}, "cannot be read"),
        ({"url": "https://[::1/"}, "cannot be read"),
        ({"url": "https://h\u00f6oks.example/"}, "xn--"),
        ({"url": "https://hooks.example/a b"}, "cannot be read"),
        ({"url": "https://hooks.example/\r\nx: y"}, "cannot be read"),
        ({"url": "https://hooks.example/" + "x" * 2048}, "at most 2048"),
        ({"secret": ""}, "only one"),
        ({"secret_env": "HOOK"}, "only one"),
        ({"secret": "short"}, "too short"),
        ({"timeout": "0s"}, "timeout must be"),
        ({"timeout": "10m"}, "timeout must be"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 1001}, "max_attempts"),
        ({"allow_privat": True}, "unknown field"),
    ],
)
def test_what_cannot_be_meant_is_refused_without_quoting_secrets(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=says) as caught:
        read(**fields)
    assert not any(hidden in str(caught.value) for hidden in ("short-", "pass-word", "very-hidden", SECRET))


def test_neither_the_secret_nor_the_path_is_in_a_repr() -> None:
    hook = read()
    shown = repr(DeliverySettings(webhooks={"ops": hook})) + repr(hook) + str(hook)
    assert "https://hooks.example:8443" in shown
    assert not any(hidden in shown for hidden in (SECRET, "hidden", "services"))


@pytest.mark.parametrize("name", ["", "Ops", "o ps", "ops:x", "x" * 65])
def test_a_name_that_no_target_could_spell_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no name for a webhook"):
        DeliverySettings(webhooks={name: read()})


def test_there_are_at_most_64_webhooks() -> None:
    DeliverySettings(webhooks={f"w{number}": read() for number in range(64)})
    with pytest.raises(ValueError, match="65 webhooks"):
        DeliverySettings(webhooks={f"w{number}": read() for number in range(65)})


def test_the_secret_may_come_from_the_environment() -> None:
    hook = read(secret="", secret_env="HOOK_SECRET")
    given = signing_key("ops", hook, {"HOOK_SECRET": f" {SECRET}\n"})
    assert given.signature(b"x") == signing_key("ops", read(), {}).signature(b"x")


@pytest.mark.parametrize(
    ("environment", "says"), [({}, "is not set"), ({"HOOK": " "}, "is not set"), ({"HOOK": "brief"}, "too short")]
)
def test_a_secret_that_the_environment_lacks_is_told_by_the_names_of_both(
    environment: dict[str, str], says: str
) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        signing_key("ops", read(secret="", secret_env="HOOK"), environment)
    assert "HOOK" in caught.value.message
    assert "delivery.webhooks.ops.secret_env" in caught.value.message
    assert "brief" not in caught.value.message


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
