"""Whatever an agent says, what is kept of it is bounded in bytes, and what is left out is marked."""

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpc.acp.bounds import MAX_INPUT, MAX_OUTPUT, MAX_TURN_TEXT, BoundedText, TurnText, bounded_id, bounded_json
from rpc.acp.updates import merge_call
from tests.rpc.acp.agent import Agent, piece

MIB = 1024 * 1024
LONG = "x" * MIB
TIMES = 32


@given(st.lists(st.text(max_size=30), max_size=40), st.integers(4, 60))
def test_of_a_text_in_pieces_the_beginning_and_the_end_are_kept(pieces: list[str], most: int) -> None:
    text, kept = "".join(pieces), BoundedText(most)
    for one in pieces:
        kept.add(one)
    if len(text) <= most:
        assert str(kept) == text
    else:
        mark = f"\n[... {len(text) - most} characters left out ...]\n"
        assert str(kept) == text[: most * 3 // 4] + mark + text[len(text) - (most - most * 3 // 4) :]


def test_of_many_messages_of_a_turn_the_latest_are_kept() -> None:
    text = TurnText(300)
    for word in ("one", "two", "three", "four", "five", "six"):
        text.add(word)
        text.begin_message()
    text.add("seven")
    assert text.messages == ["[... 2 messages left out ...]", "three", "four", "five", "six", "seven"]


def test_two_long_ids_stay_two_and_a_usual_one_is_kept() -> None:
    assert bounded_id("toolu_1") == "toolu_1"
    assert bounded_id(LONG + "a") != bounded_id(LONG + "b")
    assert len(bounded_id(LONG)) < 200


def test_a_long_input_says_what_of_it_is_left_out() -> None:
    value = bounded_json({"command": LONG})
    assert value.startswith('{"command":"xxx')
    assert value.endswith('xxx"}')
    assert f"[... {MIB + 14 - MAX_INPUT} characters left out ...]" in value


def test_a_long_output_says_what_of_it_is_left_out_also_after_later_updates() -> None:
    call = merge_call(None, "t1", {"rawOutput": "x" * (MAX_OUTPUT + 1_000)})
    assert "[... 1000 characters left out ...]" in call.output
    assert merge_call(call, "t1", {"status": "in_progress"}).output == call.output


def calls_that_stay_open(number: int) -> dict[str, Any]:
    return _tool_call(toolCallId=f"t{number}", rawInput={"command": LONG[:900_000]})


def calls_with_much_output(number: int) -> dict[str, Any]:
    return _tool_call(toolCallId=f"t{number}", rawOutput=LONG)


def calls_with_long_ids(number: int) -> dict[str, Any]:
    return _tool_call(toolCallId=f"{LONG}{number}", status="completed" if number % 2 else "pending")


def calls_with_long_names(number: int) -> dict[str, Any]:
    return _tool_call(toolCallId=f"t{number}", name=LONG, kind=LONG, title=LONG)


def calls_with_many_files(number: int) -> dict[str, Any]:
    diffs = [{"type": "diff", "path": f"/{index}/{LONG[:1000]}", "newText": ""} for index in range(300)]
    return _tool_call(toolCallId=f"t{number}", content=diffs)


def messages_between_calls(number: int) -> dict[str, Any]:
    return piece(LONG) if number % 2 else _tool_call(toolCallId=f"t{number}", status="completed")


def commands(_number: int) -> dict[str, Any]:
    return _update("available_commands_update", availableCommands=[{"name": LONG}] * 2)


def options(_number: int) -> dict[str, Any]:
    choices = [{"value": f"{index}{LONG[:1000]}"} for index in range(60)]
    found = [{"id": f"{index}", "currentValue": LONG[:1000], "options": choices} for index in range(40)]
    return _update("config_option_update", configOptions=found)


def _tool_call(**members: Any) -> dict[str, Any]:
    return _update("tool_call", **members)


def _update(update_kind: str, /, **members: Any) -> dict[str, Any]:
    update = {"sessionUpdate": update_kind, **members}
    return {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s1", "update": update}}


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def forget(agent: Agent) -> None:
    """What this test's double of the layer above holds."""
    for held in (agent.reported, agent.events, agent.messages, agent.journal, agent.sent, agent.written):
        held.clear()


def kept_by(agent: Agent) -> int:
    """Bytes."""
    forget(agent)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.parametrize(
    "said",
    [
        calls_that_stay_open,
        calls_with_much_output,
        calls_with_long_ids,
        calls_with_long_names,
        calls_with_many_files,
        messages_between_calls,
        commands,
        options,
    ],
)
@pytest.mark.usefixtures("traced")
def test_what_an_agent_says_is_kept_within_bounds(busy: Agent, said: Any) -> None:
    before = kept_by(busy)
    for number in range(TIMES):
        busy.say(said(number))
        forget(busy)
    assert kept_by(busy) - before < 20 * MIB


@pytest.mark.usefixtures("traced")
def test_a_text_in_pieces_of_a_character_takes_little_more_than_its_characters() -> None:
    before, kept = tracemalloc.get_traced_memory()[0], BoundedText()
    for _ in range(300_000):
        kept.add(str(b"\xe6\xb1\x89", "utf-8"))  # a string of its own each, of 76 bytes
    assert tracemalloc.get_traced_memory()[0] - before < 3 * 300_000


@pytest.mark.usefixtures("traced")
def test_questions_are_kept_within_bounds_and_those_beyond_are_cancelled(busy: Agent) -> None:
    before = kept_by(busy)
    for number in range(TIMES):
        busy.ask_permission(number, call=f"t{number}", rawInput={"command": LONG[:900_000]})
    answers = [line["result"]["outcome"] for line in busy.sent if "result" in line]
    assert 0 < len(answers) < TIMES
    assert {"outcome": "cancelled"} in answers
    assert kept_by(busy) - before < 40 * MIB


def test_of_more_calls_than_can_be_followed_the_oldest_ends_and_each_starts_once(busy: Agent) -> None:
    for number in range(1_001):
        busy.update("tool_call", toolCallId=f"t{number}", title=f"{number}")
    assert busy.reported[-4:] == [
        f"tool error other FAILED '0' {(why := 'no longer followed: 1,000 later calls are open')!r}",
        "tool_executed other FAILED",
        f"tool end other FAILED '0' {why!r}",
        "tool start other PENDING '1000'",
    ]
    for number in (0, 1_000):
        busy.update("tool_call_update", toolCallId=f"t{number}", status="in_progress")
    assert busy.reported[-1] == "tool update other RUNNING '1000'"
    assert sum(line.startswith("tool start") for line in busy.reported) == 1_001


def test_an_option_whose_id_cannot_be_given_back_is_not_offered(busy: Agent) -> None:
    options = [{"optionId": LONG, "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once", "name": LONG}]
    params = {"sessionId": "s1", "toolCall": {"toolCallId": "t1"}, "options": options}
    busy.request(7, "session/request_permission", params)
    asked = busy.events[-1][1]
    assert [(option["id"], len(option["name"])) for option in asked["options"]] == [("no", 256)]


def test_a_turn_of_very_much_text_has_an_answer_that_says_what_is_left_out(busy: Agent) -> None:
    for _ in range(3):
        busy.say(piece(LONG))
    busy.say(piece("THE END"))
    busy.end()
    result = msgspec.json.decode(busy.messages[-1].result)
    left_out = 3 * MIB + len("THE END") - MAX_TURN_TEXT
    assert f"[... {left_out} characters left out ...]" in result["text"]
    assert result["text"].endswith("THE END")
    assert str(busy.journal[-1].message).count("THE END") == 1
