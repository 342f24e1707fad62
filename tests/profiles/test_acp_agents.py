"""Agents of dialect ``acp``: what they can be asked for, how that is signed, compared and kept secret."""

from typing import Any

import msgspec
import pytest

from errors import UsageError
from profiles import (
    DIALECTS,
    AgentSettings,
    CapabilityProfile,
    MatchLevel,
    ProfilesSettings,
    RoleSettings,
    build_profile,
    first_difference,
    match,
    with_soft,
    worker_argv,
)
from tests.profiles.parts import profile

COMMAND = ["demo", "acp"]
REFUSED: dict[str, Any] = {
    "agent_dir": "x",
    "allow_background": False,
    "allow_outside": True,
    "base_url": "https://host/v1",
    "context_tokens": 2000,
    "deny_tools": ["bash"],
    "extensions": ["x"],
    "history_turns": 1,
    "hooks": ["x.py"],
    "max_steps": 1,
    "no_context_files": True,
    "no_extensions": True,
    "no_prompt_templates": True,
    "no_skills": True,
    "package_dir": "x",
    "prompt_templates": ["x"],
    "provider": "x",
    "require_approval": ["bash"],
    "skills": ["x"],
    "system_prompt": "x",
    "tool_env": ["X"],
    "tools": [],
}
OF_ACP: dict[str, Any] = {
    "auth_method": "x",
    "mcp_servers": [{"name": "x", "command": "y"}],
    "mode": "x",
    "options": {"x": True},
    "resume": "pin",
}
SERVER: dict[str, Any] = {"name": "files", "command": "/bin/mcp", "args": ["-v"]}


def acp(*, gateway_prompt: str | None = None, role: RoleSettings | None = None, **agent: Any) -> CapabilityProfile:
    """The profile of an ACP agent with these settings."""
    definition = msgspec.convert({"dialect": "acp", "command": COMMAND, **agent}, AgentSettings)
    settings = ProfilesSettings(agents={"main": definition}, roles={} if role is None else {"default": role})
    return build_profile(settings, "main", "default", "/", gateway_prompt=gateway_prompt)


def declared(made: CapabilityProfile) -> dict[str, Any]:
    return {name: msgspec.json.decode(text) for name, text in made.declared}


def test_these_are_all_the_settings_that_are_refused() -> None:
    assert set(REFUSED) == DIALECTS["acp"].refused_settings
    for dialect in ("native", "pi"):
        assert set(OF_ACP) <= DIALECTS[dialect].refused_settings


@pytest.mark.parametrize("setting", sorted(REFUSED))
def test_a_setting_for_which_acp_has_no_words_is_refused_by_name(setting: str) -> None:
    with pytest.raises(UsageError, match=f"^{setting}: a program of dialect 'acp' has no such thing") as caught:
        acp(**{setting: REFUSED[setting]})
    assert caught.value.details["setting"] == setting


@pytest.mark.parametrize("dialect", ["native", "pi"])
@pytest.mark.parametrize("setting", sorted(OF_ACP))
def test_a_setting_of_acp_is_refused_where_the_program_speaks_otherwise(setting: str, dialect: str) -> None:
    with pytest.raises(UsageError, match=f'^{setting}: .* or give the agent dialect = "acp"'):
        acp(dialect=dialect, **{setting: OF_ACP[setting]})


@pytest.mark.parametrize("setting", ["skills", "extensions", "prompt_templates"])
def test_a_role_can_give_it_no_resources(setting: str) -> None:
    with pytest.raises(UsageError, match=f"the role default has {setting}; a program of dialect 'acp' takes none"):
        acp(role=msgspec.convert({setting: ["x"]}, RoleSettings))


def test_it_needs_a_command_and_gets_no_arguments_of_the_pool() -> None:
    with pytest.raises(UsageError, match=r"^command: an agent of dialect 'acp' needs its program") as caught:
        acp(command=[])
    assert caught.value.details["setting"] == "command"
    made = acp(extra_args=["--verbose"], model="m", thinking="high", mode="plan", append_system_prompt="Be brief.")
    assert worker_argv(made, "/sessions") == ("demo", "acp", "--verbose")


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"name": "x"}, "'x' is not as ACP declares one: a server of type stdio has a name and a member command"),
        ({"name": "x", "type": "http", "command": "y"}, "'x' is not .* a server of type http has .* a member url"),
        ({"name": "x", "type": "ftp"}, "'x' is not as ACP declares one: Invalid enum value 'ftp'"),
        ({"name": "x", "command": "y", "args": "-v"}, "'x' is not as ACP declares one: Expected array"),
        ({}, "each needs a name"),
        ({"name": 7}, "each needs a name"),
        ({"name": "x", "env": {"API_KEY": "k"}}, "env of 'x' must be a list"),
        ({"name": "x", "env": [{"name": "API_KEY"}]}, "env of 'x' must be a list"),
        ({"name": "x", "headers": 7}, "headers of 'x' must be a list"),
        ({"name": "x", "headers": [{"name": "a", "value": 7}]}, "headers of 'x' must be a list"),
    ],
)
def test_an_mcp_server_that_is_not_declared_as_acp_says_is_refused(server: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=f"^mcp_servers: {words}"):
        acp(mcp_servers=[server])


def test_a_name_of_two_servers_and_an_empty_name_of_anything_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^mcp_servers: there are several with the name 'files'"):
        acp(mcp_servers=[SERVER, SERVER])
    empty: list[dict[str, Any]] = [{name: " "} for name in ("auth_method", "mode", "model", "thinking")]
    for [(setting, value)] in map(dict.items, empty):
        with pytest.raises(UsageError, match=f"^{setting}: is empty") as caught:
            acp(**{setting: value})
        assert caught.value.details["setting"] == setting


def test_levels_of_thinking_are_the_agents_own_where_it_speaks_acp() -> None:
    assert acp(thinking="ultra").soft.thinking == "ultra"
    for dialect in ("native", "pi"):
        with pytest.raises(UsageError, match=r"^thinking: there is no level 'ultra'; there are off, minimal"):
            acp(dialect=dialect, thinking="ultra")


def test_a_person_is_asked_unless_the_settings_say_otherwise() -> None:
    assert declared(acp()) == {"permission_mode": "approval"}
    assert declared(acp(permission_mode="auto")) == {"permission_mode": "auto"}


def test_what_the_program_learns_over_its_protocol_is_declared() -> None:
    made = acp(
        append_system_prompt="Mine.",
        role=RoleSettings(append_system_prompt="The role's."),
        gateway_prompt="The gateway's.",
        auth_method="key",
        mcp_servers=[SERVER],
    )
    assert declared(made) == {
        "auth_method": "key",
        "mcp_servers": [SERVER],
        "permission_mode": "approval",
        "preamble": "Mine.\n\nThe role's.\n\nThe gateway's.",
    }


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("auth_method", {"auth_method": "sk-secret"}),
        ("mcp_servers", {"mcp_servers": [{"name": "sk-secret", "command": "x"}]}),
        ("permission_mode", {"permission_mode": "auto"}),
        ("preamble", {"append_system_prompt": "sk-secret"}),
    ],
)
def test_what_is_declared_makes_another_hard_profile_and_its_value_is_never_shown(
    name: str, setting: dict[str, Any]
) -> None:
    have, want = acp(), acp(**setting)
    assert have.hard_signature != want.hard_signature
    assert have.signature != want.signature
    assert match(have, have.soft, want) is MatchLevel.NONE
    assert first_difference(have, want) == f"{name}: the worker has another value"
    assert "sk-secret" not in repr(want)


@pytest.mark.parametrize("setting", [{"mode": "plan"}, {"options": {"b": "x", "a": True}}, {"model": "m"}])
def test_mode_model_and_options_are_changed_on_a_live_worker(setting: dict[str, Any]) -> None:
    have, want = acp(), acp(**setting)
    assert have.hard_signature == want.hard_signature
    assert have.signature != want.signature
    assert match(have, have.soft, want) is MatchLevel.HARD
    assert match(want, want.soft, want) is MatchLevel.EXACT
    assert match(have, want.soft, want) is MatchLevel.EXACT


@pytest.mark.parametrize("name", ["mode", "options"])
def test_a_worker_whose_default_was_changed_does_not_serve_who_wants_the_default(name: str) -> None:
    have, want = acp(**{name: OF_ACP[name]}), acp()
    assert match(have, have.soft, want) is MatchLevel.NONE
    assert first_difference(have, want).startswith(f"{name}: the worker was set to ")


def test_the_order_of_options_makes_no_second_profile() -> None:
    one, other = acp(options={"a": "1", "b": False}), acp(options={"b": False, "a": "1"})
    assert one.signature == other.signature
    assert one.soft.options == '{"a":"1","b":false}'


def test_a_run_with_a_model_of_its_own_keeps_mode_options_and_what_is_declared() -> None:
    made = acp(mode="plan", options={"a": "1"}, mcp_servers=[SERVER])
    changed = with_soft(made, model="other")
    assert (changed.soft.mode, changed.soft.options, changed.soft.model) == ("plan", '{"a":"1"}', "other")
    assert (changed.declared, changed.hard_signature) == (made.declared, made.hard_signature)


def test_secrets_of_mcp_servers_are_hidden_from_all_that_the_worker_says() -> None:
    env = [{"name": "API_KEY", "value": "of-the-variable"}, {"name": "LEVEL", "value": "not-secret"}]
    headers = [{"name": "X-Auth-Token", "value": "of-the-header"}]
    servers = [{**SERVER, "env": env}, {"name": "web", "type": "http", "url": "https://h", "headers": headers}]
    made = acp(mcp_servers=servers, env={"MY_TOKEN": "of-the-program"})
    assert sorted(made.secrets) == ["of-the-header", "of-the-program", "of-the-variable"]
    assert "of-the" not in repr(AgentSettings(dialect="acp", command=COMMAND, mcp_servers=servers))


def test_profiles_without_any_of_this_are_signed_as_before() -> None:
    plain = profile(dialect="native")
    assert profile(dialect="native", declared={}).signature == plain.signature
    assert profile(dialect="native", declared={"a": "1"}).signature != plain.signature
