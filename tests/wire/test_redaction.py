"""What may not be shown: secrets by name, by looks or by value, control codes, endless texts, strange objects."""

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wire.redaction import HIDDEN, Redactor, SecretMask, is_secret_variable, secret_values
from wire.units import ByteCount, Seconds


def shown(value: Any, key: str = "value") -> Any:
    return Redactor().fields({key: value})[key]


SECRET_NAMES = "token auth_token accessToken api_key apiKey OPENAI_API_KEY x-api-key apikey Authorization password"
SECRET_NAMES += " db_passwd client_secret secret_key Set-Cookie cookies private_key credentials"


@pytest.mark.parametrize("key", SECRET_NAMES.split())
def test_what_is_called_a_secret_is_hidden_whatever_it_is(key: str) -> None:
    for value in ("hunter2", b"hunter2", 12345, {"deep": ["hunter2"]}, ["hunter2"], object()):
        text = str(shown(value, key))
        assert ("hunter2" in text, "12345" in text, HIDDEN in text) == (False, False, True)
    assert shown(None, key) is None


@pytest.mark.parametrize(
    "key", ["tokens", "input_tokens", "token_usage", "max_token_count", "session_key", "secretary", "token_file"]
)
def test_what_only_sounds_like_a_secret_is_shown(key: str) -> None:
    assert shown(17, key) == 17
    assert shown("words", key) == "words"


def test_an_environment_shows_its_names_only() -> None:
    assert shown({"PATH": "/bin", "LEVEL": 3}, "env") == {"PATH": HIDDEN, "LEVEL": HIDDEN}
    assert shown({"agent": {"env": {"A": "b"}}}) == {"agent": {"env": {"A": HIDDEN}}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic ***"),
        ("sent bearer abcdef123456 to it", "sent bearer *** to it"),
        ("key sk-proj-abcdefgh12345678 is bad", "key *** is bad"),
        ("ghp_abcdefghij0123456789 and xoxb-1234567890-abc", "*** and ***"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSM", "***"),
        ("https://user:hunter2@example.org/x", "https://user:***@example.org/x"),
        ('{"api_key": "hunter2", "x": 1}', '{"api_key": "***", "x": 1}'),
        ("api-key=hunter2&x=1", "api-key=***&x=1"),
        ("password: hunter2, user: me", "password: ***, user: me"),
        ("Cookie: a=1; b=2", "Cookie: ***"),
        ("used tokens: 120 of 4000", "used tokens: 120 of 4000"),
        ("the task-runner asked a risk-free thing", "the task-runner asked a risk-free thing"),
        ("no secrets here: none", "no secrets here: none"),
    ],
)
def test_what_looks_like_a_secret_is_hidden_inside_any_text(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_values_that_were_named_appear_nowhere() -> None:
    redactor = Redactor()
    redactor.add_secrets(["correct-horse", "correct-horse-battery", "on", ""])
    event = {"stderr_tail": "it said correct-horse-battery, on and on", "path": Path("/x/correct-horse")}
    assert redactor.fields(event) == {"stderr_tail": "it said ***, on and on", "path": "/x/***"}
    redactor.add_secrets(["staple"])
    assert redactor.text("correct-horse staple") == "*** ***"


def test_a_text_has_an_end_and_no_secret_is_cut_before_it_is_known() -> None:
    text = shown("x" * 1_000_000)
    assert len(text) < 5000
    assert text.endswith("(of 1000000 characters)")
    assert "sk-" not in shown("x " * 2045 + "sk-abcdefgh12345678" + "y" * 1000)


@pytest.mark.parametrize("between", ["", " ", ", then "])
@pytest.mark.parametrize("length", [1_300, 1_710, 2_500, 9_000])
def test_of_a_secret_that_is_cut_nothing_is_left_however_much_was_hidden_before_it(length: int, between: str) -> None:
    redactor = Redactor()
    redactor.add_secrets(["canary" + "k" * length])
    text = between.join(["canary" + "k" * length] * 9)
    assert "k" not in redactor.text(text)
    assert redactor.text(text).endswith(f"(of {len(text)} characters)")


@pytest.mark.parametrize("secret", ["https://user:hunter2@host", "sk-abcdefgh12345678", "bearer abcdef123456"])
def test_nor_is_there_a_part_of_what_only_looks_like_a_secret(secret: str) -> None:
    redactor = Redactor()
    redactor.add_secrets(["canary" + "k" * 7_000])
    for before in range(8_165, 8_195):
        rest = " " + "x" * (before - 7_008) + f" {secret} and more" + " y" * 9_000
        text = redactor.text("canary" + "k" * 7_000 + rest)
        assert not [part for part in ("hun", "abc") if part in text]


def test_a_table_and_a_list_have_an_end_in_width_and_depth() -> None:
    assert len(shown({str(number): number for number in range(1000)})) == 101
    assert len(shown(list(range(1000)))) == 101
    deep: Any = "bottom"
    for _ in range(100):
        deep = [deep]
    assert len(str(shown(deep))) < 1000


class Colour(StrEnum):
    RED = "red"


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_whatever_is_told_becomes_plain_json() -> None:
    table = [
        ("red", Colour.RED),
        ("/x", Path("/x")),
        (5, ByteCount(5)),
        (1.5, Seconds(1.5)),
        (str(10**30), 10**30),
        ("b'\\xff'", b"\xff"),
        ("<Unspeakable that cannot be shown: RuntimeError>", Unspeakable()),
        ([1, None, True], (1, None, True)),
    ]
    fields = {3: [given for _, given in table]}
    written = msgspec.json.decode(msgspec.json.encode(Redactor().fields(fields)))  # type: ignore[arg-type]  # a key 3
    assert written == {"3": [expected for expected, _ in table]}


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(max_size=9), JSON_LIKE, max_size=4))
def test_any_event_can_be_written_and_controls_nothing(event: dict[str, Any]) -> None:
    text = msgspec.json.encode(Redactor().fields(event)).decode()
    assert text.isprintable()


@pytest.mark.parametrize(
    "piece",
    [
        *("eyJ", "-eyJ", "eyJaaaaaaaaaaa.", "sk-", "-sk-", "ghp_", "://", "://a:", "://a:b:", "bearer "),
        *("token", "token:", "token =", "cookie", "cookie:", "api-", "api_key'  ", "authorization: bearer ", "\x1b"),
    ],
)
def test_no_text_takes_long_to_look_through(piece: str) -> None:
    redactor = Redactor()
    begin = time.process_time()
    redactor.text(piece * 100_000)
    assert time.process_time() - begin < 0.5  # a pattern that goes over the text again and again takes seconds


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_API_KEY", "KEY", "GH_TOKEN", "CLIENT_SECRET", "DB_PASSWORD", "db_password", "PGPASSWORD", "DB_PASS"),
        *("SSH_PASSPHRASE", "AWS_SECRET_ACCESS_KEY", "GITHUB_PAT", "BASIC_AUTH", "MYSQL_PWD", "GOOGLE_CREDENTIALS"),
    ],
)
def test_names_say_that_the_value_is_secret(name: str) -> None:
    assert is_secret_variable(name)


@pytest.mark.parametrize(
    "name", ["MODE", "PATH", "LOG_LEVEL", "KEY_FILE", "TOKEN_DIR", "COMPASS", "AUTHOR", "HOME", "PWD"]
)
def test_other_names_do_not(name: str) -> None:
    assert not is_secret_variable(name)


def test_addresses_with_a_password_and_what_is_marked_are_secret_too() -> None:
    variables = [
        ("MODE", "production"),
        ("DATABASE", "postgres://me:hidden@db/x"),
        ("SITE", "https://example.org:8080/a@b"),
        ("LICENCE", "abc-def"),
    ]
    assert secret_values(variables, ["LICENCE"]) == ("postgres://me:hidden@db/x", "abc-def")


def test_further_values_stay_hidden_until_twenty_other_sets_were_given() -> None:
    mask = SecretMask(["canary-1"])
    mask.hide_also(["a-longer-canary-2"])
    assert mask.text("canary-1 a-longer-canary-2") == "*** ***"
    assert mask.longest == len("a-longer-canary-2")
    mask.hide_also(["canary-3"])
    mask.hide_also([])
    assert mask.data(b"canary-1 a-longer-canary-2 canary-3") == b"*** *** ***"
    mask.hide_also(["a-longer-canary-2"])
    for number in range(19):
        mask.hide_also([f"value-{number}"])
    assert mask.text("canary-1 a-longer-canary-2 canary-3 value-18") == "*** *** canary-3 ***"


def test_each_value_is_hidden_wherever_it_stands() -> None:
    mask = SecretMask(["canary-1", "canary-2"])
    assert mask.text("a canary-1, a canary-2 and a canary") == "a ***, a *** and a canary"
    assert mask.data(b"\xffcanary-1\n") == b"\xff***\n"


def test_of_a_value_within_another_the_longer_one_is_hidden_whole() -> None:
    assert SecretMask(["secret", "secret-and-more"]).text("secret-and-more") == HIDDEN


def test_a_value_of_several_lines_is_hidden_line_by_line_too() -> None:
    mask = SecretMask(["-----BEGIN KEY-----\nMIIabcdef\n-----END KEY-----\n"])
    assert mask.text("it reads MIIabcdef there") == "it reads *** there"


def test_words_are_no_secrets() -> None:
    mask = SecretMask(["", "1", "true", "debug"])
    assert mask.text("it is true: debug 1") == "it is true: debug 1"
    document = {"debug": ["true"]}
    assert mask.json(document) is document


def test_a_document_is_hidden_in_its_names_too_and_keeps_its_other_values() -> None:
    mask = SecretMask(["canary-1"])
    document = {"canary-1": [{"why": "no canary-1", "code": 3, "ok": False, "more": None}]}
    assert mask.json(document) == {HIDDEN: [{"why": "no ***", "code": 3, "ok": False, "more": None}]}


@pytest.mark.parametrize("value", ["(.*)+$[a", "\\d{1,5}", "äöü-€-😀", "\udcff-not-utf-8"])
def test_a_value_means_itself_whatever_characters_it_has(value: str) -> None:
    assert SecretMask([value]).text(f"<{value}>") == f"<{HIDDEN}>"
    assert SecretMask([value]).data(b"<" + value.encode("utf-8", "surrogateescape") + b">") == b"<***>"


@pytest.mark.parametrize("value", ['quo"ted', "back\\slash", "äöü-€-😀", "tab\tand\x1b", "two lines\nof one"])
def test_a_value_is_hidden_where_json_escapes_it(value: str) -> None:
    mask = SecretMask([value])
    for written in (json.dumps({"why": value}), json.dumps({"why": value}, ensure_ascii=False)):
        assert mask.text(written) == '{"why": "***"}'
        assert mask.data(written.encode()) == b'{"why": "***"}'


def test_of_what_is_cut_no_part_of_a_value_is_left() -> None:
    mask = SecretMask(["canary-1", "a-longer-canary"])
    assert mask.prefix(b"no canary-1 there", 5) == b"no **"
    assert mask.prefix(b"no canary-1 there", 3) == b"no "
    assert mask.prefix(b"no canary-1 there", 11) == b"no ***"
    assert mask.prefix(b"canary-1" * 10, 20) == b"***" * 3
    assert mask.prefix(b"short", 20) == b"short"
    assert SecretMask().prefix(b"no canary-1 there", 5) == b"no ca"
    assert mask.prefix("ä canary-1 there", 5) == "ä ***"
    assert mask.prefix("ä canary-1 there", 2) == "ä "


@given(
    values=st.lists(st.text("abc", min_size=6, max_size=9), max_size=3),
    data=st.lists(st.text("abc", max_size=3)),
    limit=st.integers(0, 40),
)
def test_a_cut_beginning_is_that_of_the_whole(values: list[str], data: list[str], limit: int) -> None:
    said = "".join([*data, *values, *data])
    beginning = SecretMask(values).prefix(said, limit)
    assert SecretMask(values).text(said).startswith(beginning)
    assert len(beginning) <= limit
    assert SecretMask(values).prefix(said.encode(), limit) == beginning.encode()


@given(values=st.lists(st.text(min_size=6)), text=st.text())
def test_no_value_is_left(values: list[str], text: str) -> None:
    said = text.join(values)
    shown_text = SecretMask(values).text(said)
    assert not [value for value in values if value in shown_text and "*" not in value]
