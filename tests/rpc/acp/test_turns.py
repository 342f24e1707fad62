"""One turn of an ACP agent: its prompt, what each update becomes, how it ends, how it is steered and aborted."""

import json
from typing import Any

import pytest

from rpc.settings import RpcSettings
from tests.rpc.acp.agent import CWD, INITIALIZED, Agent, journal_lines, piece, update
from wire.units import Seconds

STEERING = {**INITIALIZED, "_meta": {"steering": {"supported": True}}}


def steerable() -> Agent:
    agent = Agent(ready=False)
    agent.start(STEERING)
    return agent


def result(agent: Agent) -> dict[str, Any]:
    found = [json.loads(bytes(message.result)) for message in agent.messages if message.id and not message.error]
    last: dict[str, Any] = next(entry for entry in reversed(found) if "stop_reason" in entry)
    return last


def blocks(agent: Agent) -> list[Any]:
    found: list[Any] = agent.sent[-1]["params"]["prompt"]
    return found


# --- the prompt ---


def test_a_turn_from_its_prompt_to_its_answer(agent: Agent) -> None:
    agent.prompt("hi", run_id="run-7")
    assert agent.sent == [
        {
            "jsonrpc": "2.0",
            "id": 4,
            "method": "session/prompt",
            "params": {"sessionId": "s1", "prompt": [{"type": "text", "text": "hi"}]},
        }
    ]
    assert agent.reported == ["run_start run-7"]
    assert agent.dialect.is_running
    agent.say(piece("Hel"), piece("lo"))
    agent.end(usage={"inputTokens": 5, "outputTokens": 2, "cachedReadTokens": 10, "cachedWriteTokens": 1})
    assert agent.reported[1:] == ["assistant_message Hello", "tokens 16 2", "done stop", "c1: stop 'Hello'"]
    assert result(agent)["usage"] == {"input_tokens": 16, "output_tokens": 2}
    assert not agent.dialect.is_running


def test_the_span_of_a_turn_goes_with_its_prompt(agent: Agent) -> None:
    meta = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1"}
    agent.prompt("hi", **meta)
    assert agent.sent[-1]["params"]["_meta"] == meta


def test_the_users_message_is_kept_before_the_prompt_and_the_answer_at_its_end(agent: Agent) -> None:
    agent.prompt("hi", from_session="other")
    [entry] = agent.journal
    assert agent.journal_before == [0], "in the step that writes the prompt"
    assert entry.path == "/journals/s1.jsonl"
    header = entry.header
    assert header is not None
    assert (header.id, header.cwd, header.agent, header.agent_version, header.agent_session) == (
        *("s1", CWD, "demo"),
        *("1.2", "s1"),
    )
    assert entry.message is not None
    assert entry.message.from_session == "other"
    agent.say(piece("one"), update("tool_call", toolCallId="t", title="x", status="completed"), piece("two"))
    assert len(agent.journal) == 1
    agent.end()
    agent.prompt("again")
    agent.refuse("session/prompt", -32603, "Internal error")
    assert journal_lines(agent.journal) == [
        f"[s1 in {CWD}] user: hi",
        "assistant: one\n\ntwo (stop)",
        "user: again",
        "assistant:  (error)",
    ]


def test_instructions_are_the_first_block_of_a_conversations_first_prompt_and_end_with_a_gap() -> None:
    agent = Agent(instructions="Be brief.")
    agent.prompt("hi")
    assert blocks(agent) == [{"type": "text", "text": "Be brief.\n\n"}, {"type": "text", "text": "hi"}]
    assert journal_lines(agent.journal) == [f"[s1 in {CWD}] user: hi"]
    agent.end()
    agent.prompt("more")
    assert blocks(agent) == [{"type": "text", "text": "more"}]


def test_images_and_options_of_the_answer_follow_the_text(agent: Agent) -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/jpeg"}
    agent.prompt("look", images=[image], answer={"instructions": "In French."})
    text, options, shown = blocks(agent)
    assert (text["text"], shown) == ("look", image)
    assert options["text"].endswith("In French.")


def test_what_an_agent_cannot_be_given_is_refused_and_nothing_is_sent() -> None:
    agent = Agent(abilities={})
    agent.prompt("look", images=[{"type": "image", "data": "AAAA"}])
    agent.prompt("use it", client_tools=[{"name": "x"}])
    agent.prompt("here", tool_results=[{"tool_use_id": "x"}])
    agent.ask("compact")
    agent.ask("prompt", words="hi")
    assert agent.reported == [
        "c1: usage unsupported",
        "c2: usage unsupported",
        "c3: usage unsupported",
        "c4: usage unsupported",
        "c5: usage invalid_params",
    ]
    assert agent.sent == []


def test_a_second_prompt_is_never_sent_before_the_answer_to_the_first(busy: Agent) -> None:
    for behavior in (None, "steer", "follow_up"):
        busy.prompt("two", **({} if behavior is None else {"streaming_behavior": behavior}))
    busy.ask("follow_up", text="three")
    assert busy.reported == [f"c{number}: error busy" for number in (2, 3, 4, 5)]
    assert [line["method"] for line in busy.sent] == ["session/prompt"]


# --- the end ---


@pytest.mark.parametrize(
    ("reason", "reported"),
    [
        ("end_turn", "stop 'x'"),
        ("max_tokens", "length 'x'"),
        ("max_turn_requests", "max_steps 'x'"),
        ("refusal", "error 'x' (refusal)"),
        ("cancelled", "aborted 'x' (the agent has cancelled the turn by itself)"),
        ("_later", "stop 'x'"),
        (None, "stop 'x'"),
    ],
)
def test_each_stop_reason_has_its_native_one(busy: Agent, reason: Any, reported: str) -> None:
    busy.say(piece("x"))
    busy.end(reason)
    assert busy.reported[-1] == f"c1: {reported}"
    assert busy.reported[-2] == f"done {reported.split(maxsplit=1)[0]}"


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        ({"code": -32603, "message": "Internal error", "data": {"details": "401"}}, "Internal error (-32603): 401"),
        ({"code": 401, "message": "bad key", "data": "bad key"}, "bad key (401)"),
        ({"code": -32000, "message": "log in"}, "the agent wants a login: log in (-32000)"),
        ({"message": 3}, "the agent gave no reason"),
        ("nonsense", "the agent gave no reason"),
    ],
)
def test_an_error_is_the_end_of_the_turn_with_its_words(busy: Agent, error: Any, reported: str) -> None:
    busy.say({"jsonrpc": "2.0", "id": 4, "error": error})
    assert busy.reported == ["done error", f"c1: error '' ({reported})"]


def test_a_turn_in_which_nothing_was_said_or_done_is_reported(agent: Agent) -> None:
    agent.prompt("hi")
    agent.say(piece("hm", kind="agent_thought_chunk"))
    agent.end()
    warning = next(data for event, data in agent.events if event == "error")
    assert (warning["code"], warning["severity"]) == ("empty_turn", "warn")
    assert agent.reported[-1] == "c1: stop ''"
    agent.prompt("hi")
    agent.update("tool_call", toolCallId="t", title="x", status="completed")
    agent.end()
    assert len([event for event, _ in agent.events if event == "error"]) == 1


def test_the_result_has_the_last_message_and_the_events(busy: Agent) -> None:
    busy.say(piece("I look. "), update("tool_call", toolCallId="t", title="ls", status="completed"), piece("Done."))
    busy.end()
    assert result(busy)["text"] == "Done."
    assert [entry["event"] for entry in result(busy)["events"]] == [
        *("tool", "tool_executed", "tool"),
        "assistant_message",
    ]


def test_text_of_no_turn_is_reported_as_such_and_never_the_next_turns(busy: Agent) -> None:
    busy.say(piece("in"))
    busy.end()
    busy.say(piece("late "), piece("words"), piece("hm", kind="agent_thought_chunk"))
    assert busy.reported[-2:] == [
        'error {"code": "out_of_turn", "message": "late ", "severity": "info"}',
        'error {"code": "out_of_turn", "message": "words", "severity": "info"}',
    ]
    busy.prompt("next")
    busy.say(piece("own"))
    busy.end()
    assert result(busy)["text"] == "own"


def test_other_updates_of_no_turn_apply(agent: Agent) -> None:
    agent.update("tool_call", toolCallId="t", title="in the background", status="completed")
    agent.update("usage_update", used=5, size=10)
    assert agent.reported[0] == "tool start other RUNNING 'in the background'"
    agent.ask("get_state")
    assert json.loads(bytes(agent.messages[-1].result))["context"] == {"used": 5, "size": 10}


# --- abort ---


def test_an_abort_cancels_and_is_answered_after_the_turn(busy: Agent) -> None:
    busy.say(piece("so far"))
    busy.ask("abort")
    busy.ask("abort", keep_queue=True)
    assert busy.sent[1:] == [{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s1"}}]
    busy.say(piece(", and more"))
    busy.end("cancelled")
    assert busy.reported == [
        "assistant_message so far, and more",
        "done aborted",
        "c1: aborted 'so far, and more'",
        'c2: {"aborted": true}',
        'c3: {"aborted": true}',
    ]


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        ({"error": {"code": -32603, "message": "aborted"}}, "aborted ''"),
        ({"result": {"stopReason": "end_turn"}}, "stop ''"),
        ({"result": {"stopReason": "cancelled"}}, "aborted ''"),
    ],
)
def test_however_an_agent_answers_a_cancelled_prompt(busy: Agent, answer: dict[str, Any], reported: str) -> None:
    busy.ask("abort")
    busy.say({"jsonrpc": "2.0", "id": 4, **answer})
    assert busy.reported[-2:] == [f"c1: {reported}", 'c2: {"aborted": true}']


def test_no_cancel_is_sent_without_a_prompt(agent: Agent) -> None:
    agent.ask("abort")
    assert (agent.reported, agent.sent) == (['c1: {"aborted": false}'], [])


def test_a_prompt_that_is_not_answered_after_its_cancel_ends_all_the_same() -> None:
    agent = Agent(RpcSettings(abort_grace=Seconds(3)))
    agent.prompt("hi")
    agent.say(piece("so far"))
    agent.ask("abort")
    agent.wait(2.9)
    assert agent.dialect.is_running
    agent.wait(0.2)
    assert agent.reported[-3:] == [
        "done aborted",
        "c1: aborted 'so far' (the agent did not answer the cancelled prompt)",
        'c2: {"aborted": true}',
    ]
    assert journal_lines(agent.journal)[-1] == "assistant: so far (aborted)"
    assert agent.dialect.retire_reason is not None
    reported = list(agent.reported)
    agent.end("cancelled")
    assert agent.reported == reported, "the late answer is dropped"


# --- steer ---


def test_a_steer_reaches_the_turn_where_the_agent_offers_it() -> None:
    agent = steerable()
    agent.prompt("hi")
    agent.ask("steer", text="faster")
    assert agent.pop("_session/steering")["params"] == {
        "sessionId": "s1",
        "prompt": [{"type": "text", "text": "faster"}],
        "_meta": {"steering": {"idleBehavior": "promptRequired"}},
    }
    assert agent.reported[-1] == "run_start r1"
    agent.say({"jsonrpc": "2.0", "id": 5, "result": {"outcome": "injected"}})
    assert agent.reported[-1] == "c2: {}"
    assert journal_lines(agent.journal)[-1] == "user <steer>: faster"


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        ({"result": {"outcome": "promptRequired"}}, "error idle"),
        ({"result": {}}, "error idle"),
        ({"error": {"code": -32601, "message": "no"}}, "error busy"),
    ],
)
def test_a_steer_that_did_not_get_in_says_so(answer: dict[str, Any], reported: str) -> None:
    agent = steerable()
    agent.prompt("hi")
    agent.ask("steer", text="faster")
    agent.say({"jsonrpc": "2.0", "id": 5, **answer})
    assert agent.reported[-1] == f"c2: {reported}"
    assert len(agent.journal) == 1


def test_a_steer_without_an_answer_is_given_up_and_kept_since_it_may_have_got_in() -> None:
    agent = steerable()
    agent.prompt("hi")
    agent.prompt("faster", streaming_behavior="steer")
    agent.wait(31)
    assert agent.reported[-1] == "c2: error timeout"
    assert journal_lines(agent.journal)[-1] == "user <steer>: faster"
    agent.answer("_session/steering", {"outcome": "injected"})
    agent.end()
    assert [line for line in agent.reported if line.startswith("c2")] == ["c2: error timeout"], "late"


def test_a_prompt_that_steers_is_answered_with_the_end_of_the_turn() -> None:
    agent = steerable()
    agent.prompt("hi")
    agent.prompt("faster", streaming_behavior="steer")
    agent.answer("_session/steering", {"outcome": "injected"})
    agent.prompt("still", streaming_behavior="steer")
    agent.say(piece("ok"))
    agent.end()
    assert agent.reported[-2:] == ["c1: stop 'ok'", "c2: stop 'ok'"]
    agent.answer("_session/steering", {"outcome": "injected"})
    assert agent.reported[-1] == "c3: stop 'ok'", "also where it got in at the last moment"


def test_no_steer_reaches_an_agent_that_does_not_offer_it_or_is_idle_or_ending(busy: Agent) -> None:
    busy.ask("steer", text="faster")
    assert busy.reported == ["c2: error busy"]
    agent = steerable()
    agent.ask("steer", text="faster")
    agent.prompt("hi")
    agent.ask("abort")
    agent.ask("steer", text="faster")
    assert agent.reported == ["c1: error idle", "run_start r1", "c4: error busy"]
    assert not any(line.get("method") == "_session/steering" for line in [*busy.sent, *agent.sent])


def test_a_caller_that_no_longer_waits_gets_no_answer(busy: Agent) -> None:
    busy.dialect.forget("c1")
    busy.say(piece("x"))
    busy.end()
    assert busy.reported == ["assistant_message x", "done stop"]
