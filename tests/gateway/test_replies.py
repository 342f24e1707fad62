"""Reply shaping, read as transcripts: what the agent does, then what its person is shown."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.media import Media
from gateway.replies import Blocks, Delta, Output, Partial, Reply, ReplyShaper, ReplyStyle, finished

Event = tuple[str, dict[str, Any]]


def text(delta: str) -> Event:
    return "text_chunk", {"delta": delta}


def think(delta: str) -> Event:
    return "think_chunk", {"delta": delta}


def tool(phase: str, name: str = "exec", error: str | None = None, **fields: Any) -> Event:
    state = {"end": "COMPLETED", "error": "FAILED"}.get(phase, "RUNNING")
    call = {"id": f"id-{name}", "name": name, "state": state, **fields}
    return f"tool:{phase}", {"call": call, **({"error": error} if error else {})}


def shape(events: list[Event], final: str, **style: Any) -> tuple[list[Output], Reply]:
    shaper = ReplyShaper(ReplyStyle(**style))
    outputs = [output for type_, data in events for output in shaper.feed(type_, data)]
    late, reply = shaper.finish(final)
    return outputs + late, reply


def parts(outputs: list[Output]) -> list[str]:
    return [f"{output.kind}: {output.text}" for output in outputs if isinstance(output, Partial)]


def streamed(outputs: list[Output]) -> str:
    return "".join(output.text for output in outputs if isinstance(output, Delta))


# --- plain answers ----------------------------------------------------------------------------------------------------


def test_a_plain_answer_streams_and_arrives() -> None:
    outputs, reply = shape([text("Hel"), text("lo")], "Hello")
    assert outputs == [Delta("Hel"), Delta("lo")]
    assert reply == Reply(text="Hello")


def test_events_that_say_nothing_about_the_reply_are_passed_over() -> None:
    outputs, reply = shape([("run:start", {}), tool("update"), ("token_usage", {}), ("compaction:start", {})], "Hi")
    assert (outputs, reply) == ([], Reply(text="Hi"))


def test_a_silent_answer_is_shown_to_nobody_not_even_its_beginning() -> None:
    outputs, reply = shape([text("NO"), text("_REP"), text("LY\n")], "NO_REPLY\n")
    assert (outputs, reply) == ([], Reply(silent=True))


def test_what_only_began_like_silence_is_shown_at_the_end() -> None:
    outputs, reply = shape([text("NO_")], "NO_")
    assert (outputs, reply) == ([Delta("NO_")], Reply(text="NO_"))


def test_silence_after_a_tool_is_silence_although_there_was_text_before() -> None:
    outputs, reply = shape([text("Let me see."), tool("start"), tool("end"), text("NO_REPLY")], "NO_REPLY")
    assert streamed(outputs) == "Let me see."
    assert reply == Reply(silent=True)


# --- tools and thoughts -----------------------------------------------------------------------------------------------


def test_a_failed_tool_is_told_when_there_is_nothing_else_to_say() -> None:
    _, reply = shape([tool("start"), tool("error", error="no such file"), tool("end")], "")
    assert reply == Reply(text="exec failed: no such file")


@pytest.mark.parametrize("final", ["Done.", "NO_REPLY"])
def test_a_failed_tool_is_not_told_beside_an_answer_or_a_chosen_silence(final: str) -> None:
    _, reply = shape([tool("start"), tool("error", error="no such file")], final)
    assert "failed" not in reply.text


def test_nothing_at_all_is_silent() -> None:
    assert shape([tool("start"), tool("end")], " \n") == ([], Reply(silent=True))


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
    assert shape(sent, "Dinner is ready\n") == ([], Reply(silent=True))
    assert shape(sent, "Dinner is late")[1] == Reply(text="Dinner is late")
    failed = [*sent, tool("start"), tool("error", error="no")]
    assert shape(failed, "")[1] == Reply(text="exec failed: no")


def test_somebody_else_can_tell_what_was_sent() -> None:
    shaper = ReplyShaper(ReplyStyle())
    shaper.note_sent("  ")
    for number in range(100):
        shaper.note_sent(f"text {number}")
    assert shaper.finish("text 99")[1] == Reply(silent=True)
    assert shaper.finish("text 1")[1] == Reply(text="text 1")


# --- answers in parts -------------------------------------------------------------------------------------------------

STORY = [
    *(text("Let me "), text("look."), think("Hmm."), text("In the shed."), tool("start"), tool("end")),
    *(think("Aha."), text("Found it.")),
]


def test_parts_end_with_each_text() -> None:
    outputs, reply = shape(STORY, "Found it.", blocks=Blocks.TEXT_END)
    assert parts(outputs) == ["text: Let me look.", "text: In the shed."]
    assert reply == Reply(text="Found it.")
    assert streamed(outputs) == "Let me look.In the shed.Found it."


def test_parts_end_with_each_message() -> None:
    outputs, reply = shape(STORY, "Found it.", blocks=Blocks.MESSAGE_END)
    assert parts(outputs) == ["text: Let me look.In the shed."]
    assert reply == Reply(text="Found it.")


def test_without_parts_only_the_final_text_counts() -> None:
    outputs, reply = shape(STORY, "Found it.")
    assert (parts(outputs), reply) == ([], Reply(text="Found it."))


def test_tools_and_thoughts_are_parts_of_their_own_in_the_order_they_happened() -> None:
    outputs, reply = shape(STORY, "Found it.", blocks=Blocks.TEXT_END, verbose=True, reasoning=True)
    assert parts(outputs) == [
        "text: Let me look.",
        "reasoning: Reasoning:\nHmm.",
        "text: In the shed.",
        "tool: [exec]",
        "reasoning: Reasoning:\nAha.",
    ]
    assert reply == Reply(text="Found it.")


def test_silence_is_no_part() -> None:
    outputs, reply = shape([text("NO_REPLY"), tool("start"), text(" ")], "", blocks=Blocks.TEXT_END)
    assert (outputs, reply) == ([], Reply(silent=True))


def test_a_final_text_that_was_a_part_already_is_not_told_twice() -> None:
    events = [text("All "), text("done."), think("Nothing more.")]
    outputs, reply = shape(events, "All done.\n", blocks=Blocks.TEXT_END)
    assert (parts(outputs), reply) == (["text: All done."], Reply(silent=True))
    outputs, reply = shape([text("One."), think("And"), *events], "One.\nAll done.", blocks=Blocks.TEXT_END)
    assert (parts(outputs), reply) == (["text: One.", "text: All done."], Reply(silent=True))


def test_a_final_text_that_was_never_streamed_is_told() -> None:
    _, reply = shape([text("Let me see."), tool("start"), tool("end")], "Here.", blocks=Blocks.MESSAGE_END)
    assert reply == Reply(text="Here.")


def test_a_failed_tool_is_not_told_when_a_part_was() -> None:
    events = [text("Let me see."), tool("start"), tool("error", error="no")]
    assert shape(events, "", blocks=Blocks.MESSAGE_END)[1] == Reply(silent=True)


def test_a_text_without_end_is_told_in_parts() -> None:
    events = [text("x" * 100_000)] * 7
    outputs, reply = shape(events, "x" * 700_000, blocks=Blocks.MESSAGE_END)
    assert [len(output.text) for output in outputs if isinstance(output, Partial)] == [300_000, 300_000]
    assert len(reply.text) == 100_000


@given(
    pieces=st.lists(st.sampled_from(["Hello. ", "NO_", "REPLY", "NO_REPLY", " ", "x"]).map(text) | st.just(think("h"))),
    tools=st.booleans(),
)
def test_parts_and_the_final_reply_together_are_the_text(pieces: list[Event], *, tools: bool) -> None:
    whole = "".join(data["delta"] for type_, data in pieces if type_ == "text_chunk")
    events = [*pieces, tool("start"), tool("end"), text("Bye.")] if tools else [*pieces, text("Bye.")]
    outputs, reply = shape(events, f"{whole}Bye.", blocks=Blocks.MESSAGE_END)
    told = [output.text for output in outputs if isinstance(output, Partial)] + [reply.text]
    first = "" if tools and whole.strip() == "NO_REPLY" else whole
    if not (tools and not told[:-1]):  # with nothing told before, the run's own final text is the reply, whole
        assert "".join("".join(told).split()) == "".join(f"{first}Bye.".split())


# --- a retry after a compaction ---------------------------------------------------------------------------------------


def test_a_retry_after_a_compaction_begins_anew() -> None:
    before = [think("Old."), tool("start"), tool("error", error="no"), text("NO")]
    after = [("compaction:end", {"reason": "overflow"}), text("New.")]
    outputs, reply = shape([*before, *after], "New.", blocks=Blocks.OFF, verbose=True, reasoning=True)
    assert streamed(outputs) == "New."
    assert reply == Reply(text="New.")
    outputs, reply = shape([text("Old part"), *after], "New.", blocks=Blocks.TEXT_END)
    assert (parts(outputs), reply) == ([], Reply(text="New."))


@pytest.mark.parametrize(
    "data", [{}, {"reason": "threshold"}, {"reason": "overflow", "aborted": True}, {"retry": True, "error": "no"}]
)
def test_a_compaction_without_a_retry_changes_nothing(data: dict[str, Any]) -> None:
    _, reply = shape([tool("end"), ("compaction:end", data)], "Hi", verbose=True)
    assert reply.text == "[exec]\n\nHi"


# --- files ------------------------------------------------------------------------------------------------------------


def check(name: str) -> Media | None:
    return Media(name, "image/png", 1) if Path(name).suffix == ".png" else None


def test_files_go_beside_the_text() -> None:
    assert finished(Reply(text="Look:\nMEDIA:a.png\nMEDIA:b.exe"), check) == Reply(
        text="Look:\nMEDIA:b.exe", media=(Media("a.png", "image/png", 1),)
    )
    assert finished(Reply(text="MEDIA:a.png"), check).silent is False


def test_a_file_with_a_silent_text_is_a_file_alone() -> None:
    assert finished(Reply(text="MEDIA:a.png\nNO_REPLY"), check) == Reply(media=(Media("a.png", "image/png", 1),))


def test_a_silent_reply_stays_silent() -> None:
    assert finished(Reply(silent=True), check) == Reply(silent=True)
