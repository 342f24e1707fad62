"""The settings of agents and roles refuse what they do not know and hide what is secret."""

from typing import Any

import msgspec
import pytest
from rich.pretty import pretty_repr

from profiles import AgentSettings, ProfilesSettings


def test_the_values_of_an_agents_environment_are_in_no_representation() -> None:
    settings = ProfilesSettings(agents={"main": AgentSettings(env={"KEY": "hunter2"}, model="gpt")})
    for shown in (repr(settings), pretty_repr(settings), repr(settings.agents["main"])):
        assert "hunter2" not in shown
        assert "KEY" in shown
        assert "model='gpt'" in shown


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"agents": {"main": {"modell": "x"}}}, r"unknown field `modell` - at `\$\.agents"),
        ({"agents": {"main": {"dialect": "lsp"}}}, r"Invalid enum value 'lsp'"),
        ({"agents": {"main": {"permission_mode": "ask"}}}, r"Invalid enum value 'ask'"),
        ({"agents": {"main": {"context_tokens": 10}}}, r"Expected `int` >= 1000"),
        ({"agents": {"main": {"max_steps": 0}}}, r"Expected `int` >= 1"),
        ({"agents": {"Main": {}}}, r"'Main' is no name for an agent"),
        ({"agents": {"defaults": {}}}, r"'defaults' is a table of its own"),
        ({"roles": {"x": {"tools": []}}}, r"unknown field `tools` - at `\$\.roles"),
        ({"skills": ["a"]}, r"Expected `object`, got `array` - at `\$\.skills`"),
    ],
)
def test_what_is_not_understood_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(given, ProfilesSettings)


def test_the_default_agent_and_role_are_always_known() -> None:
    settings = msgspec.convert({"agents": {"coder": {}}, "roles": {"dm": {}}}, ProfilesSettings)
    assert settings.agent_names() == ["main", "coder"]
    assert settings.role_names() == ["default", "dm"]
