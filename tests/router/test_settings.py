"""The settings of routing: as people write them, and what is refused."""

import tomllib
from typing import Any

import msgspec
import pytest

from profiles import ProfilesSettings, RoleSettings
from router.settings import RouterSettings, router_problems
from router.source import Peer

WRITTEN = """
dm_scope = "per-peer"
default_agent = "main"
identity_links = { alice = ["telegram:111", "discord:222"] }
workspace_dirs = { team = "~/team" }

[[bindings]]
agent = "ops"
channel = "telegram"
peer = { kind = "group", id = "-100123" }

[[bindings]]
agent = "ops"
guild = "1"
roles = ["2", "3"]
parent = { kind = "channel", id = "4" }
account = "bot"

[roles]
channels = { slack = "team" }
agents = { ops = "ops" }

[roles.telegram]
default = "guest"
accounts = { bot = "team" }
groups."*" = { role = "guest", topics = { 1 = "team" } }

[roles.telegram.groups."-100123"]
role = "team"
topics.7 = "release"

[roles.discord]
default = "guest"

[roles.discord.guilds.1]
role = "team"
channels = { 5 = "ops" }
"""


def decoded(text: str) -> RouterSettings:
    return msgspec.convert(tomllib.loads(text), RouterSettings)


def test_every_setting_can_be_written_in_toml() -> None:
    settings = decoded(WRITTEN)
    assert settings.bindings[0].peer == Peer("group", "-100123")
    assert settings.roles.telegram.groups["-100123"].topics == {"7": "release"}
    assert settings.roles.discord.guilds["1"].channels == {"5": "ops"}
    assert settings.workspace_dirs == {"team": "~/team"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dm_scope": "per-person"}, "Invalid enum value 'per-person'"),
        ({"dmscope": "main"}, "unknown field `dmscope`"),
        ({"bindings": [{"agent": "a"}]}, "a binding needs a condition"),
        ({"bindings": [{"agent": "a", "roles": ["1"]}]}, "roles belong to a guild"),
        ({"bindings": [{"channel": "x"}]}, "missing required field `agent`"),
        ({"bindings": [{"agent": "a", "peer": {"kind": "user", "id": "1"}}]}, "Invalid enum value 'user'"),
        ({"roles": {"channels": {"telegram": "x"}}}, "is router.roles.telegram.default"),
        ({"roles": {"channels": {"discord": "x"}}}, "is router.roles.discord.default"),
        ({"identity_links": {"a": ["x:1"], "b": ["x:1"]}}, "'x:1' is linked to both 'a' and 'b'"),
        ({"identity_links": {"a": [""]}}, "cannot be empty"),
        ({"identity_links": {"": ["x:1"]}}, "cannot be empty"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(given, RouterSettings)


def test_an_id_may_be_named_twice_for_one_person() -> None:
    assert RouterSettings(identity_links={"a": ["1", "1"]}).identity_links == {"a": ["1", "1"]}


def test_every_name_that_no_agent_or_role_has_is_a_problem_under_its_own_path() -> None:
    problems = dict(router_problems(decoded(WRITTEN), ProfilesSettings()))
    assert {".".join(str(part) for part in path) for path in problems} == {
        "router.bindings.0.agent",
        "router.bindings.1.agent",
        "router.roles.agents.ops",
        "router.workspace_dirs.team",
        "router.roles.channels.slack",
        "router.roles.telegram.default",
        "router.roles.telegram.accounts.bot",
        "router.roles.telegram.groups.*.role",
        "router.roles.telegram.groups.*.topics.1",
        "router.roles.telegram.groups.-100123.role",
        "router.roles.telegram.groups.-100123.topics.7",
        "router.roles.discord.default",
        "router.roles.discord.guilds.1.role",
        "router.roles.discord.guilds.1.channels.5",
    }
    assert problems["router", "bindings", 0, "agent"] == "there is no agent 'ops'; there are: main"


def test_known_names_and_the_defaults_are_no_problem() -> None:
    roles = {name: RoleSettings() for name in ("team", "guest", "ops", "release")}
    profiles = msgspec.convert({"agents": {"ops": {}}}, ProfilesSettings)
    assert list(router_problems(decoded(WRITTEN), msgspec.structs.replace(profiles, roles=roles))) == []
    assert list(router_problems(RouterSettings(), ProfilesSettings())) == []


def test_two_workspaces_for_one_role_are_a_problem() -> None:
    settings = RouterSettings(workspace_dirs={"team": "/a", "default": "/b"})
    problems = list(router_problems(settings, ProfilesSettings(roles={"team": RoleSettings(workspace="/c")})))
    assert problems == [(("router", "workspace_dirs", "team"), "roles.team.workspace says '/c'; keep one of them")]
