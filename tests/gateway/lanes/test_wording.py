import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.lanes import RejectionReason
from gateway.lanes.messages import merge_messages, rejection_text, summary_line


def test_merged_messages_stand_under_their_numbers_below_a_heading_that_says_how_they_came() -> None:
    assert merge_messages(["Fix the test.", "No, delete it.\nAnd tell me."], []) == (
        "[2 messages came in while you were busy, in this order. "
        "Read everything before you act: a later message may correct or take back an earlier one.]\n\n"
        "[1 of 2]\nFix the test.\n\n"
        "[2 of 2]\nNo, delete it.\nAnd tell me."
    )


def test_after_an_overflow_the_prompt_says_how_many_were_dropped_with_a_line_each() -> None:
    assert merge_messages(["c", "d"], ["a", "b"]) == (
        "[4 messages came in while you were busy, too many to keep: "
        "2 were dropped but for their first words, 2 follow in full. "
        "Read everything before you act: a later message may correct or take back an earlier one.]\n\n"
        "[Dropped: 2]\n- a\n- b\n\n"
        "[1 of 2]\nc\n\n"
        "[2 of 2]\nd"
    )


def test_one_survivor_stands_alone_below_what_was_dropped() -> None:
    assert merge_messages(["b"], ["a"]) == (
        "[2 messages came in while you were busy, too many to keep: "
        "1 was dropped but for its first words, 1 follows in full. "
        "Read everything before you act: a later message may correct or take back an earlier one.]\n\n"
        "[Dropped: 1]\n- a\n\n"
        "[In full]\nb"
    )


@pytest.mark.parametrize(("lines", "count"), [(["a"], "1 message came"), (["a", "b"], "2 messages came")])
def test_where_nothing_is_left_in_full_the_model_is_told_what_to_do(lines: list[str], count: str) -> None:
    prompt = merge_messages([], lines)
    assert prompt.startswith(f"[{count} in while you were busy and had to be dropped")
    assert "ask for what is missing" in prompt
    assert prompt.endswith(f"[Dropped: {len(lines)}]\n" + "\n".join(f"- {line}" for line in lines))


def test_of_many_dropped_messages_the_latest_are_shown_and_the_others_counted() -> None:
    prompt = merge_messages(["x"], [f"line {number}" for number in range(1000)])
    shown = [line for line in prompt.splitlines() if line.startswith("- ")]
    assert shown == [f"- line {number}" for number in range(980, 1000)]
    assert "[Dropped: 1000]" in prompt
    assert "and 980 more, older than these" in prompt


@given(st.text(max_size=400))
def test_a_summary_is_one_line_of_at_most_160_characters_with_its_white_space_collapsed(text: str) -> None:
    line = summary_line(text)
    assert 1 <= len(line) <= 160
    assert line == " ".join(line.split())
    whole = " ".join(text.split())
    if not whole:
        assert line == "(no text)"
    elif len(whole) <= 160:
        assert line == whole
    else:
        assert line.endswith("…")
        assert whole.startswith(line[:-1])


def test_many_short_words_fill_the_line_as_far_as_it_goes() -> None:
    assert summary_line("x\n\n" * 500) == "x " * 79 + "x…"


def test_a_line_of_exactly_160_characters_is_left_alone_and_of_161_is_cut() -> None:
    assert summary_line("x" * 160) == "x" * 160
    assert summary_line("x" * 161) == "x" * 159 + "…"


@pytest.mark.parametrize("reason", list(RejectionReason))
def test_every_refusal_names_its_session_or_the_setting_to_blame(reason: RejectionReason) -> None:
    text = rejection_text(reason, "chat:7", cap=20, pending=10_000)
    assert "chat:7" in text or "gateway.queue.pending" in text
    assert "\n" not in text
