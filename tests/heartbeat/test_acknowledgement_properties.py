"""What holds of every answer: nothing that was said is lost, once is enough, and hostile ones cost no more."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heartbeat.answers import HEARTBEAT_OK, AlertAnswer, BeatKind, SilentAnswer, classify_answer, strip_token

PIECES = [
    *(HEARTBEAT_OK, "HEARTBEAT_", "OK", " ", "\n", "\t", "&nbsp;", "*", "**", "_", "`", "```", "~~~", "~"),
    *("<p>", "</p>", '<a href="x">', "<", ">", "<b", "=", "&", ".", "!", "?!", "…", "(", ")", '"', "-", "- ", "# "),
    *("word", "x", "7", "é", "一切", "✅", "MEDIA:a.png", "MEDIA:", "text\n"),
]
ANSWERS = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=25).map("".join)
KINDS = st.sampled_from([BeatKind.PLAIN, BeatKind.EXEC, BeatKind.CRON, BeatKind.EXEC | BeatKind.CRON])
LIMITS = st.integers(0, 30)
TAG = re.compile(r"<[^<>]*>")


def said(text: str) -> str:
    """The letters and digits of a text, without tokens, tags and hard spaces."""
    bare = TAG.sub(" ", text.replace(HEARTBEAT_OK, " ")).replace("&nbsp;", " ")
    return "".join(filter(str.isalnum, bare))


@given(ANSWERS)
@settings(max_examples=50)
def test_taking_the_token_off_twice_is_taking_it_off_once(text: str) -> None:
    rest, _ = strip_token(text)
    assert strip_token(rest)[0] == rest


@given(ANSWERS)
def test_only_the_ends_are_touched(text: str) -> None:
    rest, is_acknowledged = strip_token(text)
    assert rest in text
    assert rest == rest.strip()
    assert is_acknowledged or rest == text.strip()
    assert not is_acknowledged or HEARTBEAT_OK in text


@given(ANSWERS, KINDS, LIMITS)
def test_no_word_beyond_the_limit_is_lost(text: str, kind: BeatKind, limit: int) -> None:
    verdict = classify_answer(text, kind=kind, ack_max_chars=limit)
    if isinstance(verdict, AlertAnswer):
        assert said(verdict.text).endswith(said(text)) or said(text) in said(verdict.text)
    else:
        assert len(said(text)) <= limit


@given(text=ANSWERS, kind=KINDS, limit=LIMITS, always=st.booleans())
def test_only_an_acknowledged_answer_or_an_empty_one_is_kept_back(
    text: str, kind: BeatKind, limit: int, *, always: bool
) -> None:
    verdict = classify_answer(text, kind=kind, ack_max_chars=limit, exec_always_deliver=always)
    if isinstance(verdict, SilentAnswer):
        assert strip_token(text) == (verdict.remainder, True) or not text.strip()
        assert "MEDIA:a.png" not in text.split("\n")


@given(ANSWERS, st.integers(0, 3), st.integers(0, 3))
def test_more_tokens_around_an_acknowledgement_say_no_more_and_no_less(text: str, before: int, after: int) -> None:
    rest, is_acknowledged = strip_token(text)
    around = f"{(HEARTBEAT_OK + ' ') * before}{text}{(' ' + HEARTBEAT_OK) * after}"
    if is_acknowledged:
        assert said(strip_token(around)[0]) == said(rest)
        assert strip_token(around)[1]


HOSTILE = {
    "white space": ("", " ", ""),
    "white space before a word": ("", " ", "x" + HEARTBEAT_OK),
    "white space after a token": ("x" + HEARTBEAT_OK, " ", "x"),
    "white space between token and word": (HEARTBEAT_OK, " ", "x"),
    "white space between word and token": ("x", " ", HEARTBEAT_OK),
    "underscores after a token": (HEARTBEAT_OK, "_", "x"),
    "underscores before a token": ("x", "_", HEARTBEAT_OK),
    "angles": ("", "<", HEARTBEAT_OK),
    "tags that never end": ("", "<a b=", HEARTBEAT_OK),
    "tags": ("", "<a b=c>", HEARTBEAT_OK),
    "hard spaces": ("x", "&nbsp;", HEARTBEAT_OK),
    "marks after a token": ("x" + HEARTBEAT_OK, ".", ""),
    "tokens": ("", HEARTBEAT_OK + " ", ""),
    "tokens after a word": ("x", " " + HEARTBEAT_OK, ""),
    "tokens before a word": ("", HEARTBEAT_OK + " ", "x"),
    "tokens with marks": ("x", " " + HEARTBEAT_OK + "!!!", ""),
    "tokens in code": ("x ", f"`{HEARTBEAT_OK}` ", ""),
    "tokens in tags": ("x ", f"<b>{HEARTBEAT_OK}</b>", ""),
    "tokens in fences": ("x ", f"```\n{HEARTBEAT_OK}\n```\n", ""),
    "tokens of longer names": ("", HEARTBEAT_OK + "_", "x"),
    "tokens that are none": ("", HEARTBEAT_OK + "x ", ""),
    "files": (HEARTBEAT_OK, "\nMEDIA:", ""),
}
SIZE, TIMES = 50_000, 8


def seconds(first: str, piece: str, last: str, size: int) -> float:
    """Of this thread's own time, the best of three: other load on the machine makes it only longer."""
    text, times = first + piece * (size // len(piece)) + last, []
    for _ in range(3):
        begun = time.thread_time()
        classify_answer(text, kind=BeatKind.PLAIN, ack_max_chars=300)
        times.append(time.thread_time() - begun)
    return min(times)


@pytest.mark.parametrize(("first", "piece", "last"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_answer_costs_in_proportion_to_its_length(first: str, piece: str, last: str) -> None:
    short, long = seconds(first, piece, last, SIZE), seconds(first, piece, last, SIZE * TIMES)
    assert long < max(short, 0.0005) * TIMES * 4
