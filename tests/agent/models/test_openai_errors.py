"""What a server says when it fails: whether it may pass, when to come again, and a message fit for a person."""

from email.utils import formatdate

import pytest

from agent.models.openai_errors import error_in_stream, error_of_status, retry_after, tidy

NOW = 1_800_000_000.0


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
        (b"", "without a word"),
        (b"{}", "without a word"),
        (b"null", "without a word"),
        (b"[" * 100_000, "[" * 500 + "..."),
        (b"x" * 100_000, "x" * 500 + "..."),
    ],
)
def test_the_message_is_found_cleaned_and_bounded(body: bytes, message: str) -> None:
    assert str(error_of_status(500, {}, body, NOW)) == f"the model server answered 500: {message}"


@pytest.mark.parametrize(
    ("status", "transient"),
    [(400, False), (401, False), (403, False), (404, False), (301, False), (408, True), (429, True), (503, True)],
)
def test_only_what_may_pass_is_tried_again(status: int, *, transient: bool) -> None:
    assert error_of_status(status, {}, b"", NOW).transient == transient


def test_a_quota_that_is_spent_does_not_pass() -> None:
    body = b'{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}'
    assert not error_of_status(429, {}, body, NOW).transient


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_says_what_to_do(status: int) -> None:
    assert "without a word (set a key)" in str(error_of_status(status, {}, b"", NOW, key_hint="set a key"))
    assert "set a key" not in str(error_of_status(400, {}, b"", NOW, key_hint="set a key"))


@pytest.mark.parametrize(
    ("status", "body", "overflow"),
    [
        (400, b'{"error": {"message": "too long", "code": "context_length_exceeded"}}', True),
        (400, b'{"error": {"message": "This model\'s maximum context length is 8192 tokens."}}', True),
        (413, b"prompt is too long: 9 > 8", True),
        (400, b'{"error": {"message": "unknown field"}}', False),
        (500, b'{"error": {"message": "context length", "code": "x"}}', False),
    ],
)
def test_a_conversation_that_is_too_long_is_told_apart(status: int, body: bytes, *, overflow: bool) -> None:
    assert error_of_status(status, {}, body, NOW).overflow == overflow


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": formatdate(NOW + 30, usegmt=True)}, 30.0),
        ({"retry-after": formatdate(NOW - 30, usegmt=True)}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "\u0663"}, None),
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
        ("bad request", False),
        (["bad"], False),
        (True, False),
    ],
)
def test_an_error_in_the_stream_passes_or_not_by_its_code_or_words(error: object, *, transient: bool) -> None:
    assert error_in_stream(error).transient == transient


def test_a_foreign_text_is_made_fit_for_one_line() -> None:
    assert tidy("a<script>evil()</script>b\r\n<b>c</b>\u202e d") == "a b c d"
    assert tidy("<" * 1_000_000, 10) == "<" * 10 + "..."
