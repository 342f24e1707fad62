"""Which answers to a beat are kept back, and what the others say."""

from typing import Any

import pytest

from heartbeat.answers import AlertAnswer, BeatKind, SilentAnswer, classify_answer, strip_token

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
