"""What models and callers read of merged, shortened and refused messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.lanes.messages import RejectionReason, merge_messages, rejection_text, summary_line

READ = "Read everything before you act: a later message may correct or take back an earlier one.]\n\n"


def test_a_prompt_says_how_its_messages_came_and_what_is_left_of_each() -> None:
    came = "messages came in while you were busy"
    assert merge_messages(["Fix it.", "No.\nTell me."], []) == (
        f"[2 {came}, in this order. {READ}[1 of 2]\nFix it.\n\n[2 of 2]\nNo.\nTell me."
    )
    assert merge_messages(["c", "d"], ["a", "b"]) == (
        f"[4 {came}, too many to keep: 2 were dropped but for their first words, 2 follow in full. "
        f"{READ}[Dropped: 2]\n- a\n- b\n\n[1 of 2]\nc\n\n[2 of 2]\nd"
    )
    assert merge_messages(["b"], ["a"]) == (
        f"[2 {came}, too many to keep: 1 was dropped but for its first words, 1 follows in full. "
        f"{READ}[Dropped: 1]\n- a\n\n[In full]\nb"
    )


@pytest.mark.parametrize(("lines", "count"), [(["a"], "1 message came"), (["a", "b"], "2 messages came")])
def test_where_nothing_is_left_in_full_the_model_is_told_what_to_do(lines: list[str], count: str) -> None:
    prompt = merge_messages([], lines)
    assert prompt.startswith(f"[{count} in while you were busy and had to be dropped")
    assert "ask for what is missing" in prompt
    assert prompt.endswith(f"[Dropped: {len(lines)}]\n" + "\n".join(f"- {line}" for line in lines))


def test_of_many_dropped_messages_the_latest_are_shown_and_the_others_counted() -> None:
    prompt = merge_messages(["x"], [f"line {number}" for number in range(1000)])
    assert [line for line in prompt.splitlines() if line.startswith("- ")] == [f"- line {n}" for n in range(980, 1000)]
    assert "[Dropped: 1000]" in prompt
    assert "and 980 more, older than these" in prompt


@given(st.text(max_size=400) | st.sampled_from(["x" * 160, "x" * 161, "x\n\n" * 500, " \n"]))
def test_a_summary_is_one_line_of_at_most_160_characters_with_its_white_space_collapsed(text: str) -> None:
    whole = " ".join(text.split()) or "(no text)"
    assert summary_line(text) == (whole if len(whole) <= 160 else whole[:159].rstrip() + "…")


@pytest.mark.parametrize("reason", list(RejectionReason))
def test_every_refusal_names_its_session_or_the_setting_to_blame(reason: RejectionReason) -> None:
    text = rejection_text(reason, "chat:7", cap=20, pending=10_000)
    assert "chat:7" in text or "gateway.queue.pending" in text
    assert "\n" not in text
