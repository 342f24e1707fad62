"""Names of sessions, and of keys."""

import re

import pytest

from agent.processes.keys import UnknownKey, encode_key, encode_paste
from agent.processes.registry import new_session_name


def test_a_name_is_two_words_and_never_one_that_is_taken() -> None:
    taken: set[str] = set()
    for _ in range(500):
        name = new_session_name(taken)
        assert name not in taken
        assert re.fullmatch(r"[a-z]+-[a-z]+(-[0-9]+)?", name)
        taken.add(name)


def test_when_all_pairs_are_taken_a_number_helps() -> None:
    assert new_session_name({"amber-acorn", "amber-acorn-2"}, lambda words: words[0]) == "amber-acorn-3"


@pytest.mark.parametrize(
    ("key", "sent"),
    [
        *(("Enter", "\r"), ("x", "x"), ("é", "é"), ("C-c", "\x03"), ("ctrl-D", "\x04"), ("^[", "\x1b")),
        *(("C-Space", "\x00"), ("M-x", "\x1bx"), ("M-Left", "\x1b\x1b[D"), ("F12", "\x1b[24~"), ("-", "-")),
    ],
)
def test_keys_send_what_a_terminal_sends(key: str, sent: str) -> None:
    assert encode_key(key) == sent


@pytest.mark.parametrize("key", ["", "Hyper", "C-", "C-é", "C-Enter", "M-", "F13", "M-M-Nope"])
def test_unknown_keys_are_named(key: str) -> None:
    with pytest.raises(UnknownKey, match=re.escape(repr(key)) if not key.startswith("M-M") else "Nope"):
        encode_key(key)


def test_a_paste_cannot_end_itself_early() -> None:
    assert encode_paste("a\x1b[201~rm -rf", bracketed=True) == "\x1b[200~a[201~rm -rf\x1b[201~"
    assert encode_paste("a\nb", bracketed=False) == "a\nb"
