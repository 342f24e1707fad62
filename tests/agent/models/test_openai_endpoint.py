"""Where the server is, that the key shows nowhere, and what a server says when it fails."""

from email.utils import formatdate

import pytest

from agent.models.base import Model
from agent.models.catalogue import ModelUnavailable, open_model
from agent.models.openai_endpoint import EndpointError, Secret, read_endpoint
from agent.models.openai_errors import error_in_stream, error_of_status, retry_after, tidy
from agent.models.openai_messages import CompatFlags
from agent.models.scripted import ProcessFaults

NO_FAULTS = ProcessFaults(lambda _: None)
KEY = "sk-very-secret"
NOW = 1_800_000_000.0
DEFAULT = "https://api.openai.com/v1/chat/completions"
SETTING = "OPENAI_API_KEY in [agents.NAME.env] of the pool's settings"


@pytest.mark.parametrize(
    ("flag", "base_url", "url", "origin"),
    [
        (None, None, DEFAULT, "api.openai.com"),
        (None, "http://localhost:1/v1/", "http://localhost:1/v1/chat/completions", "localhost:1"),
        ("http://[::1]:8/x", "http://no", "http://[::1]:8/x/chat/completions", "[::1]:8"),
        (None, "", DEFAULT, "api.openai.com"),
    ],
)
def test_the_flag_goes_before_the_environment_before_the_default(
    flag: str | None, base_url: str | None, url: str, origin: str
) -> None:
    endpoint = read_endpoint(flag, {} if base_url is None else {"OPENAI_BASE_URL": base_url})
    assert (endpoint.url, endpoint.origin, endpoint.encrypted) == (url, origin, url.startswith("https"))


NO_URLS = [
    "ftp://host",
    "host/v1",
    "http://",
    "http://host:port",
    "http://h\u00f6st",
    "http://host/?a=1",
    "http://[::1",
]


@pytest.mark.parametrize(
    ("flag", "environment", "why"),
    [
        *((url, {}, "base URL") for url in NO_URLS),
        (f"https://me:{KEY}@host", {}, "OPENAI_API_KEY"),
        *((None, {"OPENAI_API_KEY": key}, "OPENAI_API_KEY") for key in (f"{KEY}\nb", f"{KEY}\u00e9", f"{KEY}\x00b")),
        (None, {"OPENAI_COMPAT": "images"}, "it knows: no-images"),
    ],
)
def test_what_is_none_is_refused_and_no_secret_in_it_repeated(
    flag: str | None, environment: dict[str, str], why: str
) -> None:
    with pytest.raises(EndpointError, match=why) as failure:
        read_endpoint(flag, environment)
    assert KEY not in str(failure.value)


@pytest.mark.parametrize(
    ("environment", "hint"),
    [
        ({}, "no key was sent: set OPENAI_API_KEY"),
        ({"OPENAI_API_KEY": KEY}, "check the key in OPENAI_API_KEY"),
        ({"POOL_WORKER_ID": "i:w1"}, f"no key was sent: set {SETTING}"),
        ({"POOL_WORKER_ID": "i:w1", "OPENAI_API_KEY": KEY}, f"check the key in {SETTING}"),
    ],
)
def test_what_to_do_about_the_key_depends_on_where_the_agent_runs(environment: dict[str, str], hint: str) -> None:
    assert read_endpoint(None, environment).key_hint == hint


def test_quirks_are_named_and_a_key_shows_itself_only_when_asked() -> None:
    quirks = "no-images, strict-roles,,no-reasoning-effort,no-stream-options,no-answer-options"
    assert read_endpoint(None, {"OPENAI_COMPAT": quirks}).compat == CompatFlags(
        images=False, strict_roles=True, reasoning_effort=False, stream_options=False, answer_options=False
    )
    assert read_endpoint(None, {}).compat == CompatFlags()
    endpoint = read_endpoint(None, {"OPENAI_API_KEY": f" {KEY}\n"})
    assert endpoint.key.value() == KEY
    assert KEY not in f"{endpoint} {endpoint!r} {endpoint.key} {[endpoint.key]}"
    assert endpoint.key.redact(f"wrong key {KEY}!") == "wrong key ***!"
    assert Secret("").redact("abc") == "abc"


@pytest.mark.parametrize(
    ("provider", "model", "name"),
    [("openai", "m", "m"), (None, "openai/m", "m"), ("openai", "org/m", "org/m"), (None, "openai/org/m", "org/m")],
)
def test_any_model_of_a_server_is_opened_by_name(provider: str | None, model: str, name: str) -> None:
    opened: Model = open_model(provider, model, NO_FAULTS, environment={})
    assert (opened.provider, opened.name) == ("openai", name)


@pytest.mark.parametrize(
    ("model", "more", "message"),
    [
        (None, {}, "name one with --model"),
        ("m", {"base_url": "nowhere"}, "base URL"),
        ("m", {"environment": {"OPENAI_COMPAT": "x"}}, "OPENAI_COMPAT"),
        ("m", {"offline": True}, "--offline"),
    ],
)
def test_a_model_that_cannot_be_used_is_refused_at_once(
    model: str | None, more: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelUnavailable, match=message):
        open_model("openai", model, NO_FAULTS, **{"environment": {}, **more})  # type: ignore[arg-type]  # a table's rows


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "no luck", "type": "x"}}', "no luck"),
        (b'{"error": "no luck"}', "no luck"),
        (b'{"message": "no luck"}', "no luck"),
        (b'{"detail": "no luck"}', "no luck"),
        (b'{"detail": [{"msg": "field required"}]}', '[{"msg":"field required"}]'),
        (b'[{"error": {"message": "no luck"}}]', "no luck"),
        (b"<html><head><style>p{}</style></head><body><h1>no\n\tluck</h1></body></html>", "no luck"),
        (b"no \x1b[31mluck\x00", "no [31mluck"),
        (b"\xff", "\ufffd"),
        *((body, "without a word") for body in (b"", b"{}", b"null")),
        *((byte * 100_000, byte.decode() * 500 + "...") for byte in (b"[", b"x")),
    ],
)
def test_the_message_is_found_cleaned_and_bounded(body: bytes, message: str) -> None:
    assert str(error_of_status(500, {}, body, NOW)) == f"the model server answered 500: {message}"


QUOTA = b'{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}'
TOO_LONG = b'{"error": {"message": "too long", "code": "context_length_exceeded"}}'


@pytest.mark.parametrize(
    ("status", "body", "transient", "overflow"),
    [
        *((status, b"", False, False) for status in (400, 401, 403, 404, 301)),
        *((status, b"", True, False) for status in (408, 429, 503)),
        (429, QUOTA, False, False),
        (400, TOO_LONG, False, True),
        (400, b'{"error": {"message": "This model\'s maximum context length is 8192 tokens."}}', False, True),
        (413, b"prompt is too long: 9 > 8", False, True),
        (400, b'{"error": {"message": "unknown field"}}', False, False),
        (500, b'{"error": {"message": "context length", "code": "x"}}', True, False),
    ],
)
def test_what_may_pass_is_told_from_what_is_too_long_and_a_refused_key_says_what_to_do(
    status: int, body: bytes, *, transient: bool, overflow: bool
) -> None:
    error = error_of_status(status, {}, body, NOW, key_hint="set a key")
    assert (error.transient, error.overflow) == (transient, overflow)
    assert ("(set a key)" in str(error)) == (status in {401, 403})


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        *(({"retry-after": text}, seconds) for text, seconds in (("7", 7.0), (" 1.5 ", 1.5), ("0", 0.0))),
        ({"retry-after": formatdate(NOW + 30, usegmt=True)}, 30.0),
        ({"retry-after": formatdate(NOW - 30, usegmt=True)}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        *(({"retry-after": text}, None) for text in ("-3", "soon", "inf", "9" * 400, "\u0663")),
        ({"retry-after": "Fri, 31 Feb 2020 25:00:00 GMT"}, None),
    ],
)
def test_when_to_come_again_is_read_in_seconds_and_as_a_date(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        ({"message": "x", "code": 429}, True),
        ({"message": "x", "code": "502"}, True),
        ({"message": "x", "type": "server_error"}, True),
        ({"message": "Rate limit reached"}, True),
        ({"message": "billing: rate limit", "code": "insufficient_quota"}, False),
        ({"message": "x", "code": "\u00b2"}, False),
        *(("bad request", False), (["bad"], False), (True, False)),
    ],
)
def test_an_error_in_the_stream_passes_or_not_by_its_code_or_words(error: object, *, transient: bool) -> None:
    assert error_in_stream(error).transient == transient


def test_a_foreign_text_is_made_fit_for_one_line() -> None:
    assert tidy("a<script>evil()</script>b\r\n<b>c</b>\u202e d") == "a b c d"
    assert tidy("<" * 1_000_000, 10) == "<" * 10 + "..."
