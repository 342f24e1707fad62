"""Reply shaping, read as transcripts: what the agent does, then what its person is shown."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.turns.media import Media
from gateway.turns.replies import Blocks, FinalReply, ReplyContent, ReplyPart, ReplyShaper, ReplyStyle, attach_media

Event = tuple[str, dict[str, Any]]


def text(delta: str) -> Event:
    return "text", {"delta": delta}


def think(delta: str) -> Event:
    return "thought", {"delta": delta}


def tool(phase: str, name: str = "exec", error: str | None = None, **fields: Any) -> Event:
    state = {"end": "COMPLETED", "error": "FAILED"}.get(phase, "RUNNING")
    call = {"id": f"id-{name}", "name": name, "state": state, **fields}
    return f"tool:{phase}", {"call": call, **({"error": error} if error else {})}


def answer(events: list[Event], final: str, **style: Any) -> tuple[list[str], FinalReply]:
    """The parts in short, and the end."""
    shaper = ReplyShaper(ReplyStyle(**style))
    told: list[ReplyPart] = []
    for type_, data in events:
        if type_ == "text":
            told += shaper.add_text(data["delta"]) if shaper.wants_text else []
        elif type_ == "thought":
            told += shaper.add_reasoning(data["delta"]) if shaper.wants_reasoning else []
        else:
            told += shaper.add_event(type_, data)
    return [f"{part.kind}: {part.text}" for part in told], shaper.finish(final)


def shape(events: list[Event], final: str, **style: Any) -> tuple[list[str], ReplyContent]:
    """The same with what is left for whoever was given the parts."""
    parts, end = answer(events, final, **style)
    return parts, end.remainder


# --- plain answers ----------------------------------------------------------------------------------------------------


def test_a_plain_answer_is_told_as_it_is_and_once() -> None:
    parts, end = answer([text("Hel"), text("lo")], "Hello")
    assert (parts, end.remainder) == ([], ReplyContent(text="Hello"))
    assert end.full is end.remainder


def test_a_shaper_wants_no_more_than_its_style_needs() -> None:
    def wants(**style: Any) -> tuple[bool, bool]:
        shaper = ReplyShaper(ReplyStyle(**style))
        return shaper.wants_text, shaper.wants_reasoning

    assert wants() == wants(verbose=True) == (False, False)
    assert wants(reasoning=True) == (False, True)
    assert wants(blocks=Blocks.TEXT_END) == wants(blocks=Blocks.MESSAGE_END) == (True, True)


def test_events_that_say_nothing_about_the_reply_are_passed_over() -> None:
    parts, reply = shape([("run:start", {}), tool("update"), ("token_usage", {}), ("compaction:start", {})], "Hi")
    assert (parts, reply) == ([], ReplyContent(text="Hi"))


def test_a_silent_answer_is_shown_to_nobody() -> None:
    assert shape([text("NO_REPLY\n")], "NO_REPLY\n") == ([], ReplyContent(silent=True))


def test_silence_after_a_tool_is_silence_although_there_was_text_before() -> None:
    events = [text("Let me see."), tool("start"), tool("end"), text("NO_REPLY")]
    assert shape(events, "NO_REPLY") == ([], ReplyContent(silent=True))
    parts, end = answer(events, "NO_REPLY", blocks=Blocks.MESSAGE_END)
    assert (parts, end) == (["text: Let me see."], (ReplyContent(silent=True), ReplyContent(silent=True)))


# --- tools and thoughts -----------------------------------------------------------------------------------------------


def test_a_failed_tool_is_told_when_there_is_nothing_else_to_say() -> None:
    _, reply = shape([tool("start"), tool("error", error="no such file"), tool("end")], "")
    assert reply == ReplyContent(text="exec failed: no such file")


def test_a_failed_tool_is_not_told_beside_an_answer() -> None:
    _, reply = shape([tool("start"), tool("error", error="no such file")], "Done.")
    assert "failed" not in reply.text


def test_a_silence_that_hides_a_failed_tool_is_told_as_that() -> None:
    failed = [tool("start"), tool("error", error="no such file")]
    assert shape(failed, "NO_REPLY") == ([], ReplyContent(text="exec failed: no such file"))
    assert shape([*failed, tool("end", id="another")], "NO_REPLY") == ([], ReplyContent(silent=True))


@pytest.mark.parametrize("final", ["", "NO_REPLY"])
@pytest.mark.parametrize(
    ("sent", "told"),
    [('{"text":"It is late"}', False), ('{"text":"' + "long " * 38, False), ('{"text":"a","to":"bob"}', True)],
)
def test_a_failed_tool_is_not_told_to_who_was_spoken_to_by_a_messaging_tool(
    sent: str, final: str, *, told: bool
) -> None:
    overflow = ("compaction:end", {"reason": "overflow"})
    events = [tool("end", "message", input_preview=sent), overflow, tool("start"), tool("error", error="no")]
    assert bool(shape(events, final)[1].text) is told


def test_nothing_at_all_is_silent() -> None:
    assert shape([tool("start"), tool("end")], " \n") == ([], ReplyContent(silent=True))


def test_what_the_tools_did_comes_before_the_answer_when_asked_for() -> None:
    events = [tool("start"), tool("end", duration_ms=100), tool("start", "read"), tool("error", "read", error="gone")]
    _, reply = shape(events, "Done.", verbose=True)
    assert reply.text == "[exec] (0.1 s)\n[read] failed: gone\n\nDone."
    _, quiet = shape(events, "Done.")
    assert quiet.text == "Done."


def test_thoughts_come_first_when_asked_for() -> None:
    events = [think("Hmm. "), think("Yes."), text("Hello")]
    assert shape(events, "Hello", reasoning=True)[1].text == "Reasoning:\nHmm. Yes.\n\nHello"
    assert shape(events, "Hello")[1].text == "Hello"


def test_thoughts_without_end_are_cut() -> None:
    _, reply = shape([think("x" * 15_000)] * 3, "Hello", reasoning=True)
    assert reply.text.count("x") == 20_000


def test_an_answer_that_a_messaging_tool_has_sent_is_not_sent_again() -> None:
    sent = [tool("start", "message"), tool("end", "message", input_preview='{"text":"Dinner  is ready"}')]
    assert shape(sent, "Dinner is ready\n") == ([], ReplyContent(silent=True))
    assert shape(sent, "Dinner is late")[1] == ReplyContent(text="Dinner is late")


def test_of_what_messaging_tools_have_sent_the_latest_is_known() -> None:
    events = [tool("end", "message", id=str(n), input_preview=f'{{"text":" text {n} "}}') for n in range(100)]
    nothing = tool("end", "message", id="x", input_preview='{"text":"  "}')
    assert shape([*events, nothing], "text 99")[1] == ReplyContent(silent=True)
    assert shape([*events, nothing], "text 50")[1] == ReplyContent(silent=True)
    assert shape([*events, nothing], "text 49")[1] == ReplyContent(text="text 49")


# --- answers in parts -------------------------------------------------------------------------------------------------

STORY = [
    *(text("Let me "), text("look."), think("Hmm."), text("In the shed."), tool("start"), tool("end")),
    *(think("Aha."), text("Found it.")),
]


def test_parts_end_with_each_text() -> None:
    parts, end = answer(STORY, "Found it.", blocks=Blocks.TEXT_END)
    assert parts == ["text: Let me look.", "text: In the shed."]
    assert end == (ReplyContent(text="Found it."), ReplyContent(text="Found it."))


def test_parts_end_with_each_message() -> None:
    parts, reply = shape(STORY, "Found it.", blocks=Blocks.MESSAGE_END)
    assert parts == ["text: Let me look.In the shed."]
    assert reply == ReplyContent(text="Found it.")


def test_without_parts_only_the_final_text_counts() -> None:
    assert shape(STORY, "Found it.") == ([], ReplyContent(text="Found it."))


def test_tools_and_thoughts_are_parts_of_their_own_in_the_order_they_happened() -> None:
    parts, reply = shape(STORY, "Found it.", blocks=Blocks.TEXT_END, verbose=True, reasoning=True)
    assert parts == [
        "text: Let me look.",
        "reasoning: Reasoning:\nHmm.",
        "text: In the shed.",
        "tool: [exec]",
        "reasoning: Reasoning:\nAha.",
    ]
    assert reply == ReplyContent(text="Found it.")


def test_silence_is_no_part() -> None:
    assert shape([text("NO_REPLY"), tool("start"), text(" ")], "", blocks=Blocks.TEXT_END) == (
        [],
        ReplyContent(silent=True),
    )


def test_a_final_text_that_was_a_part_already_is_told_again_only_to_those_who_had_no_parts() -> None:
    events = [text("All "), text("done."), think("Nothing more.")]
    parts, end = answer(events, "All done.\n", blocks=Blocks.TEXT_END)
    assert (parts, end) == (["text: All done."], (ReplyContent(silent=True), ReplyContent(text="All done.\n")))
    parts, end = answer([text("One."), think("And"), *events], "One.\nAll done.", blocks=Blocks.TEXT_END)
    assert (parts, end.remainder) == (["text: One.", "text: All done."], ReplyContent(silent=True))
    assert end.full == ReplyContent(text="One.\nAll done.")


def test_a_final_text_that_was_never_streamed_is_told() -> None:
    _, reply = shape([text("Let me see."), tool("start"), tool("end")], "Here.", blocks=Blocks.MESSAGE_END)
    assert reply == ReplyContent(text="Here.")


def test_a_failed_tool_is_told_only_to_those_who_had_no_part() -> None:
    events = [text("Let me see."), tool("start"), tool("error", error="no")]
    _, end = answer(events, "", blocks=Blocks.MESSAGE_END)
    assert end == (ReplyContent(silent=True), ReplyContent(text="exec failed: no"))


def test_a_text_without_end_is_told_in_parts() -> None:
    parts, end = answer([text("x" * 100_000)] * 7, "x" * 700_000, blocks=Blocks.MESSAGE_END)
    assert [len(part) for part in parts] == [len("text: ") + 300_000] * 2
    assert (len(end.remainder.text), len(end.full.text)) == (100_000, 700_000)


@given(
    pieces=st.lists(st.sampled_from(["Hello. ", "NO_", "REPLY", "NO_REPLY", " ", "x"]).map(text) | st.just(think("h"))),
    tools=st.booleans(),
)
def test_parts_and_the_final_reply_together_are_the_text(pieces: list[Event], *, tools: bool) -> None:
    whole = "".join(data["delta"] for type_, data in pieces if type_ == "text")
    events = [*pieces, tool("start"), tool("end"), text("Bye.")] if tools else [*pieces, text("Bye.")]
    parts, end = answer(events, f"{whole}Bye.", blocks=Blocks.MESSAGE_END)
    assert end.full.text == f"{whole}Bye."
    told = [part.removeprefix("text: ") for part in parts] + [end.remainder.text]
    first = "" if tools and whole.strip() == "NO_REPLY" else whole
    if not (tools and not parts):  # with nothing told before, the run's own final text is the reply, whole
        assert "".join("".join(told).split()) == "".join(f"{first}Bye.".split())


# --- a retry after a compaction ---------------------------------------------------------------------------------------


def test_a_retry_after_a_compaction_begins_anew() -> None:
    before = [think("Old."), tool("start"), tool("error", error="no"), text("NO")]
    after = [("compaction:end", {"reason": "overflow"}), text("New.")]
    _, reply = shape([*before, *after], "New.", verbose=True, reasoning=True)
    assert reply == ReplyContent(text="New.")
    parts, reply = shape([text("Old part"), *after], "New.", blocks=Blocks.TEXT_END)
    assert (parts, reply) == ([], ReplyContent(text="New."))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"reason": "threshold"},
        {"reason": "overflow", "aborted": True},
        {"reason": "overflow", "error": "no"},
    ],
)
def test_a_compaction_without_a_retry_changes_nothing(data: dict[str, Any]) -> None:
    _, reply = shape([tool("end"), ("compaction:end", data)], "Hi", verbose=True)
    assert reply.text == "[exec]\n\nHi"


# --- files ------------------------------------------------------------------------------------------------------------


def check(name: str) -> Media | None:
    return Media(name, "image/png", 1) if Path(name).suffix == ".png" else None


def test_files_go_beside_the_text() -> None:
    assert attach_media(ReplyContent(text="Look:\nMEDIA:a.png\nMEDIA:b.exe"), check) == ReplyContent(
        text="Look:\nMEDIA:b.exe", media=(Media("a.png", "image/png", 1),)
    )
    assert attach_media(ReplyContent(text="MEDIA:a.png"), check).silent is False


def test_a_file_with_a_silent_text_is_a_file_alone() -> None:
    assert attach_media(ReplyContent(text="MEDIA:a.png\nNO_REPLY"), check) == ReplyContent(
        media=(Media("a.png", "image/png", 1),)
    )


def test_a_silent_reply_stays_silent() -> None:
    assert attach_media(ReplyContent(silent=True), check) == ReplyContent(silent=True)
