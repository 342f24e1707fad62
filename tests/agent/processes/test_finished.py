"""How long commands that have ended are remembered, and what they and keys are called."""

import re
from types import SimpleNamespace
from typing import cast

import pytest

from agent.processes.exec_session import ExecSession
from agent.processes.registry import FinishedLimits, FinishedSessions, new_session_name
from agent.tools.process import UnknownKey, encode_key, encode_paste

HALF_AN_HOUR = 1800.0


def ended(name: str, size: int = 0, scope: str = "mine") -> ExecSession:
    return cast("ExecSession", SimpleNamespace(id=name, scope_key=scope, output=SimpleNamespace(size=size)))


def names(finished: FinishedSessions, now: float = 0.0) -> list[str]:
    return [session.id for session in finished.all(now)]


def test_they_are_forgotten_after_half_an_hour_wherever_they_ended() -> None:
    finished = FinishedSessions(FinishedLimits())
    finished.add(ended("a"), 0.0)
    finished.add(ended("b"), 60.0)
    assert [names(finished, now) for now in (1799.0, 1800.0, 1860.0)] == [["a", "b"], ["b"], []]
    finished.add(ended("late"), 10_000.0)
    finished.add(ended("early"), 10_000.0, ago=900.0)  # in another worker
    finished.add(ended("too early"), 10_000.0, ago=1800.0)
    assert [names(finished, now) for now in (10_000.0, 10_900.0)] == [["early", "late"], ["late"]]


def test_they_are_bounded_in_number_and_output_but_the_last_one_stays_and_one_can_be_removed_once() -> None:
    finished = FinishedSessions(FinishedLimits())
    for number in range(60):
        finished.add(ended(str(number)), 0.0)
    assert names(finished) == [str(number) for number in range(10, 60)]
    finished = FinishedSessions(FinishedLimits(chars=100))
    for name, size in (("a", 60), ("b", 30), ("c", 20), ("d", 80)):
        finished.add(ended(name, size), 0.0)
    assert names(finished) == ["c", "d"]
    finished.add(ended("e", 500), 0.0)
    finished.add(ended("e", scope="other"), 0.0)  # two conversations may have given the same name
    assert names(finished) == ["e"]
    assert [finished.remove(ended("e", scope="other")) for _ in range(2)] == [True, False]


def test_a_name_is_two_words_and_never_one_that_is_taken() -> None:
    taken: set[str] = set()
    for _ in range(500):
        name = new_session_name(taken)
        assert name not in taken
        assert re.fullmatch(r"[a-z]+-[a-z]+(-[0-9]+)?", name)
        taken.add(name)
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
