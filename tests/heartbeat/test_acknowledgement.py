"""Which answers to a beat are kept back, and what is told of the others."""

import pytest

from heartbeat.answers import AlertAnswer, BeatKind, SilentAnswer, classify_answer, strip_token

NOTHING_BESIDE = {
    "alone": "HEARTBEAT_OK",
    "white space around": " \n\t HEARTBEAT_OK \r\n",
    "a full stop": "HEARTBEAT_OK.",
    "four marks": "HEARTBEAT_OK!!!!",
    "a mark after a space": "HEARTBEAT_OK .",
    "a Chinese full stop": "HEARTBEAT_OK。",
    "an ellipsis": "HEARTBEAT_OK…",
    "bold": "**HEARTBEAT_OK**",
    "bold with its full stop": "**HEARTBEAT_OK.**",
    "bold, then a full stop": "**HEARTBEAT_OK**.",
    "italic": "*HEARTBEAT_OK*",
    "italic by underscores": "_HEARTBEAT_OK_",
    "bold by underscores": "__HEARTBEAT_OK__",
    "bold and italic": "***HEARTBEAT_OK***",
    "struck through": "~~HEARTBEAT_OK~~",
    "as code": "`HEARTBEAT_OK`",
    "as bold code": "**`HEARTBEAT_OK`**",
    "in a fence": "```\nHEARTBEAT_OK\n```",
    "in a fence with a language": "```text\nHEARTBEAT_OK\n```",
    "in a fence of tildes": "~~~\nHEARTBEAT_OK\n~~~",
    "a paragraph": "<p>HEARTBEAT_OK</p>",
    "tags in tags": "<div><b>HEARTBEAT_OK</b></div>",
    "a tag with attributes": '<p class="status ok" id=x>HEARTBEAT_OK</p>',
    "a line break": "HEARTBEAT_OK<br/>",
    "hard spaces": "&nbsp;HEARTBEAT_OK&nbsp;&NBSP;",
    "hard spaces of one character": "\u00a0HEARTBEAT_OK\u00a0",
    "tags and hard spaces": "<p>&nbsp;<i>HEARTBEAT_OK</i>.&nbsp;</p>",
    "quoted": '"HEARTBEAT_OK"',
    "in typographic quotes": "\u201cHEARTBEAT_OK\u201d",
    "in brackets": "(HEARTBEAT_OK)",
    "in square brackets, bold": "**[HEARTBEAT_OK]**",
    "twice": "HEARTBEAT_OK HEARTBEAT_OK",
    "on three lines": "HEARTBEAT_OK\nHEARTBEAT_OK.\nHEARTBEAT_OK!",
    "glued together": "HEARTBEAT_OKHEARTBEAT_OK",
    "glued together by underscores": "HEARTBEAT_OK__HEARTBEAT_OK",
    "twice, each in its markup": "**HEARTBEAT_OK**\n\n`HEARTBEAT_OK`",
}

NOT_AT_AN_EDGE = {
    "no token": "The disk is full.",
    "no token, with its markup": "**Disk** `full` <b>now</b>",
    "in the middle": "I would say HEARTBEAT_OK but the disk is full.",
    "in the middle, as code": "Answer `HEARTBEAT_OK` when all is well.",
    "in the middle of lines": "Disk full.\nHEARTBEAT_OK\nBackup missing.",
    "a longer word": "HEARTBEAT_OKAY",
    "a longer name": "HEARTBEAT_OK_2 is a constant",
    "the end of a longer name": "see MY_HEARTBEAT_OK",
    "the end of a longer word": "xHEARTBEAT_OK",
    "in small letters": "heartbeat_ok",
    "with a space": "HEARTBEAT OK",
    "five marks after words": "Disk full. HEARTBEAT_OK?!?!?",
    "a word after it": "Disk full. HEARTBEAT_OK not",
    "in something said between angles": "<HEARTBEAT_OK is not true> disk full",
    "half a token": "HEARTBEAT_",
    "nothing but marks": "***",
    "a file's name": "Wrote HEARTBEAT_OK.txt",
}

BESIDE = {
    "before a sentence": ("HEARTBEAT_OK Nothing new.", "Nothing new."),
    "after a sentence": ("Nothing new. HEARTBEAT_OK", "Nothing new."),
    "at both ends": ("HEARTBEAT_OK\nNothing new.\nHEARTBEAT_OK.", "Nothing new."),
    "at both ends, again and again": ("HEARTBEAT_OK, HEARTBEAT_OK: fine. HEARTBEAT_OK! HEARTBEAT_OK", "fine."),
    "at an end and in the middle": ("HEARTBEAT_OK means HEARTBEAT_OK here", "means HEARTBEAT_OK here"),
    "with its full stop": ("HEARTBEAT_OK. Nothing new.", "Nothing new."),
    "with a colon": ("HEARTBEAT_OK: all quiet", "all quiet"),
    "with four marks, and one that stays": ("HEARTBEAT_OK!!!!! x", "! x"),
    "without a space, in Chinese": ("HEARTBEAT_OK一切正常", "一切正常"),
    "with a Chinese full stop": ("一切正常。HEARTBEAT_OK。", "一切正常。"),
    "bold before a sentence": ("**HEARTBEAT_OK** Nothing new.", "Nothing new."),
    "bold with a full stop before a sentence": ("**HEARTBEAT_OK.** Nothing new.", "Nothing new."),
    "code after a sentence": ("Nothing new. `HEARTBEAT_OK`", "Nothing new."),
    "brackets after a sentence": ("Nothing new (HEARTBEAT_OK).", "Nothing new"),
    "a fence after a sentence": ("Nothing new.\n```text\nHEARTBEAT_OK\n```", "Nothing new."),
    "code after a fence": ("```\nx\n```\n`HEARTBEAT_OK`", "```\nx\n```"),
    "a paragraph of its own, last": ("<p>New.</p><p>HEARTBEAT_OK</p>", "<p>New.</p>"),
    "a paragraph of its own, first": ("<p>HEARTBEAT_OK</p><p>New.</p>", "<p>New.</p>"),
    "a tick after it": ("Nothing new. HEARTBEAT_OK ✅", "Nothing new."),
    "bold, then a full stop, before a sentence": ("**HEARTBEAT_OK**. Nothing new.", "Nothing new."),
    "glued together by underscores after a sentence": ("Nothing new. HEARTBEAT_OK__HEARTBEAT_OK", "Nothing new."),
    "markup of what follows stays": ("HEARTBEAT_OK **Disk full**", "**Disk full**"),
    "markup of what is before stays": ("**Disk full** HEARTBEAT_OK", "**Disk full**"),
    "a bullet that follows stays": ("HEARTBEAT_OK\n- disk\n- mail", "- disk\n- mail"),
    "a fence that follows stays": ("HEARTBEAT_OK\n```\ndf\n```", "```\ndf\n```"),
    "a bracket that follows stays": ("HEARTBEAT_OK(disk full)", "(disk full)"),
    "an amount that follows stays": ("HEARTBEAT_OK -5 degrees", "-5 degrees"),
    "angles in what follows stay": ("HEARTBEAT_OK a < b and c > d", "a < b and c > d"),
    "what is said between angles stays": ("HEARTBEAT_OK <disk is full>", "<disk is full>"),
    "what is said between angles before it stays": ("<disk is full> HEARTBEAT_OK", "<disk is full>"),
    "the inside keeps its lines": ("HEARTBEAT_OK\na\n\n  b\nHEARTBEAT_OK", "a\n\n  b"),
    "a file's line stays": ("HEARTBEAT_OK\nMEDIA:chart.png", "MEDIA:chart.png"),
    "after a file's line": ("MEDIA:chart.png\nHEARTBEAT_OK", "MEDIA:chart.png"),
    "a quote": ("> HEARTBEAT_OK", ">"),
    "a bullet": ("- HEARTBEAT_OK", "-"),
    "a heading": ("# HEARTBEAT_OK", "#"),
}


def plain(text: str, *, limit: int = 300) -> SilentAnswer | AlertAnswer:
    return classify_answer(text, kind=BeatKind.PLAIN, ack_max_chars=limit)


# --- the token --------------------------------------------------------------------------------------------------------


def test_the_tables_are_large() -> None:
    assert len(NOTHING_BESIDE) + len(NOT_AT_AN_EDGE) + len(BESIDE) >= 60


@pytest.mark.parametrize("text", NOTHING_BESIDE.values(), ids=NOTHING_BESIDE.keys())
def test_a_token_goes_with_the_markup_around_it(text: str) -> None:
    assert strip_token(text)[1]
    assert isinstance(classify_answer(text, kind=BeatKind.CRON, ack_max_chars=0), SilentAnswer)


@pytest.mark.parametrize("text", NOT_AT_AN_EDGE.values(), ids=NOT_AT_AN_EDGE.keys())
def test_what_has_no_token_at_an_end_is_told_as_it_is(text: str) -> None:
    assert strip_token(f"\n {text} ") == (text, False)
    assert plain(text, limit=1_000_000) == AlertAnswer(text)


@pytest.mark.parametrize(("text", "rest"), BESIDE.values(), ids=BESIDE.keys())
def test_what_stands_beside_the_token_is_left(text: str, rest: str) -> None:
    assert strip_token(text) == (rest, True)


def test_an_empty_answer_is_no_acknowledgement_and_tells_nothing() -> None:
    assert strip_token("  \n") == ("", False)
    assert plain("  \n") == SilentAnswer()


# --- the verdict ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [BeatKind.PLAIN, BeatKind.EXEC], ids=str)
def test_as_much_as_is_allowed_beside_the_token_is_kept_back(kind: BeatKind) -> None:
    assert classify_answer(f"HEARTBEAT_OK {'x' * 300}", kind=kind, ack_max_chars=300) == SilentAnswer("x" * 300)
    assert classify_answer(f"HEARTBEAT_OK {'x' * 301}", kind=kind, ack_max_chars=300) == AlertAnswer("x" * 301)


def test_a_short_answer_without_the_token_is_told() -> None:
    assert plain("Disk full.") == AlertAnswer("Disk full.")
    assert plain("Disk HEARTBEAT_OK full.") == AlertAnswer("Disk HEARTBEAT_OK full.")


def test_marks_beside_the_token_are_nothing_even_where_nothing_is_allowed() -> None:
    assert plain("> HEARTBEAT_OK", limit=0) == SilentAnswer(">")
    assert plain("✅ HEARTBEAT_OK", limit=0) == SilentAnswer("✅")
    assert plain("HEARTBEAT_OK x", limit=0) == AlertAnswer("x")
    assert plain("HEARTBEAT_OK <disk is full>", limit=0) == AlertAnswer("<disk is full>")


@pytest.mark.parametrize("kind", [BeatKind.CRON, BeatKind.CRON | BeatKind.EXEC], ids=str)
def test_a_report_of_a_scheduled_task_is_told_however_short(kind: BeatKind) -> None:
    assert classify_answer("HEARTBEAT_OK Three meetings.", kind=kind, ack_max_chars=300) == AlertAnswer(
        "Three meetings."
    )
    assert classify_answer("**HEARTBEAT_OK**", kind=kind, ack_max_chars=300) == SilentAnswer()


@pytest.mark.parametrize("kind", [BeatKind.PLAIN, BeatKind.EXEC, BeatKind.CRON], ids=str)
@pytest.mark.parametrize(
    "text", ["HEARTBEAT_OK\nMEDIA:a.png", "MEDIA:a.png\nHEARTBEAT_OK", "  MEDIA: a.png \nHEARTBEAT_OK"]
)
def test_a_line_that_hands_over_a_file_is_never_kept_back(kind: BeatKind, text: str) -> None:
    expected = text.replace("HEARTBEAT_OK", "").strip()
    assert classify_answer(text, kind=kind, ack_max_chars=300) == AlertAnswer(expected, has_media=True)


@pytest.mark.parametrize(
    "text", ["HEARTBEAT_OK the word MEDIA: x", "HEARTBEAT_OK\nMEDIA:", "HEARTBEAT_OK\nmedia:a.png"]
)
def test_what_names_no_file_is_an_answer_like_others(text: str) -> None:
    assert isinstance(plain(text), SilentAnswer)


@pytest.mark.parametrize("text", ["", "HEARTBEAT_OK", "HEARTBEAT_OK see it"])
def test_files_that_were_taken_out_of_the_answer_are_told_of_too(text: str) -> None:
    verdict = classify_answer(text, kind=BeatKind.PLAIN, ack_max_chars=300, has_media=True)
    assert verdict == AlertAnswer(text.removeprefix("HEARTBEAT_OK").strip(), has_media=True)


def always(
    text: str, *, kind: BeatKind = BeatKind.EXEC, summary: str = " make: exit 0\n"
) -> SilentAnswer | AlertAnswer:
    return classify_answer(text, kind=kind, ack_max_chars=300, exec_always_deliver=True, summary=summary)


@pytest.mark.parametrize("text", ["HEARTBEAT_OK", "", "**HEARTBEAT_OK**.", "> HEARTBEAT_OK"])
def test_where_every_command_is_told_of_the_summary_stands_for_an_empty_answer(text: str) -> None:
    assert always(text) == AlertAnswer("make: exit 0")
    assert always(text, kind=BeatKind.EXEC | BeatKind.CRON) == AlertAnswer("make: exit 0")


def test_where_every_command_is_told_of_the_agents_own_words_come_first() -> None:
    assert always("HEARTBEAT_OK It built.") == AlertAnswer("It built.")
    assert always("It built.") == AlertAnswer("It built.")


def test_telling_of_every_command_is_about_commands_only() -> None:
    assert always("HEARTBEAT_OK", kind=BeatKind.PLAIN) == SilentAnswer()
    assert always("HEARTBEAT_OK all well", kind=BeatKind.PLAIN) == SilentAnswer("all well")
    assert always("HEARTBEAT_OK", kind=BeatKind.CRON) == SilentAnswer()


def test_a_command_without_a_summary_and_without_words_leaves_nothing_to_tell() -> None:
    assert always("HEARTBEAT_OK", summary=" ") == SilentAnswer()
