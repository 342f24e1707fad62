"""Values that are hidden: whole, line by line, in bytes, and in documents."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.redaction import HIDDEN, SecretMask


def test_each_value_is_hidden_wherever_it_stands() -> None:
    veil = SecretMask(["canary-1", "canary-2"])
    assert veil.text("a canary-1, a canary-2 and a canary") == "a ***, a *** and a canary"
    assert veil.data(b"\xffcanary-1\n") == b"\xff***\n"


def test_of_a_value_within_another_the_longer_one_is_hidden_whole() -> None:
    assert SecretMask(["secret", "secret-and-more"]).text("secret-and-more") == HIDDEN


def test_a_value_of_several_lines_is_hidden_line_by_line_too() -> None:
    veil = SecretMask(["-----BEGIN KEY-----\nMIIabcdef\n-----END KEY-----\n"])
    assert veil.text("it reads MIIabcdef there") == "it reads *** there"


def test_words_are_no_secrets() -> None:
    veil = SecretMask(["", "1", "true", "debug"])
    assert veil.text("it is true: debug 1") == "it is true: debug 1"
    document = {"debug": ["true"]}
    assert veil.json(document) is document


def test_a_document_is_hidden_in_its_names_too_and_keeps_its_other_values() -> None:
    veil = SecretMask(["canary-1"])
    document = {"canary-1": [{"why": "no canary-1", "code": 3, "ok": False, "more": None}]}
    assert veil.json(document) == {HIDDEN: [{"why": "no ***", "code": 3, "ok": False, "more": None}]}


@pytest.mark.parametrize("value", ["(.*)+$[a", "\\d{1,5}", "äöü-€-😀", "\udcff-not-utf-8"])
def test_a_value_means_itself_whatever_characters_it_has(value: str) -> None:
    assert SecretMask([value]).text(f"<{value}>") == f"<{HIDDEN}>"
    assert SecretMask([value]).data(b"<" + value.encode("utf-8", "surrogateescape") + b">") == b"<***>"


@pytest.mark.parametrize("value", ['quo"ted', "back\\slash", "äöü-€-😀", "tab\tand\x1b", "two lines\nof one"])
def test_a_value_is_hidden_where_json_escapes_it(value: str) -> None:
    veil = SecretMask([value])
    for written in (json.dumps({"why": value}), json.dumps({"why": value}, ensure_ascii=False)):
        assert veil.text(written) == '{"why": "***"}'
        assert veil.data(written.encode()) == b'{"why": "***"}'


def test_of_what_is_cut_no_part_of_a_value_is_left() -> None:
    veil = SecretMask(["canary-1", "a-longer-canary"])
    assert veil.prefix(b"no canary-1 there", 5) == b"no **"
    assert veil.prefix(b"no canary-1 there", 3) == b"no "
    assert veil.prefix(b"no canary-1 there", 11) == b"no ***"
    assert veil.prefix(b"canary-1" * 10, 20) == b"***" * 3
    assert veil.prefix(b"short", 20) == b"short"
    assert SecretMask().prefix(b"no canary-1 there", 5) == b"no ca"
    assert veil.prefix("ä canary-1 there", 5) == "ä ***"
    assert veil.prefix("ä canary-1 there", 2) == "ä "


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
    veiled = SecretMask(values).text(said)
    assert not [value for value in values if value in veiled and "*" not in value]
