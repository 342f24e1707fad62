"""Hooks: what they may change, and that one which raises, hangs or answers nonsense ends nothing but its call."""

import sys
import threading
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from agent import hooks as hook_types
from agent.call_runner import _stricter
from agent.hook_runner import HookEvent, Hooks, hooks_of_file, load_hooks
from agent.hooks import AgentStart, Ask, Change, Deny, Hook, HookFailed, SystemPrompt, UseResult
from agent.policy import Allowed, ApprovalNeeded, Policy
from tests.agent.calling import BAD, Bench, FakeTool, answer
from wire.entries import CallState, ToolUseBlock

CALL = ToolUseBlock("c0", "work", {"say": "hello"})


def always(answer: Any) -> Any:
    """An async hook: threads know nothing of a clock that jumps."""

    async def hook(*_: Any) -> Any:
        return answer

    return hook


async def raising(*_: Any) -> None:
    raise RuntimeError("my hook is broken")


async def hanging(*_: Any) -> None:
    await trio.sleep_forever()


def several(name: str, *functions: Any, warnings: list[Any] | None = None, timeout: float = 5) -> Hooks:
    told = [] if warnings is None else warnings
    hooks = [Hook(name, function, "test") for function in functions]
    return Hooks(hooks, lambda *warning: told.append(warning), timeout=timeout)


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        ([], None),
        ([None, None], None),
        ([Ask("a"), Deny("b"), UseResult(1)], Deny("b")),
        ([UseResult(1), Ask("a")], Ask("a")),
        ([Ask("a"), UseResult(1), Ask("b"), None], Ask("a")),
        ([UseResult(1), UseResult(2)], UseResult(1)),
    ],
)
async def test_the_strictest_hook_decides(answers: list[Any], verdict: Any) -> None:
    assert await several("before_tool_call", *map(always, answers)).before_tool_call(CALL) == verdict


@pytest.mark.parametrize(
    ("answer_of_hook", "states", "begun"),
    [
        (Deny("not here"), ["DENIED"], []),
        (UseResult({"cached": 1}), ["COMPLETED"], []),
        (Ask("are you sure?"), ["AWAITING_APPROVAL", "AWAITING_APPROVAL", "RUNNING", "COMPLETED"], ["c0"]),
        (Change({"say": 7}), ["PENDING", "FAILED"], []),
        (Change({"say": "x"}, Deny("no")), ["DENIED"], []),
    ],
)
async def test_a_hook_can_deny_ask_or_give_the_result_itself(answer_of_hook: Any, states: Any, begun: Any) -> None:
    bench = Bench(hooks={"before_tool_call": always(answer_of_hook)})
    answer(bench, c0="allow")
    (result,) = await bench.run(("work", {}))
    assert (bench.journal.states("c0"), bench.tools["work"].begun) == (states, begun)
    assert result["ok"] == (states[-1] == "COMPLETED")
    assert not isinstance(answer_of_hook, UseResult) or result == {"ok": True, "data": {"cached": 1}}


async def test_a_hook_can_change_what_a_call_is_given_and_the_next_hook_and_the_record_see_that() -> None:
    seen: list[Any] = []

    def change(call: ToolUseBlock) -> Change:
        call.input["say"] = "spoilt"  # a copy
        return Change({"say": "changed"})

    hooks = several("before_tool_call", change, lambda call: seen.append(call.input))
    assert await hooks.before_tool_call(CALL) == Change({"say": "changed"})
    assert (seen, CALL.input) == ([{"say": "changed"}], {"say": "hello"})
    bench = Bench(hooks={"before_tool_call": change})
    (result,) = await bench.run(("work", {"say": "asked"}))
    assert result["data"] == "changed"
    assert bench.journal.last("c0").changed_input == {"say": "changed"}
    (told,) = [data["call"].input_preview for name, data in bench.events if name == "tool_executed"]
    assert told == '{"say":"changed"}'


async def test_a_changed_call_is_judged_again_and_never_more_freely() -> None:
    asked = Bench(policy=Policy(mode="approval"), hooks={"before_tool_call": always(Change({"say": "other"}))})
    answer(asked, c0="allow")
    (result,) = await asked.run(("work", {"say": "one"}))
    [question] = [data for name, data in asked.events if name == "permission_required"]
    assert ([part.text for part in question["shown"].parts][-1], result["data"]) == ("other", "other")
    free = Allowed(FakeTool("work"), None)
    needed = ApprovalNeeded(free.tool, None, "why")
    assert _stricter(needed, free) == _stricter(free, needed) == needed


async def test_no_hook_can_relax_what_the_rules_deny_or_ask() -> None:
    asked: list[str] = []

    def result_for_all(call: ToolUseBlock) -> UseResult:
        asked.append(call.name)
        return UseResult("from the hook")

    policy = Policy(deny=frozenset({"denied"}), require_approval=frozenset({"asked"}))
    bench = Bench(FakeTool("denied"), FakeTool("asked"), policy=policy, hooks={"before_tool_call": result_for_all})
    answer(bench, c1="allow")
    refused, done, unknown = await bench.run(("denied", {}), ("asked", {}), ("nothing", {}))
    assert refused["error_type"] == "denied"
    assert done == {"ok": True, "data": "done"}  # the person's word counts, and then the tool's
    assert (unknown["error_type"], asked) == ("validation", ["asked"])
    # What a hook denies, no person is asked about.
    bench = Bench(FakeTool("asked"), policy=policy, hooks={"before_tool_call": always(Deny("not today"))})
    (refused,) = await bench.run(("asked", {}))
    assert (refused["error_type"], refused["note"], bench.story("c0")) == ("denied", "not today", BAD)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        *(("before_tool_call", each) for each in (raising, hanging, always(5), always(UseResult(object())))),
        ("before_tool_call", always(Ask(5))),  # type: ignore[arg-type]  # as a careless hook would
        *(("after_tool_call", each) for each in (raising, hanging)),
        *(("tool_result_persist", each) for each in (raising, hanging, always(5))),
        ("tool_result_persist", always({"ok": False, "error": "turned around"})),
        ("tool_result_persist", always({"data": "neither good nor bad"})),
    ],
)
async def test_a_tool_hook_that_fails_makes_the_call_fail_with_a_result_and_a_warning(
    autojump_clock: trio.testing.MockClock, name: str, function: Any
) -> None:
    bench = Bench(hooks={name: function})
    (result,) = await bench.run(("work", {}))
    assert (result["ok"], name in result["error"]) == (False, True)
    assert bench.journal.last("c0").state is CallState.FAILED
    assert (bench.tools["work"].begun == []) == (name == "before_tool_call")
    ((phase, message),) = bench.warnings
    assert (phase, name in message) == ("tool", True)
    assert trio.current_time() == (5 if function is hanging else 0)


async def test_plain_hooks_that_hang_for_ever_cost_their_time_and_a_bounded_number_of_threads() -> None:
    release, warnings = threading.Event(), list[Any]()
    hooks = several("before_tool_call", lambda _: release.wait(20), warnings=warnings, timeout=0.02)
    before = threading.active_count()
    try:
        for _ in range(12):
            with pytest.raises(HookFailed, match=r"took longer than 0\.02 s"):
                await hooks.before_tool_call(CALL)
        assert threading.active_count() - before <= 8
    finally:
        release.set()
    assert len(warnings) == 12


async def test_whatever_a_hook_raises_is_a_failure_that_can_be_sent() -> None:
    async def odd(_call: ToolUseBlock) -> None:
        raise ValueError("\udc80" * 100_000)

    for function, words in ((odd, "ValueError"), (lambda _: sys.exit(3), "SystemExit")):
        with pytest.raises(HookFailed, match=words) as failed:
            await several("before_tool_call", function).before_tool_call(CALL)
        assert len(str(failed.value).encode()) < 3_000


async def test_the_result_that_is_kept_can_be_changed_and_not_turned_around() -> None:
    seen: list[Any] = []

    def redact(_call: ToolUseBlock, result: dict[str, Any]) -> dict[str, Any]:
        return {**result, "data": result["data"].replace("secret", "***")}

    def look(call: ToolUseBlock, result: dict[str, Any]) -> None:
        seen.append((call.id, result["ok"]))

    bench = Bench(hooks={"tool_result_persist": redact, "after_tool_call": look})
    assert await bench.run(("work", {"say": "a secret"})) == [{"ok": True, "data": "a ***"}]
    assert bench.journal.last("c0").result == {"ok": True, "data": "a ***"}
    bench = Bench(hooks={"tool_result_persist": always({"ok": True, "data": "all is well"}), "after_tool_call": look})
    result, _ = await bench.run(("fail", {}), ("nothing", {}))
    assert (result["ok"], "answered what it may not" in result["error"]) == (False, True)
    assert seen == [("c0", True), ("c0", False)]  # of a call that did not run there is no result to look at


async def test_texts_come_before_the_prompt_and_the_last_system_prompt_holds() -> None:
    functions = (
        always("one"),
        lambda start: SystemPrompt(start.system_prompt + " and more"),
        lambda _: None,
        lambda _: "two",
        lambda start: SystemPrompt(start.system_prompt + " still"),
    )
    started = await several("before_agent_start", *functions).before_agent_start(AgentStart("hello", "base"))
    assert started == AgentStart("one\n\ntwo\n\nhello", "base and more still")


async def test_outside_of_tool_calls_a_failing_hook_is_only_a_warning(autojump_clock: trio.testing.MockClock) -> None:
    warnings: list[tuple[str, str]] = []
    functions = (raising, hanging, always(5), always("kept"))
    hooks = several("before_agent_start", *functions, warnings=warnings)
    assert (await hooks.before_agent_start(AgentStart("hello", "base"))).text == "kept\n\nhello"
    assert [phase for phase, _ in warnings] == ["lifecycle"] * 3
    assert "RuntimeError: my hook is broken" in warnings[0][1]
    assert "took longer than 5 s" in warnings[1][1]
    infos: dict[HookEvent, Any] = {
        "session_start": hook_types.SessionInfo("s", None, "start"),
        "session_end": hook_types.SessionInfo("s", None, "shutdown"),
        "agent_end": hook_types.AgentEnd("r1", "stop", "bye"),
        "before_compaction": hook_types.CompactionInfo(3),
        "after_compaction": hook_types.CompactionInfo(1, summary="short"),
    }
    for name, info in infos.items():
        seen: list[Any] = []
        warnings.clear()

        async def look(info: Any, seen: list[Any] = seen) -> None:
            seen.append(info)

        await several(name, raising, look, warnings=warnings).notify(name, info)
        assert (seen, len(warnings)) == ([info], 1)


# What a file of hooks looks like: names that are hooks are taken, and what it prints goes to stderr.
MINE = """
from agent.hooks import Deny
from dataclasses import dataclass
@dataclass
class Rule:
    name: 'str'
RULE = Rule('work')
print('loaded')
def before_tool_call(call):
    return Deny('by rule') if call.name == RULE.name else None
async def agent_end(end): pass
def something_else(): pass
"""


async def test_a_file_gives_the_functions_that_are_named_as_hooks(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (workspace / "mine.py").write_text(MINE)
    assert [hook.name for hook in hooks_of_file("mine.py")] == ["agent_end", "before_tool_call"]
    assert capfd.readouterr() == ("", "loaded\n")
    hooks = load_hooks(["mine.py"], lambda *_: None)
    assert await hooks.before_tool_call(CALL) == Deny("by rule")


@pytest.mark.parametrize(
    "content", [None, "1 +", "raise ValueError('no')", "import sys; sys.exit(2)", "before_tool_call = 5"]
)
def test_a_file_that_cannot_be_used_is_refused_at_the_start(workspace: Path, content: str | None) -> None:
    if content is not None:
        (workspace / "bad.py").write_text(content)
    with pytest.raises(HookFailed, match=r"bad\.py"):
        load_hooks(["bad.py"], lambda *_: None)


def offer(monkeypatch: pytest.MonkeyPatch, **values: str) -> list[str]:
    """Let packages offer these; the groups that were asked for."""
    asked: list[str] = []

    def entry_points(*, group: str) -> list[EntryPoint]:
        asked.append(group)
        return [EntryPoint(name, value, group) for name, value in values.items()]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    return asked


def before_tool_call(_call: ToolUseBlock) -> Ask:
    """This module is what the test's package offers."""
    return Ask("from a package")


async def test_packages_offer_hooks_and_while_one_cannot_be_loaded_no_tool_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = offer(monkeypatch, mine=__name__)
    hooks = load_hooks([], lambda *_: None)
    assert asked == []  # they are looked for when the first one is due
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(hooks.before_tool_call, CALL)
    assert await hooks.before_tool_call(CALL) == Ask("from a package")
    assert asked == ["agent.hooks"]
    offer(monkeypatch, gone="no.such.module", mine=__name__)
    warnings: list[tuple[str, str]] = []
    hooks = load_hooks([], lambda *told: warnings.append(told))
    with pytest.raises(HookFailed, match="the hooks of gone cannot be loaded"):
        await hooks.before_tool_call(CALL)
    assert len(warnings) == 1
    assert (await hooks.before_agent_start(AgentStart("hello", "base"))).text == "hello"
