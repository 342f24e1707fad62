"""Mode, model, thinking and options of an agent's conversations: checked, set, verified, and set again."""

import json
from typing import Any

import pytest

from rpc.acp.session_config import read_config
from tests.rpc.acp.agent import INITIALIZED, Agent

MODEL: dict[str, Any] = {
    "id": "model",
    "category": "model",
    "type": "select",
    "currentValue": "small",
    "options": [
        {"group": "g1", "name": "G1", "options": [{"value": "small", "name": "S"}]},
        {"group": "g2", "name": "G2", "options": [{"value": "large", "name": "L"}]},
    ],
}
EFFORT: dict[str, Any] = {
    "id": "effort",
    "category": "thought_level",
    "type": "select",
    "currentValue": "low",
    "options": [{"value": "low", "name": "low"}, {"value": "high", "name": "high"}],
}
WEB: dict[str, Any] = {"id": "web", "type": "boolean", "currentValue": False}
MODE: dict[str, Any] = {
    "id": "approvals",
    "category": "mode",
    "type": "select",
    "currentValue": "auto",
    "options": [{"value": "auto", "name": "auto"}, {"value": "ask", "name": "ask"}],
}
ALL = [MODEL, EFFORT, WEB, MODE]
MODES = {"currentModeId": "auto", "availableModes": [{"id": "auto"}, {"id": "ask"}]}
MODELS = {"currentModelId": "small", "availableModels": [{"modelId": "small"}, {"modelId": "large"}]}


def changed(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    by_id = {option["id"]: option for option in ALL}
    for change in changes:
        by_id[change["id"]] = {**by_id[change["id"]], **change}
    return list(by_id.values())


def starting(session: dict[str, Any], **options: Any) -> Agent:
    agent = Agent(ready=False, **options)
    agent.answer("initialize", INITIALIZED)
    agent.answer("session/new", {"sessionId": "s1", **session})
    return agent


def failure(agent: Agent) -> str:
    assert agent.events[-1][0] == "start_failed", agent.reported
    message: str = agent.events[-1][1]["message"]
    return message


def answer_settings(agent: Agent) -> list[tuple[str, Any]]:
    """The agent does what it is asked; what that was."""
    done: list[tuple[str, Any]] = []
    options = {option["id"]: option for option in ALL}
    while any(line["method"] == "session/set_config_option" for line in agent.written):
        line = agent.pop("session/set_config_option")
        params = line["params"]
        done.append((params["configId"], params["value"]))
        options[params["configId"]] = {**options[params["configId"]], "currentValue": params["value"]}
        agent.say({"jsonrpc": "2.0", "id": line["id"], "result": {"configOptions": list(options.values())}})
    return done


def test_all_settings_are_options_found_by_id_or_category() -> None:
    agent = starting(
        {"configOptions": ALL}, mode="ask", model="large", thinking="high", options={"web": True, "effort": "high"}
    )
    assert answer_settings(agent) == [("model", "large"), ("effort", "high"), ("web", True), ("approvals", "ask")]
    assert agent.reported[-1].startswith("ready ")
    boolean = next(line for line in agent.sent if line.get("params", {}).get("configId") == "web")
    assert boolean["params"] == {"sessionId": "s1", "configId": "web", "value": True, "type": "boolean"}
    agent.ask("get_state")
    state = json.loads(bytes(agent.messages[-1].result))
    assert (state["model"], state["thinking"], state["mode"]) == ("large", "high", "ask")


def test_an_agent_without_options_is_set_in_the_older_way() -> None:
    agent = starting({"modes": MODES, "models": MODELS}, mode="ask", model="large")
    assert agent.pop("session/set_model")["params"] == {"sessionId": "s1", "modelId": "large"}
    agent.say({"jsonrpc": "2.0", "id": 3, "result": {}})
    assert agent.pop("session/set_mode")["params"] == {"sessionId": "s1", "modeId": "ask"}
    agent.say({"jsonrpc": "2.0", "id": 4, "result": None})
    assert agent.reported[-1].startswith("ready ")


def test_the_models_and_levels_that_it_offers_are_told_with_its_start() -> None:
    for session, levels in (({"configOptions": ALL}, ["low", "high"]), ({"models": MODELS}, [])):
        agent = starting(session)
        assert agent.events[-1][0] == "ready"
        assert (agent.events[-1][1]["models"], agent.events[-1][1]["thinking_levels"]) == (["small", "large"], levels)


def test_what_is_set_already_is_not_set_again() -> None:
    agent = starting({"configOptions": ALL, "modes": MODES}, mode="auto", model="small", thinking="low")
    assert agent.reported[-1].startswith("ready ")
    assert [line["method"] for line in agent.sent] == ["initialize", "session/new", "_pool/ping"]


@pytest.mark.parametrize(
    ("session", "wanted", "words"),
    [
        ({"configOptions": ALL}, {"model": "huge"}, "the agent offers no model 'huge'; offered: small, large"),
        ({"configOptions": ALL}, {"mode": "yolo"}, "the agent offers no approvals 'yolo'; offered: auto, ask"),
        ({"modes": MODES}, {"mode": "yolo"}, "the agent offers no mode 'yolo'; offered: auto, ask"),
        ({"models": MODELS}, {"model": "huge"}, "the agent offers no model 'huge'; offered: small, large"),
        ({}, {"model": "large"}, "the agent offers no choice of a model"),
        ({}, {"mode": "ask"}, "the agent offers no choice of a mode"),
        ({}, {"thinking": "high"}, "the agent offers no setting for thinking"),
        (
            {"configOptions": ALL},
            {"options": {"x": "y"}},
            "the agent offers no option 'x'; offered: model, effort, web",
        ),
        ({"configOptions": ALL}, {"options": {"web": "on"}}, "web takes true or false, not 'on'"),
        ({"configOptions": ALL}, {"options": {"effort": True}}, "effort takes a text, not True"),
    ],
)
def test_a_value_is_checked_against_what_is_offered_before_it_is_sent(
    session: dict[str, Any], wanted: dict[str, Any], words: str
) -> None:
    agent = starting(session, **wanted)
    assert failure(agent).startswith(words)
    assert [line["method"] for line in agent.sent] == ["initialize", "session/new"]


def test_a_value_that_the_agent_did_not_take_is_noticed() -> None:
    agent = starting({"configOptions": ALL}, mode="ask")
    agent.answer("session/set_config_option", {"configOptions": ALL})
    assert failure(agent) == "the agent has approvals 'auto' after it was set to 'ask'"


def test_an_answer_without_options_is_verified_by_the_update_before_it() -> None:
    agent = starting({"configOptions": ALL}, mode="ask")
    agent.update("config_option_update", configOptions=changed({"id": "approvals", "currentValue": "ask"}))
    agent.answer("session/set_config_option", {})
    assert agent.reported[-1].startswith("ready ")


def test_a_setting_that_is_refused_says_so() -> None:
    agent = starting({"modes": MODES}, mode="ask")
    agent.refuse("session/set_mode", -32602, "Invalid params", "not now")
    assert failure(agent) == "Invalid params (-32602): not now"


@pytest.mark.parametrize("how", ["new", "load", "resume"])
def test_settings_are_made_again_in_every_conversation(how: str) -> None:
    agent = starting({"configOptions": ALL}, mode="ask")
    assert answer_settings(agent) == [("approvals", "ask")]
    agent.ask("new_session")
    if how == "new":
        agent.ask("new_session")
        agent.answer("session/close")
        agent.answer("session/new", {"sessionId": "s2", "configOptions": ALL})
    else:
        agent.switch("s2", last_user_text="hi", closed_cleanly=how == "resume", honest=True)
        agent.answer("session/close")
        if how == "load":
            agent.update("user_message_chunk", session="s2", content={"type": "text", "text": "hi"})
        agent.answer(f"session/{how}", {"configOptions": ALL})
    assert not agent.reported[-1].startswith("c2: holds"), "not before they are made"
    assert answer_settings(agent) == [("approvals", "ask")]
    assert agent.reported[-1] == "c2: holds /journals/s2.jsonl"


def test_a_setting_made_at_run_time_holds_in_later_conversations() -> None:
    agent = starting({"configOptions": ALL})
    agent.ask("set_thinking", level="high")
    agent.ask("set_option", id="web", value=True)
    agent.ask("set_mode", mode="ask")
    agent.ask("set_model", provider="any", model="large")
    assert answer_settings(agent) == [("effort", "high"), ("web", True), ("approvals", "ask"), ("model", "large")]
    assert agent.reported[-1] == 'c4: {"level": "high", "mode": "ask", "model": "large"}'
    agent.ask("new_session")
    agent.ask("new_session")
    agent.answer("session/close")
    agent.answer("session/new", {"sessionId": "s2", "configOptions": ALL})
    assert answer_settings(agent) == [("model", "large"), ("effort", "high"), ("web", True), ("approvals", "ask")]


def test_options_that_are_set_at_the_same_time_all_hold_in_later_conversations() -> None:
    agent = starting({"configOptions": ALL})
    agent.ask("set_option", id="effort", value="high")
    agent.ask("set_option", id="web", value=True)
    assert answer_settings(agent) == [("effort", "high"), ("web", True)]
    agent.ask("new_session")
    agent.ask("new_session")
    agent.answer("session/close")
    agent.answer("session/new", {"sessionId": "s2", "configOptions": ALL})
    assert answer_settings(agent) == [("effort", "high"), ("web", True)]


def test_groups_of_values_in_groups_are_passed_over_however_deep() -> None:
    nested: dict[str, Any] = {"value": "x"}
    for _ in range(5_000):
        nested = {"options": [nested]}
    config = read_config({"configOptions": [{"id": "model", "options": [nested, {"value": "small"}]}]})
    assert config.options[0].choices == ("small",)


def test_a_setting_that_fails_at_run_time_does_not_hold_later() -> None:
    agent = starting({"configOptions": ALL})
    agent.ask("set_mode", mode="yolo")
    assert agent.reported[-1] == "c1: error setting_refused"
    agent.ask("new_session")
    agent.ask("new_session")
    agent.answer("session/close")
    agent.answer("session/new", {"sessionId": "s2", "configOptions": ALL})
    assert agent.reported[-1] == "c3: holds /journals/s2.jsonl"


def test_a_model_may_be_named_with_its_provider() -> None:
    models = {"currentModelId": "x/small", "availableModels": [{"modelId": "x/small"}, {"modelId": "x/large"}]}
    agent = starting({"models": models})
    agent.ask("set_model", provider="x", model="large")
    assert agent.pop("session/set_model")["params"]["modelId"] == "x/large"


def test_changes_by_the_agent_itself_are_reported_and_kept() -> None:
    agent = starting({"configOptions": ALL, "modes": MODES})
    agent.reported.clear()
    agent.update("current_mode_update", currentModeId="ask")
    agent.update("config_option_update", configOptions=changed({"id": "effort", "currentValue": "high"}))
    agent.update("config_option_update", configOptions="nonsense")
    agent.update("current_mode_update", currentModeId=7)
    assert agent.reported == [
        'state_changed {"mode": "ask"}',
        'state_changed {"mode": "auto", "thinking": "high"}',
    ]
