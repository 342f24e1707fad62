"""Pure decisions about history: what is open, what is sealed, what a compaction keeps."""

from hypothesis import given
from hypothesis import strategies as st

from agent.history import open_calls, plan_compaction, seal
from wire.entries import Block, TextBlock, ToolResultBlock, ToolUseBlock, TranscriptMessage


def called(*ids: str) -> TranscriptMessage:
    blocks: list[Block] = [ToolUseBlock(call_id, "exec", {}) for call_id in ids]
    return TranscriptMessage("assistant", blocks)


def resulted(*ids: str) -> TranscriptMessage:
    return TranscriptMessage("user", [*(ToolResultBlock(call_id, {"ok": True}) for call_id in ids)], origin="tool")


@given(st.lists(st.booleans(), max_size=10))
def test_after_sealing_no_call_is_open_and_none_has_two_results(answered: list[bool]) -> None:
    history: list[TranscriptMessage] = []
    for number, has_result in enumerate(answered):
        history.append(called(f"c{number}"))
        if has_result:
            history.append(resulted(f"c{number}"))
    calls = open_calls(history)
    assert len(calls) == answered.count(False)
    sealed = [*history, seal(calls)]
    assert open_calls(sealed) == []
    results = [
        block.tool_use_id for message in sealed for block in message.content if isinstance(block, ToolResultBlock)
    ]
    assert sorted(results) == sorted(f"c{number}" for number in range(len(answered)))


def test_a_sealed_result_says_what_happened() -> None:
    result = seal([ToolUseBlock("c1", "exec", {})]).content[0]
    assert isinstance(result, ToolResultBlock)
    assert result.content["_autoSealed"] is True
    assert result.content["ok"] is False
    assert "interrupted; sealed automatically" in result.content["error"]


def prompt(text: str) -> TranscriptMessage:
    return TranscriptMessage("user", [TextBlock(text)])


def test_a_compaction_cuts_before_a_prompt_never_between_call_and_result() -> None:
    turn = [called("a"), resulted("a"), TranscriptMessage("assistant", [TextBlock("done")])]
    history = [prompt("1"), *turn, prompt("2"), *turn, prompt("3"), *turn]
    plan = plan_compaction(history)
    assert plan is not None
    assert history[plan.kept] == prompt("2")
    assert plan.summary == "[Summary of the conversation so far]\nuser: 1\nassistant: done"


def test_two_turns_are_nothing_to_compact() -> None:
    assert plan_compaction([prompt("1"), prompt("2")]) is None


def test_a_summary_of_summaries_stays_bounded() -> None:
    summary = "[old]"
    for _ in range(5):
        old = TranscriptMessage("user", [TextBlock(summary)], origin="summary")
        plan = plan_compaction([old, *(prompt(f"{n} " + "x" * 1000) for n in range(150))])
        assert plan is not None
        summary = plan.summary
    assert len(summary) < 60_000
    assert "older messages left out" in summary
