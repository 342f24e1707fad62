"""An answer that holds for the conversation: which later calls run unasked, also on the worker that resumes it."""

from pathlib import Path
from typing import Any

import pytest

from agent.approvals import NotDecidable
from agent.conversation import SessionStore
from agent.hooks import Ask
from agent.output import WorkerOutput
from agent.policy import Policy
from tests.agent.calling import Bench, FakeTool, take_time
from wire.entries import TextBlock, ToolUseBlock, TranscriptMessage

CALLS = [
    ("run", {"say": "a", "seconds": 0.0}),
    ("run", {"seconds": 0.0, "say": "a"}),
    ("run", {"say": "b", "seconds": 0.0}),
    ("write", {}),
    ("write", {"say": "x"}),
]


def asking_bench(**hooks: Any) -> Bench:
    tools = [FakeTool("run", take_time, effects="run"), FakeTool("write", take_time, effects="write")]
    return Bench(*tools, policy=Policy(mode="approval"), hooks=hooks)


def answer_for_the_session(bench: Bench) -> None:
    def react(name: str, data: dict[str, Any]) -> None:
        if name == "permission_required":
            bench.approvals.decide(data["call"].id, "allow", by="ann", option_id="allow_session")

    bench.react = react


def asked(bench: Bench) -> list[str]:
    return [data["call"].id for name, data in bench.events if name == "permission_required"]


async def test_a_command_is_allowed_again_and_any_call_of_another_tool() -> None:
    bench = asking_bench()
    answer_for_the_session(bench)
    for call in CALLS:
        await bench.run(call)
    [first, *_] = [data["options"] for name, data in bench.events if name == "permission_required"]
    assert [option.name for option in first] == ["Allow this command in this session"]
    assert len(asked(bench)) == 3, "the first command, the one with another input, and the first write"
    assert "allow for the session by ann" in [move.note for record in bench.journal.noted for move in record.audit]


async def test_a_hook_that_asks_still_does() -> None:
    bench = asking_bench(before_tool_call=lambda _call: Ask("sure?"))
    answer_for_the_session(bench)
    for _ in range(2):
        await bench.run(CALLS[0])
    assert len(asked(bench)) == 2


async def test_the_worker_that_resumes_the_conversation_knows_it(tmp_path: Path) -> None:
    store = SessionStore(tmp_path, str(tmp_path), WorkerOutput())
    conversation = store.create()
    conversation.add(TranscriptMessage("user", [TextBlock("go")]))
    conversation.add(TranscriptMessage("assistant", [ToolUseBlock("c0", *CALLS[0])]))
    bench = asking_bench()
    bench.journal = conversation  # type: ignore[assignment]  # both are journals
    answer_for_the_session(bench)
    runner = bench.runner(CALLS[0])
    await runner.run(1)
    conversation.add(TranscriptMessage("user", [*runner.results()], origin="tool"))
    await conversation.sync()
    conversation.close()
    bench.journal = store.open(str(conversation.path))  # type: ignore[assignment]
    await bench.run(CALLS[1])
    assert len(asked(bench)) == 1


async def test_an_option_that_was_not_offered_decides_nothing() -> None:
    bench = asking_bench()
    refused: list[str] = []

    def react(name: str, data: dict[str, Any]) -> None:
        if name == "permission_required":
            for option, decision in (("allow_always", "allow"), ("allow_session", "deny")):
                with pytest.raises(NotDecidable, match="has no option") as error:
                    bench.approvals.decide("c0", decision, option_id=option)  # type: ignore[arg-type]
                refused.append(error.value.code)
            bench.approvals.decide("c0", "deny")

    bench.react = react
    [result] = await bench.run(CALLS[0])
    assert (refused, result["error_type"]) == (["invalid_params"] * 2, "denied")
