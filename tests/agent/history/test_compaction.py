"""Where a conversation is cut, and what is asked of whoever summarises it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.compactor import plan_cut, summary_of, summary_prompt
from agent.sanitize import estimate_tokens
from tests.agent.history.drawing import called, prompt, resulted, said
from wire.entries import ToolResultBlock, TranscriptMessage

TURN = [called("a"), resulted("a"), said("done")]
LONG = [prompt("1"), said("x" * 4000), prompt("2"), said("y")]
OPEN = [called("a", "b"), resulted("b"), said("meanwhile"), resulted("a")]


@pytest.mark.parametrize(
    ("history", "keep_tokens", "cut"),
    [
        ([prompt("1"), *TURN, prompt("2"), *TURN, prompt("3", "follow_up"), *TURN], None, 4),  # two turns are kept
        ([prompt("1"), prompt("2")], None, None),
        (LONG, None, None),
        (LONG, 100, 2),  # turns that are too long to be kept are cut at the last one
        ([prompt("x" * 4000)], 1, None),
        ([prompt("old", "summary"), prompt("x" * 4000)], 1, None),
        ([prompt("1"), said("x" * 400), *OPEN, said("y" * 40)], 30, 6),  # while a call is open there is no cut
    ],
)
def test_where_a_conversation_is_cut(
    history: list[TranscriptMessage], keep_tokens: int | None, cut: int | None
) -> None:
    assert plan_cut(history, keep_tokens) == cut


def test_a_single_turn_is_cut_between_its_steps() -> None:
    history = [prompt("1"), *(message for _ in range(9) for message in (called("a"), resulted("a")))]
    cut = plan_cut(history, keep_tokens=20)
    assert cut is not None
    assert history[cut].role == "assistant"
    assert estimate_tokens(history[cut:]) <= 20


@given(st.lists(st.sampled_from(["prompt", "step", "said"]), max_size=20), st.none() | st.integers(0, 60))
def test_a_cut_never_parts_a_call_from_its_result(shape: list[str], keep_tokens: int | None) -> None:
    history: list[TranscriptMessage] = []
    for number, kind in enumerate(shape):
        history += {
            "prompt": [prompt(str(number))],
            "step": [called(f"c{number}"), resulted(f"c{number}")],
            "said": [said(str(number))],
        }[kind]
    cut = plan_cut(history, keep_tokens)
    if cut is not None:
        assert 0 < cut < len(history)
        assert not any(isinstance(block, ToolResultBlock) for block in history[cut].content)


def test_the_question_for_a_summary_holds_the_conversation_in_lines() -> None:
    asked = summary_prompt([prompt("one\ntwo"), *TURN], "only names", 10_000).text
    assert asked == (
        'Summarise this conversation (only names):\nuser: one two\ncall: exec {}\nresult: {"ok":true}\nassistant: done'
    )


def test_of_an_earlier_summary_the_lines_are_taken_over() -> None:
    old = prompt(summary_of("user: one\nassistant: two"), "summary")
    assert summary_prompt([old, prompt("three")], None, 10_000).text.split("\n")[1:] == [
        "user: one",
        "assistant: two",
        "user: three",
    ]


def test_a_question_for_a_summary_is_bounded_and_keeps_the_end() -> None:
    asked = summary_prompt([prompt(f"{number} " + "x" * 100) for number in range(1000)], None, 5_000).text
    assert len(asked) < 6_000
    assert "user: 999 " in asked
    assert "older lines left out" in asked
