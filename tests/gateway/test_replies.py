"""Reply shaping, read as transcripts: what the agent does, then what its person is shown; and silence."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.turns.media import Media
from gateway.turns.replies import (
    NO_REPLY,
    Blocks,
    FinalReply,
    NoReplyFilter,
    ReplyContent,
    ReplyShaper,
    ReplyStyle,
    attach_media,
    is_silent,
)

Event = tuple[str, dict[str, Any]]
TEXT_END, MESSAGE_END = {"blocks": Blocks.TEXT_END}, {"blocks": Blocks.MESSAGE_END}
SILENT = ReplyContent(silent=True)


def text(delta: str) -> Event:
    return "text", {"delta": delta}


def think(delta: str) -> Event:
    return "thought", {"delta": delta}


def tool(phase: str, name: str = "exec", error: str | None = None, **fields: Any) -> Event:
    state = {"end": "COMPLETED", "error": "FAILED"}.get(phase, "RUNNING")
    call = {"id": f"id-{name}", "name": name, "state": state, **fields}
    return f"tool:{phase}", {"call": call, **({"error": error} if error else {})}


def sent(message: str, **fields: Any) -> Event:
    """A message that a tool has sent; as a preview of the tool's arguments."""
    return tool("end", "message", input_preview=message, **fields)


def compaction(**data: Any) -> Event:
    return "compaction:end", data


def answer(events: list[Event], final: str, **style: Any) -> tuple[list[str], FinalReply]:
    """The parts in short, and the end."""
    shaper = ReplyShaper(ReplyStyle(**style))
    parts = []
    for type_, data in events:
        if type_ == "text":
            parts += shaper.add_text(data["delta"]) if shaper.wants_text else []
        elif type_ == "thought":
            parts += shaper.add_reasoning(data["delta"]) if shaper.wants_reasoning else []
        else:
            parts += shaper.add_event(type_, data)
    return [f"{part.kind}: {part.text}" for part in parts], shaper.finish(final)


def test_a_shaper_wants_no_more_than_its_style_needs() -> None:
    shapers = [ReplyShaper(ReplyStyle(**style)) for style in ({}, {"verbose": True}, {"reasoning": True}, TEXT_END)]
    assert [shaper.wants_text for shaper in shapers] == [False, False, False, True]
    assert [shaper.wants_reasoning for shaper in shapers] == [False, False, True, True]


LOOK = text("Let me see.")
DONE, FAILED = [tool("start"), tool("end")], [tool("start"), tool("error", error="no")]
TOOLS = [tool("start"), tool("end", duration_ms=100), tool("start", "read"), tool("error", "read", error="gone")]
THOUGHTS = [think("Hmm. "), think("Yes."), text("Hello")]
DINNER = [tool("start", "message"), sent('{"text":"Dinner  is ready"}')]
SENT = [*(sent(f'{{"text":" text {n} "}}', id=str(n)) for n in range(100)), sent('{"text":"  "}', id="x")]
FULL = {"reason": "overflow"}
RETRY = compaction(**FULL)
FIRST = [think("Old."), *FAILED, text("NO"), RETRY, text("New.")]
SHAPED: dict[str, tuple[list[Event], str, dict[str, Any], str]] = {
    "a plain answer is told as it is": ([text("Hel"), text("lo")], "Hello", {}, "Hello"),
    "other events say nothing": ([("run:start", {}), tool("update"), ("token_usage", {})], "Hi", {}, "Hi"),
    "silence": ([text("NO_REPLY\n")], "NO_REPLY\n", {}, ""),
    "silence after a tool although there was text": ([LOOK, *DONE, text("NO_REPLY")], "NO_REPLY", {}, ""),
    "nothing at all": (DONE, " \n", {}, ""),
    "a failed tool where there is nothing else to say": (FAILED, "", {}, "exec failed: no"),
    "a failed tool that did something later": ([*FAILED, tool("end")], "", {}, "exec failed: no"),
    "no failed tool beside an answer": (FAILED, "Done.", {}, "Done."),
    "a failed tool behind silence": (FAILED, "NO_REPLY", {}, "exec failed: no"),
    "a failed tool before one that worked": ([*FAILED, tool("end", id="other")], "NO_REPLY", {}, ""),
    "tools where they are shown": (TOOLS, "Done.", {"verbose": True}, "[exec] (0.1 s)\n[read] failed: gone\n\nDone."),
    "tools where they are not": (TOOLS, "Done.", {}, "Done."),
    "thoughts where they are shown": (THOUGHTS, "Hello", {"reasoning": True}, "Reasoning:\nHmm. Yes.\n\nHello"),
    "thoughts where they are not": (THOUGHTS, "Hello", {}, "Hello"),
    "an answer that a tool has sent": (DINNER, "Dinner is ready\n", {}, ""),
    "an answer beside one that a tool has sent": (DINNER, "Dinner is late", {}, "Dinner is late"),
    "the latest of many that tools have sent": (SENT, "text 99", {}, ""),
    "the oldest that is known": (SENT, "text 50", {}, ""),
    "one that is too old": (SENT, "text 49", {}, "text 49"),
    "a retry after a compaction": (FIRST, "New.", {"verbose": True, "reasoning": True}, "New."),
    "a compaction": ([tool("end"), compaction()], "Hi", {"verbose": True}, "[exec]\n\nHi"),
    "one before it was full": ([tool("end"), compaction(reason="threshold")], "Hi", {"verbose": True}, "[exec]\n\nHi"),
    "one that was ended": ([tool("end"), compaction(**FULL, aborted=True)], "Hi", {"verbose": True}, "[exec]\n\nHi"),
    "one that failed": ([tool("end"), compaction(**FULL, error="no")], "Hi", {"verbose": True}, "[exec]\n\nHi"),
}


@pytest.mark.parametrize("title", SHAPED)
def test_a_reply_without_parts(title: str) -> None:
    events, final, style, expected = SHAPED[title]
    parts, end = answer(events, final, **style)
    assert (parts, end.remainder) == ([], ReplyContent(text=expected) if expected else SILENT)
    assert end.full is end.remainder


@pytest.mark.parametrize("final", ["", "NO_REPLY"])
@pytest.mark.parametrize(
    ("message", "told"),
    [('{"text":"It is late"}', False), ('{"text":"' + "long " * 38, False), ('{"text":"a","to":"bob"}', True)],
)
def test_a_failed_tool_is_not_told_to_who_was_spoken_to_by_a_messaging_tool(
    message: str, final: str, *, told: bool
) -> None:
    _, end = answer([sent(message), RETRY, *FAILED], final)
    assert bool(end.remainder.text) is told


def test_thoughts_without_end_are_cut() -> None:
    _, end = answer([think("x" * 15_000)] * 3, "Hello", reasoning=True)
    assert end.full.text.count("x") == 20_000


# --- answers in parts -------------------------------------------------------------------------------------------------

STORY = [
    *(text("Let me "), text("look."), think("Hmm."), text("In the shed."), tool("start"), tool("end")),
    *(think("Aha."), text("Found it.")),
]
ALL_DONE = [text("All "), text("done."), think("Nothing more.")]
TWO = [text("One."), think("And"), *ALL_DONE]
EVERYTHING = {**TEXT_END, "verbose": True, "reasoning": True}
FOUND, SEE = "Found it.", "text: Let me see."
EVERY_PART = (
    "text: Let me look.|reasoning: Reasoning:\nHmm.|text: In the shed.|tool: [exec]|reasoning: Reasoning:\nAha."
)
PARTS: dict[str, tuple[list[Event], str, dict[str, Any], str, str, str]] = {
    "they end with each text": (STORY, FOUND, TEXT_END, "text: Let me look.|text: In the shed.", FOUND, FOUND),
    "they end with each message": (STORY, FOUND, MESSAGE_END, "text: Let me look.In the shed.", FOUND, FOUND),
    "tools and thoughts in their order": (STORY, FOUND, EVERYTHING, EVERY_PART, FOUND, FOUND),
    "silence is none": ([text("NO_REPLY"), tool("start"), text(" ")], "", TEXT_END, "", "", ""),
    "silence after one": ([LOOK, *DONE, text("NO_REPLY")], "NO_REPLY", MESSAGE_END, SEE, "", ""),
    "a final text that was one": (ALL_DONE, "All done.\n", TEXT_END, "text: All done.", "", "All done.\n"),
    "a final text that was two": (
        TWO,
        "One.\nAll done.",
        TEXT_END,
        "text: One.|text: All done.",
        "",
        "One.\nAll done.",
    ),
    "a final text that was never streamed": ([LOOK, *DONE], "Here.", MESSAGE_END, SEE, "Here.", "Here."),
    "a failed tool after one": ([LOOK, *FAILED], "", MESSAGE_END, SEE, "", "exec failed: no"),
    "a retry after a compaction": ([text("Old part"), RETRY, text("New.")], "New.", TEXT_END, "", "New.", "New."),
}


@pytest.mark.parametrize("title", PARTS)
def test_a_reply_in_parts_and_what_is_left_for_those_who_had_them_and_for_the_others(title: str) -> None:
    events, final, style, expected, remainder, full = PARTS[title]
    parts, end = answer(events, final, **style)
    assert "|".join(parts) == expected
    assert end == tuple(ReplyContent(text=each) if each else SILENT for each in (remainder, full))


def test_a_text_without_end_is_told_in_parts() -> None:
    parts, end = answer([text("x" * 100_000)] * 7, "x" * 700_000, **MESSAGE_END)
    assert [len(part) for part in parts] == [len("text: ") + 300_000] * 2
    assert (len(end.remainder.text), len(end.full.text)) == (100_000, 700_000)


@given(
    pieces=st.lists(st.sampled_from(["Hello. ", "NO_", "REPLY", "NO_REPLY", " ", "x"]).map(text) | st.just(think("h"))),
    tools=st.booleans(),
)
def test_parts_and_the_final_reply_together_are_the_text(pieces: list[Event], *, tools: bool) -> None:
    whole = "".join(data["delta"] for type_, data in pieces if type_ == "text")
    parts, end = answer([*pieces, *(DONE if tools else []), text("Bye.")], f"{whole}Bye.", **MESSAGE_END)
    assert end.full.text == f"{whole}Bye."
    told = [part.removeprefix("text: ") for part in parts] + [end.remainder.text]
    first = "" if tools and whole.strip() == "NO_REPLY" else whole
    if not (tools and not parts):  # with nothing told before, the run's own final text is the reply, whole
        assert "".join("".join(told).split()) == "".join(f"{first}Bye.".split())


# --- files ------------------------------------------------------------------------------------------------------------

A_PNG = (Media("a.png", "image/png", 1),)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (ReplyContent(text="Look:\nMEDIA:a.png\nMEDIA:b.exe"), ReplyContent(text="Look:\nMEDIA:b.exe", media=A_PNG)),
        (ReplyContent(text="MEDIA:a.png"), ReplyContent(media=A_PNG)),
        (ReplyContent(text="MEDIA:a.png\nNO_REPLY"), ReplyContent(media=A_PNG)),
        (SILENT, SILENT),
    ],
)
def test_files_go_beside_the_text(reply: ReplyContent, expected: ReplyContent) -> None:
    def check(name: str) -> Media | None:
        return Media(name, "image/png", 1) if Path(name).suffix == ".png" else None

    assert attach_media(reply, check) == expected


# --- silence ----------------------------------------------------------------------------------------------------------


def raw(*texts: str) -> list[msgspec.Raw]:
    return [msgspec.Raw(msgspec.json.encode(text)) for text in texts]


def shown(pieces: list[msgspec.Raw]) -> list[str]:
    return [msgspec.json.decode(piece, type=str) for piece in pieces]


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted(place % (len(text) + 1) for place in places)
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]


@pytest.mark.parametrize("text", ["NO_REPLY", " \n NO_REPLY\t\n"])
def test_the_token_alone_is_silent(text: str) -> None:
    assert is_silent(text)


@pytest.mark.parametrize("text", ["", "NO_REPLY.", "no_reply", "NO REPLY", "NO_REPLY NO_REPLY", "so: NO_REPLY"])
def test_anything_else_is_not(text: str) -> None:
    assert not is_silent(text)


near_tokens = st.sampled_from(["NO_REPLY", "NO", "NO_", "NO REPLY", "NO_REPLYx", "NO_REPLY x", " \n", ""])
texts = st.one_of(
    st.text(max_size=20),
    st.builds("{}{}{}".format, st.sampled_from(["", " ", "\n\n"]), near_tokens, st.sampled_from(["", " ", "\n", "x"])),
)


@given(texts, st.lists(st.integers(0, 30)), st.booleans())
def test_a_text_arrives_whole_in_any_pieces_unless_it_is_silent(text: str, places: list[int], at_once: bool) -> None:  # noqa: FBT001 - by name
    held, pieces = NoReplyFilter(), cut(text, places)
    before_the_end = "".join(
        shown(held.push(raw(*pieces))) if at_once else [t for p in pieces for t in shown(held.push(raw(p)))]
    )
    whole = before_the_end + "".join(shown(held.end()))
    assert whole == ("" if is_silent(text) or not text.strip() else text)
    assert not is_silent(text) or before_the_end == ""


@given(texts)
def test_nothing_is_held_back_longer_than_it_may_become_a_silent_answer(text: str) -> None:
    held = NoReplyFilter()
    for end in range(1, len(text) + 1):
        pieces = held.push(raw(text[end - 1]))
        begun = text[:end].lstrip()
        if not (NO_REPLY.startswith(begun) or begun.rstrip() == NO_REPLY):
            assert pieces
            return


def test_after_the_first_piece_of_an_answer_all_pass_untouched_and_the_next_text_is_held_back_again() -> None:
    held = NoReplyFilter()
    assert shown(held.push(raw("NO", "_"))) == []
    assert shown(held.push(raw("thing", " to", " see"))) == ["NO_thing", " to", " see"]
    later = raw("NO_REPLY")
    assert held.push(later) is later
    assert held.end() == []
    assert held.push(raw("NO_REPLY")) == []


def test_white_space_without_end_is_not_kept() -> None:
    held = NoReplyFilter()
    for piece in (*[" " * 1000] * 100, "NO_REPLY", *["\n" * 1000] * 100):
        assert held.push(raw(piece)) == []
    assert shown(held.push(raw("x"))) == [" " * 256 + "NO_REPLY" + "\n" * 256 + "x"]
