"""The scripted model: the same prompt in the same conversation has always the same answer."""

from contextlib import aclosing

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.models.base import (
    CallPiece,
    ModelError,
    ModelRequest,
    Piece,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from agent.models.catalogue import MODELS, ModelUnavailable, open_model
from agent.models.directives import Script, ScriptedCall, parse_script
from agent.models.scripted import ConversationReader, ProcessFaults, ScriptedModel
from tests.agent.history.drawing import messages
from wire.entries import ContentBlock, TextBlock, ToolResultBlock, ToolUseBlock, TranscriptMessage

NO_FAULTS = ProcessFaults(lambda _: None, lambda _: None)


def user(text: str) -> TranscriptMessage:
    return TranscriptMessage("user", [TextBlock(text)])


def assistant(*blocks: ContentBlock) -> TranscriptMessage:
    return TranscriptMessage("assistant", [*blocks])


def tool(call_id: str, said: str) -> TranscriptMessage:
    return TranscriptMessage("user", [ToolResultBlock(call_id, {"ok": True, "data": said})], origin="tool")


async def pieces_of(*messages: TranscriptMessage, faults: ProcessFaults = NO_FAULTS) -> list[Piece]:
    request = ModelRequest("r1.0", messages, system_prompt="be brief", thinking="low")
    async with aclosing(ScriptedModel("scripted", faults).stream(request)) as pieces:
        return [piece async for piece in pieces]


async def answer_to(*messages: TranscriptMessage) -> str:
    return "".join(part for piece in await pieces_of(*messages) if isinstance(piece, TextPiece) for part in piece.parts)


@pytest.mark.parametrize(
    ("prompt", "script"),
    [
        ("hello", Script()),
        ("PIECES=3 DELAY=50", Script(pieces=3, delay=0.05)),
        ("xPIECES=3 TOOLS:a RECALLED", Script()),
        (
            'TOOL:exec {"command": "PIECES=9"} THINK',
            Script(calls=[ScriptedCall("exec", {"command": "PIECES=9"})], think=True),
        ),
        ("TOOL:a {} TOOL:b {} PARALLEL", Script(calls=[ScriptedCall("a", {}), ScriptedCall("b", {})], parallel=True)),
        ("TOOL:a {broken\nRECALL", Script(calls=[ScriptedCall("a", "{broken")], answer="RECALL")),
        ("DELAY=5 ECHO:exactly PIECES=3 ", Script(delay=0.005, answer="ECHO", echo="exactly PIECES=3 ")),
        ("CRASH", Script(fault="CRASH")),
        ("CRASH=3", Script(fault="CRASH", fault_number=3)),
        ("GARBAGE=2", Script(fault="GARBAGE", fault_number=2)),
        ("TOOL:a {} FOREVER", Script(calls=[ScriptedCall("a", {})], forever=True)),
        ("USAGE=12/3 USAGE=x", Script(usage=(12, 3))),
        ("USAGE=12 LENGTH", Script(usage=(12, 0), cut=True)),
        ("TRANSIENT=2 RETRY_AFTER=500", Script(transient=2, retry_after=0.5)),
        ("OVERFLOW", Script(overflow=True)),
        ("rerun x in the background", Script()),
        ("run x\ny in the background", Script()),
        ("run x in the backgrounds", Script()),
        ("", Script()),
    ],
)
def test_directives_are_whole_words(prompt: str, script: Script) -> None:
    assert parse_script(prompt) == script


def test_a_deeply_nested_input_is_no_stack_overflow() -> None:
    assert parse_script("TOOL:a " + "[" * 200_000).calls[0].tool == "a"


def test_a_command_in_backticks_is_the_one_that_is_run_and_stand_in_tests_where_there_is_none() -> None:
    given, stand_in = (
        parse_script(f"please run {what} in the background and tell me") for what in ("`make -k`", "the tests")
    )
    assert given.calls[0] == ScriptedCall("exec", {"command": "make -k", "background": True})
    assert stand_in.calls[0].input["command"].endswith('echo "3 passed"')
    assert given.answer == stand_in.answer == "OUTCOME"


def test_a_command_in_the_background_is_polled_while_it_runs_and_not_for_ever() -> None:
    script = parse_script("run `a` in the background TOOL:ls {}")
    begun = "The command still runs in the background (session calm-fox, pid 1). Follow it up."
    still, over = "x\n\n(Session calm-fox still runs.)", "x\n\n(Session calm-fox has ended: completed, code 0.)"
    tools = [[call.tool for call in script.next_calls(said)] for said in ([], [begun], [begun, still])]
    assert tools == [["exec"], ["process"], ["process"]]
    assert [call.tool for call in script.next_calls([begun, still, over])] == ["ls"]
    assert [call.tool for call in script.next_calls(["denied"])] == ["ls"]
    assert script.next_calls([begun, over, "files"]) == []
    asked = [begun]
    while script.next_calls(asked)[0].tool == "process":
        asked.append(still)
    assert len(asked) == 21


@pytest.mark.parametrize("prompt", ["run ", "run `", "run a in the ", "run `a` in the", "ECHO :"])
def test_a_prompt_that_almost_holds_directives_takes_no_longer_than_it_is_long(prompt: str) -> None:
    assert parse_script(prompt * 100_000) == Script()


async def test_the_outcome_of_what_ran_in_the_background_is_told_with_its_last_lines() -> None:
    lines = "\n".join(f"line {number}" for number in range(30))
    told = [
        "The command still runs in the background (session quick-fox, pid 1).",
        "session quick-fox says hello\n\n(Session calm-fox still runs.)",  # the one that was named last is meant
        f"{lines}\n\n(Session calm-fox has ended: failed, signal SIGKILL.)",
    ]
    history = [user("run `a` in the background")]
    for number, said in enumerate(told):
        history += [assistant(ToolUseBlock(str(number), "exec", {})), tool(str(number), said)]
    answer = await answer_to(*history)
    assert answer.startswith("It has ended: failed, signal SIGKILL. The last it said:\nline 10\n")
    assert answer.endswith("\nline 29")
    poll = {"action": "poll", "session_id": "calm-fox", "timeout": 30}
    assert (await pieces_of(*history[:5]))[0] == CallPiece("process", poll)


async def test_an_answer_is_the_same_twice_and_knows_what_was_said() -> None:
    history = [user("a"), assistant(TextBlock("x")), user("b"), assistant(TextBlock("y")), user("c")]
    assert await pieces_of(*history) == await pieces_of(*history)
    assert await answer_to(*history) == 'You said: "c". (turn 3; before: "a", "b")'
    assert await answer_to(*history[:-1], user("RECALL")) == 'Earlier you said: ["a","b"]'
    assert await answer_to(user("SYSTEM")) == "be brief"
    assert await answer_to(user("WHOAMI")) == "model scripted/scripted, thinking low"
    assert (await pieces_of(user("THINK")))[0] == ThinkingPiece(["Thinking at level low."])
    assert (await pieces_of(user("USAGE=7/9 LENGTH")))[-2:] == [UsagePiece(7, 9), StopPiece("length")]


async def test_tools_are_called_one_step_after_the_other_together_or_for_ever() -> None:
    called = assistant(ToolUseBlock("1", "a", {}))

    async def names(text: str, steps: int) -> list[str]:
        pieces = await pieces_of(user(text), *[called] * steps)
        return [piece.name for piece in pieces if isinstance(piece, CallPiece)]

    one_by_one = "TOOL:a {} TOOL:b {} ECHO:done"
    assert [await names(one_by_one, step) for step in range(3)] == [["a"], ["b"], []]
    assert await answer_to(user(one_by_one), called, called) == "done"
    assert await names("PARALLEL TOOL:a {} TOOL:b {}", 0) == ["a", "b"]
    assert [await names("FOREVER TOOL:a {} TOOL:b {}", step) for step in range(3)] == [["a"], ["b"], ["a"]]
    assert await answer_to(user("FOREVER ECHO:nothing to call")) == "nothing to call"


async def test_pieces_are_numbered_and_counted(autojump_clock: trio.testing.MockClock) -> None:
    pieces = await pieces_of(user("PIECES=1030"))
    texts = [part for piece in pieces if isinstance(piece, TextPiece) for part in piece.parts]
    assert texts == [f"piece {number} " for number in range(1030)]
    assert pieces[-1] == UsagePiece(2, 1030)
    assert await answer_to(user("PIECES=0")) == ""
    before = trio.current_time()
    await pieces_of(user("PIECES=10 DELAY=500"))
    assert trio.current_time() - before == pytest.approx(5)


async def test_faults_happen_after_half_of_the_pieces() -> None:
    log: list[str] = []
    faults = ProcessFaults(lambda _: log.append("garbage"), lambda code: log.append(f"exit {code}"))
    request = ModelRequest("r1.0", [user("PIECES=4 GARBAGE")])
    async for piece in ScriptedModel("scripted", faults).stream(request):
        if isinstance(piece, TextPiece):
            log.extend(piece.parts)
    assert log == ["piece 0 ", "piece 1 ", "garbage", "piece 2 ", "piece 3 "]
    log.clear()
    await pieces_of(user("CRASH"), faults=faults)
    assert log[0] == "exit 70"


async def test_each_step_is_refused_as_often_as_was_asked_and_a_conversation_is_too_long_until_it_is_compacted() -> (
    None
):
    model = ScriptedModel("scripted", NO_FAULTS)

    async def ask(step_id: str, text: str) -> list[Piece]:
        async with aclosing(model.stream(ModelRequest(step_id, [user(text)]))) as pieces:
            return [piece async for piece in pieces]

    async def failure(step_id: str, text: str) -> tuple[bool, bool, float | None]:
        with pytest.raises(ModelError) as failed:
            await ask(step_id, text)
        return failed.value.transient, failed.value.overflow, failed.value.retry_after

    refused = "TRANSIENT=2 RETRY_AFTER=500"
    for step_id in ("r1.0", "r1.1"):
        assert [await failure(step_id, refused) for _ in range(2)] == [(True, False, 0.5)] * 2
        assert await ask(step_id, refused)
    assert await failure("r1.2", "OVERFLOW") == (False, True, None)
    assert await failure("r1.2", "ERROR") == (False, False, None)
    assert await answer_to(TranscriptMessage("user", [TextBlock("old")], origin="summary"), user("OVERFLOW"))


@pytest.mark.parametrize(
    ("provider", "model", "name"),
    [
        *((None, None, "scripted"), ("scripted", None, "scripted"), (None, "scripted-large", "scripted-large")),
        *((None, "scripted/scripted-small", "scripted-small"), ("none", None, None), (None, "none", None)),
        *(("scripted", "gpt", None), (None, "x/y", None)),
    ],
)
def test_models_are_opened_by_provider_by_name_or_by_both(
    provider: str | None, model: str | None, name: str | None
) -> None:
    if name is not None:
        assert open_model(provider, model, NO_FAULTS).name == name
        return
    with pytest.raises(ModelUnavailable, match=f"there is: {next(iter(MODELS))}"):
        open_model(provider, model, NO_FAULTS)


@given(st.lists(st.lists(messages(), max_size=3), max_size=6))
@settings(max_examples=40)
def test_what_is_read_of_a_conversation_that_grows_is_what_is_read_of_the_whole(
    parts: list[list[TranscriptMessage]],
) -> None:
    reader = ConversationReader()
    conversation: list[TranscriptMessage] = []
    for part in parts:
        conversation += part
        assert reader.read(conversation) == ConversationReader().read(conversation)
    reader.read([user("1"), assistant(TextBlock("one")), user("2")])
    assert reader.read([user("1"), assistant(TextBlock("eins")), user("2")]).before() == ["1"]
    assert reader.read([user("hello")]).turn == 1
