"""What real ACP agents were recorded to say, in the words that the layer above hears."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rpc.acp.agent import journal_lines
from tests.rpc.acp.replay import AGENTS, SCENARIOS, AcpReplay, load, played

NAMES = [f"{agent}-{scenario}" for agent in AGENTS for scenario in SCENARIOS]
ASKING = [agent for agent in AGENTS if not agent.startswith("pi-acp")]
LOADING = [agent for agent in AGENTS if not agent.startswith("gemini")]


def all_of(replay: AcpReplay) -> dict[str, Any]:
    """All that left the dialect, but for its cuts."""
    return {
        "reported": replay.reported,
        "journal": journal_lines(replay.journal),
        "sent": replay.sent,
        "contaminated": replay.contaminated,
        "state": state_of(replay),
    }


def state_of(replay: AcpReplay) -> dict[str, Any]:
    replay.ask("get_state")
    state: dict[str, Any] = json.loads(bytes(replay.messages[-1].result))
    return state


def results_of(replay: AcpReplay) -> list[dict[str, Any]]:
    results = [json.loads(bytes(message.result)) for message in replay.messages if message.error is None and message.id]
    return [result for result in results if "stop_reason" in result]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None)
@given(cuts=st.lists(st.integers(1, 3_000), min_size=1, max_size=20))
def test_the_same_is_reported_however_the_output_is_cut(name: str, cuts: list[int]) -> None:
    assert all_of(played(name, cuts)) == all_of(played(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_is_reported_line_by_line(name: str) -> None:
    assert all_of(played(name, [1 << 30])) == all_of(played(name))
    lines = AcpReplay(load(name))
    lines.feed_lines_one_by_one = True
    lines.play()
    assert all_of(lines) == all_of(played(name))


@pytest.mark.parametrize("agent", AGENTS)
def test_a_turn_of_thoughts_and_text_is_reported_and_kept(agent: str) -> None:
    replay = played(f"{agent}-turn")
    first = replay.reported[: replay.reported.index("done stop") + 2]
    thoughts = next(line for line in first if line.startswith("thinking "))
    assert [number for number in range(3) if f"thought{number}" in thoughts] == [0, 1, 2]
    assert first[-1].startswith("c1: stop ")
    assert "word00000 word00001 word00002 word00003 word00004 " in first[-1]
    journal = journal_lines(replay.journal)
    assert journal[0].endswith("in /home/u/project] user: SAY:apple THINK CHUNKS=5")
    assert journal[1].endswith("word00000 word00001 word00002 word00003 word00004  (stop)")
    assert [line.split(":")[0].split("] ")[-1] for line in journal] == ["user", "assistant"] * 3


@pytest.mark.parametrize("agent", AGENTS)
def test_a_turn_with_a_tool_call_is_reported_from_its_start_to_its_end(agent: str) -> None:
    replay = played(f"{agent}-turn")
    calls = [data for event, data in replay.events if event == "tool" and "hello-from-tool" in json.dumps(data)]
    phases = [data["phase"] for event, data in replay.events if event == "tool"]
    assert phases[0] == "start"
    assert phases.count("start") == phases.count("end")
    assert calls[-1]["phase"] == "end"
    assert calls[-1]["call"]["state"] == "COMPLETED"
    assert ("running" in phases) == (agent in ASKING), "a call that was allowed runs"
    results = results_of(replay)
    assert results[1]["text"] == "after tool: ok"
    recorded = [entry["event"] for entry in results[1]["events"]]
    assert recorded.count("tool_executed") == 1
    assert "assistant_message" in recorded


@pytest.mark.parametrize("agent", ASKING)
def test_an_allowed_call_gets_the_option_that_allows_once(agent: str) -> None:
    replay = played(f"{agent}-turn")
    [required] = [data for event, data in replay.events if event == "permission_required"]
    kinds = {option["id"]: option["kind"] for option in required["options"]}
    answers = [line["result"]["outcome"] for line in replay.sent if "result" in line]
    assert [kinds[answer["optionId"]] for answer in answers] == ["allow_once"]
    assert "echo tool-ran > made.txt" in json.dumps(required["shown"])


@pytest.mark.parametrize("agent", ASKING)
def test_a_denied_call_and_a_cancel_with_an_open_question_end_their_turns(agent: str) -> None:
    replay = played(f"{agent}-permission")
    denied, cancelled, after = results_of(replay)
    refuses = agent.startswith("codex")  # these end the turn as cancelled
    assert (denied["stop_reason"], denied["error"]) == (("aborted", "a call was denied") if refuses else ("stop", None))
    assert (cancelled["stop_reason"], cancelled["error"]) == ("aborted", None)
    assert after["stop_reason"] == "stop"
    cancel = next(index for index, line in enumerate(replay.sent) if line.get("method") == "session/cancel")
    assert replay.sent[cancel + 1]["result"] == {"outcome": {"outcome": "cancelled"}}, "at once, not when it is asked"
    assert any(line.startswith("permission_decided") and line.endswith("deny by abort") for line in replay.reported)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_cancelled_turn_is_aborted_and_the_next_one_is_its_own(agent: str) -> None:
    replay = played(f"{agent}-cancel")
    results = results_of(replay)
    assert [result["stop_reason"] for result in results] == ["stop", "aborted", "stop", "aborted", "stop"]
    assert "word00003 " in results[1]["text"]
    assert "word00003 " not in results[2]["text"]
    assert replay.reported.count("done aborted") == 2
    cancels = [line for line in replay.sent if line.get("method") == "session/cancel"]
    assert len(cancels) == 2, "none is sent while no turn is on"
    assert state_of(replay).get("retire_reason") is None


@pytest.mark.parametrize("agent", AGENTS)
def test_a_second_prompt_is_busy_and_never_reaches_the_agent(agent: str) -> None:
    replay = played(f"{agent}-busy")
    assert "c2: error busy" in replay.reported
    prompts = [line["params"]["prompt"][0]["text"] for line in replay.sent if line.get("method") == "session/prompt"]
    assert prompts == ["SAY:one CHUNKS=30 DELAY_MS=50", "RECALL"]


@pytest.mark.parametrize("agent", LOADING)
def test_a_conversation_is_loaded_once_and_kept_from_then_on(agent: str) -> None:
    replay = played(f"{agent}-load2")
    assert [data["strategy"] for event, data in replay.events if event == "agent_resumed"][:2] == ["loaded", "kept"]
    loads = [line["params"]["sessionId"] for line in replay.sent if line.get("method") == "session/load"]
    assert len(loads) == len(set(loads))
    texts = [result["text"] for result in results_of(replay)]
    assert all(text.endswith("I remember: apple") for text in texts), "a replay is not reported"
    assert not any("SAY:apple" in line for line in replay.reported if line.startswith("assistant_message"))


@pytest.mark.parametrize("agent", LOADING)
def test_a_conversation_that_is_behind_is_closed_before_it_is_loaded_again(agent: str) -> None:
    replay = played(f"{agent}-load2", behind=True)
    methods = [line.get("method") for line in replay.sent]
    loads = [index for index, method in enumerate(methods) if method == "session/load"]
    closes = [index for index, method in enumerate(methods) if method == "session/close"]
    if agent.startswith("pi-acp"):  # which cannot close any
        assert "c3: error stale" in replay.reported
        assert closes == []
    else:
        assert len(loads) == 4
        assert any(loads[0] < close < loads[1] for close in closes)


@pytest.mark.parametrize("agent", AGENTS)
def test_an_id_that_the_agent_refuses_becomes_a_new_conversation_with_the_same_transcript(agent: str) -> None:
    replay = played(f"{agent}-load2")
    resumed = [data for event, data in replay.events if event == "agent_resumed"]
    assert [(data["strategy"], data["cause"]) for data in resumed[-2:]] == [("refed", "error")] * 2
    assert resumed[-1]["error"]
    assert replay.reported[-1].endswith("holds /journals/00000000-0000-4000-8000-000000000000.jsonl")


@pytest.mark.parametrize("agent", AGENTS)
def test_errors_without_an_id_and_answers_to_others_are_tolerated(agent: str) -> None:
    replay = played(f"{agent}-badinput")
    assert any(line.startswith("ready ") for line in replay.reported)
    assert replay.contaminated == []
    answers_errors = agent.startswith(("claude", "codex"))
    assert state_of(replay).get("tolerated", 0) >= (5 if answers_errors else 0)
