"""The rules: each row of their order, and that the first one that objects decides."""

from typing import Any

import pytest

from agent.policy import CallRejected, Policy, PolicyVerdict, evaluate
from agent.tools.base import Effects, Tool
from agent.tools.process import ProcessTool
from tests.agent.calling import FakeTool, take_time
from wire.entries import CallState, ToolUseBlock

EFFECTS: dict[str, Effects] = {"read": "read", "todo": "none", "write": "write", "exec": "run"}
TOOLS: dict[str, Tool] = {name: FakeTool(name, take_time, effects) for name, effects in EFFECTS.items()}
TOOLS["process"] = ProcessTool()
EVERY = frozenset(TOOLS)


def judged(name: str, given: Any = None, **rules: Any) -> PolicyVerdict:
    return evaluate(ToolUseBlock("c", name, {} if given is None else given), TOOLS, Policy(**rules))


def kind(verdict: PolicyVerdict) -> str:
    return verdict.state.value if isinstance(verdict, CallRejected) else type(verdict).__name__


@pytest.mark.parametrize(
    ("name", "rules", "outcome"),
    [
        ("exec", {}, "Allowed"),
        ("nothing", {"deny": frozenset({"nothing"})}, "FAILED"),  # known comes before the lists
        ("exec", {"deny": frozenset({"exec"})}, "DENIED"),
        ("exec", {"deny": frozenset({"exec"}), "require_approval": EVERY}, "DENIED"),
        ("exec", {"require_approval": frozenset({"exec"})}, "ApprovalNeeded"),
        ("read", {"require_approval": frozenset({"exec"})}, "Allowed"),
        (
            "exec",
            {"require_approval": frozenset({"exec"}), "mode": "readonly"},
            "ApprovalNeeded",
        ),  # lists before the mode
        ("exec", {"mode": "approval"}, "ApprovalNeeded"),
        ("read", {"mode": "approval"}, "ApprovalNeeded"),
        ("read", {"mode": "readonly"}, "Allowed"),
        ("todo", {"mode": "readonly"}, "Allowed"),
        ("write", {"mode": "readonly"}, "DENIED"),
        ("exec", {"mode": "readonly"}, "DENIED"),
    ],
)
def test_the_first_rule_that_objects_decides(name: str, rules: dict[str, Any], outcome: str) -> None:
    assert kind(judged(name, **rules)) == outcome


def test_a_call_that_makes_no_sense_fails_before_any_list_is_asked_and_a_denial_names_its_rule() -> None:
    verdict = judged("exec", {"seconds": "long"}, deny=EVERY)
    assert isinstance(verdict, CallRejected)
    assert (verdict.state, verdict.result["error_type"]) == (CallState.FAILED, "validation")
    assert "seconds" in verdict.result["error"]
    for rules, words in (({"deny": EVERY}, "deny list"), ({"mode": "readonly"}, "only read")):
        verdict = judged("exec", **rules)
        assert isinstance(verdict, CallRejected)
        assert (words in verdict.result["error"], verdict.result["retryable"]) == (True, False)
    verdict = judged("x" * 10_000)
    assert isinstance(verdict, CallRejected)
    assert "available: exec, process, read, todo, write" in verdict.result["error"]
    assert len(verdict.result["error"]) < 300


@pytest.mark.parametrize("action", ["write", "submit", "send_keys", "paste"])
@pytest.mark.parametrize(("rule", "outcome"), [("deny", "DENIED"), ("require_approval", "ApprovalNeeded")])
def test_input_for_a_running_command_is_judged_as_exec_is(action: str, rule: str, outcome: str) -> None:
    given = {"action": action, "session_id": "calm-fox", "data": "rm -rf build\n"}
    assert kind(judged("process", given, **{rule: frozenset({"exec"})})) == outcome
    assert kind(judged("process", given)) == "Allowed"


@pytest.mark.parametrize("action", ["list", "poll", "log", "kill", "clear", "remove"])
def test_looking_at_a_command_and_ending_it_asks_nobody(action: str) -> None:
    assert kind(judged("process", {"action": action}, require_approval=frozenset({"exec"}))) == "Allowed"
