"""The whole decision: every layer's answer and reason, encodable, without an effect."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import UsageError
from profiles import AgentSettings, ProfilesSettings, RoleSettings
from router.keys import normalize_session_key
from router.route import RouteDecision, find_priority, route
from router.settings import Binding, RoleTables, RouterSettings
from router.source import MessageSource, Peer
from tests.router.sources import source, sources

DATA = Path("/data")
PROFILES = ProfilesSettings(
    agents={"ops": AgentSettings(workspace="/srv/ops"), "status": AgentSettings()},
    roles={"team": RoleSettings(), "guest": RoleSettings()},
)
SETTINGS = RouterSettings(
    dm_scope="per-channel-peer",
    identity_links={"alice": ["telegram:1"]},
    bindings=[
        Binding(agent="main", channel="irc"),
        Binding(agent="ops", channel="telegram", peer=Peer("group", "-1")),
    ],
    roles=msgspec.convert({"telegram": {"groups": {"*": {"role": "team"}}}, "agents": {"ops": "guest"}}, RoleTables),
    workspace_dirs={"team": "/srv/team"},
)


def test_a_group_goes_to_the_agent_that_is_bound_to_it() -> None:
    decision = route(SETTINGS, PROFILES, source(chat_type="group", chat_id="-1"), "hello", data_dir=DATA)
    assert decision.session == "agent:ops:telegram:account:default:group:-1"
    assert (decision.agent, decision.role, decision.workspace, decision.text) == ("ops", "team", "/srv/team", "hello")
    why = decision.reasons
    assert (why.agent.layer, why.agent.score) == ("binding", 9)
    assert [(each.score, each.failed) for each in why.agent.bindings] == [
        (None, "channel is telegram, not irc"),
        (9, None),
    ]
    assert (why.session.form, why.role.source, why.workspace.source) == (
        "group",
        "telegram.groups.*.role",
        "router.workspace_dirs.team",
    )


def test_the_agent_that_a_prefix_names_has_its_own_session_role_and_workspace() -> None:
    decision = route(SETTINGS, PROFILES, source(sender_id="1"), "/ops status", data_dir=DATA, commands={"status"})
    assert decision.session == "agent:ops:telegram:account:default:dm:alice"
    assert (decision.agent, decision.role, decision.workspace, decision.text) == ("ops", "guest", "/srv/ops", "status")
    assert decision.reasons.session.link == "telegram:1"


def test_a_command_of_the_gateway_is_no_agents_prefix() -> None:
    with_command = route(SETTINGS, PROFILES, source(), "/status", data_dir=DATA, commands={"status"})
    assert (with_command.agent, with_command.text) == ("main", "/status")
    without = route(SETTINGS, PROFILES, source(), "/status", data_dir=DATA)
    assert (without.agent, without.text) == ("status", "")


def test_embedded_defaults_route_everything_to_the_main_agent() -> None:
    decision = route(RouterSettings(), ProfilesSettings(), source(channel="irc"), "hello", data_dir=DATA)
    assert decision.session == "agent:main:main:main"
    assert (decision.agent, decision.role, decision.workspace) == ("main", "default", "/data/workspaces/default")
    assert {decision.reasons.role.source, decision.reasons.workspace.source} == {"default"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (RouterSettings(default_agent="nobody"), "unknown agent 'nobody'"),
        (RouterSettings(roles=RoleTables(channels={"irc": "tem"})), "unknown role 'tem'; did you mean 'team'"),
    ],
)
def test_settings_that_name_what_does_not_exist_are_refused(settings: RouterSettings, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        route(settings, PROFILES, source(channel="irc"), "hello", data_dir=DATA)


@given(sources, st.text(max_size=20) | st.sampled_from(["/ops x", "/status", "/main"]))
def test_every_decision_encodes_comes_back_and_changes_nothing(message: MessageSource, text: str) -> None:
    decision = route(SETTINGS, PROFILES, message, text, data_dir=DATA)
    assert msgspec.json.decode(msgspec.json.encode(decision), type=RouteDecision) == decision
    assert route(SETTINGS, PROFILES, message, text, data_dir=DATA) == decision
    assert normalize_session_key(decision.session) == decision.session
    assert decision.session.split(":")[1] == decision.agent
    assert text.endswith(decision.text)


PLAIN, LISTED = RouterSettings(), RouterSettings(priority_senders=["telegram:7", "8"])


@pytest.mark.parametrize(
    ("changes", "plain", "listed"),
    [
        ({"sender_id": "7"}, 10, 12),
        ({"sender_id": "7", "chat_type": "group", "chat_id": "-100"}, 5, 7),
        ({"sender_id": "7", "chat_type": "channel"}, 5, 7),
        ({"sender_id": "7", "chat_type": "thread", "thread_id": "1"}, 5, 7),
        ({"sender_id": "7", "channel": "webhook"}, 3, 3),
        ({"sender_id": "7", "channel": "hook"}, 3, 3),
        ({"sender_id": "7", "channel": "signal"}, 10, 10),  # another channel's 7 is another person
        ({"sender_id": "8", "channel": "signal"}, 10, 12),
        ({"sender_id": "telegram:7", "channel": "signal"}, 10, 10),
        ({"sender_id": "9"}, 10, 10),
    ],
)
def test_kind_and_sender_decide_how_soon_a_message_gets_a_worker(
    changes: dict[str, Any], plain: int, listed: int
) -> None:
    found = [find_priority(settings, source(**changes), "alice").priority for settings in (PLAIN, LISTED)]
    assert found == [plain, listed]


@pytest.mark.parametrize(
    ("session", "priority"),
    [
        *(("agent:main:signal:dm:7", 10), ("agent:main:signal:group:7", 5), ("agent:main:main:main", 5)),
        *(("hook:deploy", 3), ("cron:tidy", 5), ("alice", 5), ("agent:", 5)),
    ],
)
def test_without_a_source_the_session_decides_and_the_caller_before_all(session: str, priority: int) -> None:
    assert find_priority(PLAIN, None, session).priority == priority
    found = find_priority(LISTED, None, session, said=-3)
    assert (found.priority, found.reason) == (-3, "as its caller says")
