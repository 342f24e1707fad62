"""What can be set in a session: what an editor is offered, chooses, and is refused."""

from typing import Any

import pytest

from tests.doors.acp.talk import OFFERED, Talk, refusal


def values(options: list[dict[str, Any]]) -> dict[str, str]:
    assert all(option["currentValue"] in [each["value"] for each in option["options"]] for option in options)
    assert all(option["type"] == "select" for option in options)
    return {option["category"]: option["currentValue"] for option in options}


def choices(options: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {option["id"]: [each["value"] for each in option["options"]] for option in options}


def test_an_option_is_recorded_by_the_pool_and_answered_with_all_of_them() -> None:
    talk = Talk()
    talk.open()
    talk.send("session/set_config_option", sessionId="acp-1", configId="thought_level", value="high")
    assert talk.asked() == [("sessions.options", {"session": "acp-1"})]
    talk.answer({**OFFERED, "model": "m1"})
    assert talk.asked() == [("sessions.patch", {"session": "acp-1", "thinking": "high"})]
    talk.answer({"model": "m1", "thinking": "high"})
    options = talk.answered()["result"]["configOptions"]
    assert values(options) == {"model": "m1", "thought_level": "high"}
    assert choices(options) == {"model": ["default", "m1", "m2"], "thought_level": ["default", "low", "high"]}
    talk.send("session/set_config_option", sessionId="acp-1", configId="model", value="default")
    talk.answer({**OFFERED, "model": "m1", "thinking": "high"})
    assert talk.asked() == [("sessions.patch", {"session": "acp-1", "model": None})]
    talk.answer({"model": None, "thinking": "high"})
    assert values(talk.answered()["result"]["configOptions"]) == {"model": "default", "thought_level": "high"}


@pytest.mark.parametrize(("option", "offered"), [("model", "m1, m2"), ("thought_level", "low, high")])
def test_a_value_that_is_not_offered_is_refused_with_those_that_are(option: str, offered: str) -> None:
    talk = Talk()
    talk.open()
    talk.send("session/set_config_option", sessionId="acp-1", configId=option, value="m9")
    talk.answer(OFFERED)
    assert refusal(talk.answered()) == (-32602, f"params.value: 'm9' is none of default, {offered}")
    assert talk.asked() == []


def test_where_the_models_are_not_known_any_is_taken_that_the_pool_takes() -> None:
    talk = Talk()
    talk.open()
    talk.send("session/set_config_option", sessionId="acp-1", configId="model", value="a b")
    talk.answer({**OFFERED, "any_model": True})
    talk.refuse("usage", "bad parameters for sessions.patch: no model")
    assert refusal(talk.answered()) == (-32602, "params.value: bad parameters for sessions.patch: no model")


def test_what_an_agent_offers_is_told_once_its_first_worker_has_said_it() -> None:
    talk = Talk()
    talk.open(options={"models": ["m2"], "any_model": True, "thinking_levels": ["low"]})
    talk.event("run:start", "r1")
    assert talk.asked() == [("sessions.options", {"session": "acp-1"})]
    talk.answer(OFFERED)
    (update,) = talk.updates()
    assert choices(update["configOptions"])["model"] == ["default", "m1", "m2"]
    talk.event("run:start", "r2")
    assert talk.asked() == []


def test_options_that_others_change_are_told_and_the_editors_own_change_is_not_told_again() -> None:
    talk = Talk()
    talk.open()
    talk.event("session_patched", changed=["label"])
    assert talk.asked() == []
    talk.event("session_patched", changed=["model"])
    assert talk.asked() == [("sessions.options", {"session": "acp-1"})]
    talk.answer({**OFFERED, "model": "m2"})
    (update,) = talk.updates()
    assert update["sessionUpdate"] == "config_option_update"
    assert values(update["configOptions"]) == {"model": "m2", "thought_level": "default"}
    talk.send("session/set_config_option", sessionId="acp-1", configId="model", value="m1")
    talk.answer({**OFFERED, "model": "m2"})
    talk.event("session_patched", changed=["model"])
    talk.answer({"model": "m1", "thinking": None}, method="sessions.patch")
    talk.answer({**OFFERED, "model": "m1"}, method="sessions.options")
    assert "result" in talk.answered()
