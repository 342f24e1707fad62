"""Where a conversation is cut, and what is asked of whoever summarises it."""

from hypothesis import given
from hypothesis import strategies as st

from agent.history.compaction import estimate_tokens, plan_cut, summary_of, summary_prompt
from tests.agent.history.building import called, prompt, resulted, said
from wire.entries import ToolResultBlock, TranscriptMessage

TURN = [called("a"), resulted("a"), said("done")]


def test_the_last_two_turns_are_kept() -> None:
    history = [prompt("1"), *TURN, prompt("2"), *TURN, prompt("3", "follow_up"), *TURN]
    cut = plan_cut(history)
    assert cut is not None
    assert history[cut] == prompt("2")


def test_two_turns_are_nothing_to_compact() -> None:
    assert plan_cut([prompt("1"), prompt("2")]) is None


def test_turns_that_are_too_long_to_be_kept_are_cut_at_the_last_one() -> None:
    history = [prompt("1"), said("x" * 4000), prompt("2"), said("y")]
    assert plan_cut(history) is None
    assert plan_cut(history, keep_tokens=100) == 2


def test_a_single_turn_is_cut_between_its_steps() -> None:
    history = [prompt("1"), *(message for _ in range(9) for message in (called("a"), resulted("a")))]
    cut = plan_cut(history, keep_tokens=20)
    assert cut is not None
    assert history[cut].role == "assistant"
    assert estimate_tokens(history[cut:]) <= 20


def test_nothing_is_left_to_be_cut_when_only_a_prompt_is_there() -> None:
    assert plan_cut([prompt("x" * 4000)], keep_tokens=1) is None
    assert plan_cut([prompt("old", "summary"), prompt("x" * 4000)], keep_tokens=1) is None


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


def test_while_a_call_is_open_there_is_no_cut() -> None:
    open_for_long = [called("a", "b"), resulted("b"), said("meanwhile"), resulted("a")]
    history = [prompt("1"), said("x" * 400), *open_for_long, said("y" * 40)]
    assert plan_cut(history, keep_tokens=30) == len(history) - 1


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
