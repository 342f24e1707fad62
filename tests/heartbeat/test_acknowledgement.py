"""Which answers to a beat are silent, what the others say, and what holds of every answer, also a hostile one."""

import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heartbeat.answers import HEARTBEAT_OK, AlertAnswer, BeatKind, SilentAnswer, classify_answer, strip_token

NOTHING_BESIDE = [
    *("HEARTBEAT_OK", " \n\t HEARTBEAT_OK \r\n", "HEARTBEAT_OK.", "HEARTBEAT_OK!!!!", "HEARTBEAT_OK ."),
    *("HEARTBEAT_OK。", "HEARTBEAT_OK…", "**HEARTBEAT_OK**", "**HEARTBEAT_OK.**", "**HEARTBEAT_OK**."),
    *("*HEARTBEAT_OK*", "_HEARTBEAT_OK_", "__HEARTBEAT_OK__", "***HEARTBEAT_OK***", "~~HEARTBEAT_OK~~"),
    *("`HEARTBEAT_OK`", "**`HEARTBEAT_OK`**", "```\nHEARTBEAT_OK\n```", "```text\nHEARTBEAT_OK\n```"),
    *("~~~\nHEARTBEAT_OK\n~~~", "<p>HEARTBEAT_OK</p>", "<div><b>HEARTBEAT_OK</b></div>"),
    *('<p class="status ok" id=x>HEARTBEAT_OK</p>', "HEARTBEAT_OK<br/>", "&nbsp;HEARTBEAT_OK&nbsp;&NBSP;"),
    *("\xa0HEARTBEAT_OK\xa0", "<p>&nbsp;<i>HEARTBEAT_OK</i>.&nbsp;</p>", '"HEARTBEAT_OK"'),
    *("\u201cHEARTBEAT_OK\u201d", "(HEARTBEAT_OK)", "**[HEARTBEAT_OK]**", "HEARTBEAT_OK HEARTBEAT_OK"),
    *("HEARTBEAT_OK\nHEARTBEAT_OK.\nHEARTBEAT_OK!", "HEARTBEAT_OKHEARTBEAT_OK", "HEARTBEAT_OK__HEARTBEAT_OK"),
    "**HEARTBEAT_OK**\n\n`HEARTBEAT_OK`",
]

NOT_AT_AN_EDGE = [
    *("The disk is full.", "**Disk** `full` <b>now</b>", "I would say HEARTBEAT_OK but the disk is full."),
    *("Answer `HEARTBEAT_OK` when all is well.", "Disk full.\nHEARTBEAT_OK\nBackup missing.", "HEARTBEAT_OKAY"),
    *("HEARTBEAT_OK_2 is a constant", "see MY_HEARTBEAT_OK", "xHEARTBEAT_OK", "heartbeat_ok", "HEARTBEAT OK"),
    *("Disk full. HEARTBEAT_OK?!?!?", "Disk full. HEARTBEAT_OK not", "<HEARTBEAT_OK is not true> disk full"),
    *("HEARTBEAT_", "***", "Wrote HEARTBEAT_OK.txt"),
]

BESIDE = [
    *(("HEARTBEAT_OK Nothing new.", "Nothing new."), ("Nothing new. HEARTBEAT_OK", "Nothing new.")),
    ("HEARTBEAT_OK\nNothing new.\nHEARTBEAT_OK.", "Nothing new."),
    ("HEARTBEAT_OK, HEARTBEAT_OK: fine. HEARTBEAT_OK! HEARTBEAT_OK", "fine."),
    ("HEARTBEAT_OK means HEARTBEAT_OK here", "means HEARTBEAT_OK here"),
    *(("HEARTBEAT_OK. Nothing new.", "Nothing new."), ("HEARTBEAT_OK: all quiet", "all quiet")),
    *(("HEARTBEAT_OK!!!!! x", "! x"), ("HEARTBEAT_OK一切正常", "一切正常"), ("一切正常。HEARTBEAT_OK。", "一切正常。")),
    *(("**HEARTBEAT_OK** Nothing new.", "Nothing new."), ("**HEARTBEAT_OK.** Nothing new.", "Nothing new.")),
    *(("Nothing new. `HEARTBEAT_OK`", "Nothing new."), ("Nothing new (HEARTBEAT_OK).", "Nothing new")),
    *(("Nothing new.\n```text\nHEARTBEAT_OK\n```", "Nothing new."), ("```\nx\n```\n`HEARTBEAT_OK`", "```\nx\n```")),
    *(("<p>New.</p><p>HEARTBEAT_OK</p>", "<p>New.</p>"), ("<p>HEARTBEAT_OK</p><p>New.</p>", "<p>New.</p>")),
    *(("Nothing new. HEARTBEAT_OK ✅", "Nothing new."), ("**HEARTBEAT_OK**. Nothing new.", "Nothing new.")),
    *(("Nothing new. HEARTBEAT_OK__HEARTBEAT_OK", "Nothing new."), ("HEARTBEAT_OK **Disk full**", "**Disk full**")),
    *(("**Disk full** HEARTBEAT_OK", "**Disk full**"), ("HEARTBEAT_OK\n- disk\n- mail", "- disk\n- mail")),
    *(("HEARTBEAT_OK\n```\ndf\n```", "```\ndf\n```"), ("HEARTBEAT_OK(disk full)", "(disk full)")),
    *(("HEARTBEAT_OK -5 degrees", "-5 degrees"), ("HEARTBEAT_OK a < b and c > d", "a < b and c > d")),
    *(("HEARTBEAT_OK <disk is full>", "<disk is full>"), ("<disk is full> HEARTBEAT_OK", "<disk is full>")),
    *(("HEARTBEAT_OK\na\n\n  b\nHEARTBEAT_OK", "a\n\n  b"), ("HEARTBEAT_OK\nMEDIA:chart.png", "MEDIA:chart.png")),
    *(("MEDIA:chart.png\nHEARTBEAT_OK", "MEDIA:chart.png"), ("> HEARTBEAT_OK", ">"), ("- HEARTBEAT_OK", "-")),
    ("# HEARTBEAT_OK", "#"),
]


def verdict(text: str, kind: BeatKind = BeatKind.PLAIN, limit: int = 300, **facts: Any) -> SilentAnswer | AlertAnswer:
    return classify_answer(text, kind=kind, ack_max_chars=limit, **facts)


@pytest.mark.parametrize("text", NOTHING_BESIDE)
def test_a_token_goes_with_the_markup_around_it(text: str) -> None:
    assert strip_token(text)[1]
    assert isinstance(verdict(text, BeatKind.CRON, 0), SilentAnswer)


@pytest.mark.parametrize("text", NOT_AT_AN_EDGE)
def test_an_answer_without_a_token_at_an_end_is_an_alert_as_it_is(text: str) -> None:
    assert strip_token(f"\n {text} ") == (text, False)
    assert verdict(text, limit=1_000_000) == AlertAnswer(text)


@pytest.mark.parametrize(("text", "rest"), BESIDE)
def test_what_stands_beside_the_token_is_left(text: str, rest: str) -> None:
    assert strip_token(text) == (rest, True)


PLAIN, EXEC, CRON = BeatKind.PLAIN, BeatKind.EXEC, BeatKind.CRON


@pytest.mark.parametrize(
    ("text", "kinds", "limit", "expected"),
    [
        ("  \n", [PLAIN], 300, SilentAnswer()),
        (f"HEARTBEAT_OK {'x' * 300}", [PLAIN, EXEC], 300, SilentAnswer("x" * 300)),
        (f"HEARTBEAT_OK {'x' * 301}", [PLAIN, EXEC], 300, AlertAnswer("x" * 301)),
        # marks beside the token are nothing, even where nothing is allowed
        ("> HEARTBEAT_OK", [PLAIN], 0, SilentAnswer(">")),
        ("✅ HEARTBEAT_OK", [PLAIN], 0, SilentAnswer("✅")),
        ("HEARTBEAT_OK x", [PLAIN], 0, AlertAnswer("x")),
        ("HEARTBEAT_OK <disk is full>", [PLAIN], 0, AlertAnswer("<disk is full>")),
        # the report of a scheduled task is an alert however short
        ("HEARTBEAT_OK Three meetings.", [CRON, CRON | EXEC], 300, AlertAnswer("Three meetings.")),
        ("**HEARTBEAT_OK**", [CRON, CRON | EXEC], 300, SilentAnswer()),
        # a line that names a file is never kept back
        ("HEARTBEAT_OK\nMEDIA:a.png", [PLAIN, EXEC, CRON], 300, AlertAnswer("MEDIA:a.png", has_media=True)),
        ("MEDIA:a.png\nHEARTBEAT_OK", [PLAIN, EXEC, CRON], 300, AlertAnswer("MEDIA:a.png", has_media=True)),
        ("  MEDIA: a.png \nHEARTBEAT_OK", [PLAIN, EXEC, CRON], 300, AlertAnswer("MEDIA: a.png", has_media=True)),
        ("HEARTBEAT_OK the word MEDIA: x", [PLAIN], 300, SilentAnswer("the word MEDIA: x")),
        ("HEARTBEAT_OK\nMEDIA:", [PLAIN], 300, SilentAnswer("MEDIA:")),
        ("HEARTBEAT_OK\nmedia:a.png", [PLAIN], 300, SilentAnswer("media:a.png")),
    ],
)
def test_kind_and_limit_decide_whether_an_answer_is_kept_back(
    text: str, kinds: list[BeatKind], limit: int, expected: SilentAnswer | AlertAnswer
) -> None:
    assert [verdict(text, kind, limit) for kind in kinds] == [expected] * len(kinds)


@pytest.mark.parametrize("text", ["", "HEARTBEAT_OK", "HEARTBEAT_OK see it"])
def test_files_that_were_taken_out_of_the_answer_make_it_an_alert_too(text: str) -> None:
    assert verdict(text, has_media=True) == AlertAnswer(text.removeprefix("HEARTBEAT_OK").strip(), has_media=True)


@pytest.mark.parametrize(
    ("text", "kinds", "summary", "expected"),
    [
        *(
            (text, [EXEC, EXEC | CRON], " make: exit 0\n", AlertAnswer("make: exit 0"))
            for text in ("", "> HEARTBEAT_OK")
        ),
        ("**HEARTBEAT_OK**.", [EXEC], "make: exit 0", AlertAnswer("make: exit 0")),
        ("HEARTBEAT_OK It built.", [EXEC], "make: exit 0", AlertAnswer("It built.")),
        ("It built.", [EXEC], "make: exit 0", AlertAnswer("It built.")),
        ("HEARTBEAT_OK", [PLAIN, CRON], "make: exit 0", SilentAnswer()),
        ("HEARTBEAT_OK all well", [PLAIN], "make: exit 0", SilentAnswer("all well")),
        ("HEARTBEAT_OK", [EXEC], " ", SilentAnswer()),
    ],
)
def test_where_every_command_is_reported_its_summary_stands_for_an_empty_answer(
    text: str, kinds: list[BeatKind], summary: str, expected: SilentAnswer | AlertAnswer
) -> None:
    found = [verdict(text, kind, exec_always_deliver=True, summary=summary) for kind in kinds]
    assert found == [expected] * len(kinds)


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
