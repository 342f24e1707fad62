"""Which agent answers: bindings by score, then a prefix, then the default."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.agents import AgentDecision, find_agent
from router.settings import Binding, RouterSettings
from router.source import MessageSource, Peer
from tests.router.sources import source, sources

AGENTS = ["main", "ops", "status"]
COMMANDS = {"status", "new"}

THREAD = source(
    channel="discord",
    chat_type="thread",
    chat_id="t",
    account_id="bot",
    guild_id="g",
    member_role_ids=["mod", "user"],
    parent_peer=Peer("channel", "c"),
)


def found(bindings: list[Binding], message: MessageSource, text: str = "hello", **settings: Any) -> AgentDecision:
    return find_agent(RouterSettings(bindings=bindings, **settings), AGENTS, COMMANDS, message, text)


ROLES = {"guild": "g", "roles": ["mod"]}
SCORES: list[tuple[dict[str, Any], int]] = [
    ({"channel": "discord"}, 1),
    ({"account": "bot"}, 2),
    ({"channel": "discord", "account": "bot"}, 3),
    ({"guild": "g"}, 4),
    ({"guild": "g", "roles": ["admin", "mod"]}, 10),
    ({"parent": Peer("channel", "c")}, 7),
    ({"peer": Peer("thread", "t")}, 8),
    ({"guild": "g", "roles": ["user"], "account": "bot", "channel": "discord"}, 13),
    (
        {"peer": Peer("thread", "t"), "parent": Peer("channel", "c"), **ROLES, "account": "bot", "channel": "discord"},
        28,
    ),
]


@pytest.mark.parametrize(("conditions", "score"), SCORES)
def test_a_binding_scores_the_sum_of_its_conditions(conditions: dict[str, Any], score: int) -> None:
    finding = found([Binding(agent="ops", **conditions)], THREAD)
    assert (finding.agent, finding.layer, finding.score, finding.binding) == ("ops", "binding", score, 0)
    assert finding.reason == f"binding 1 of 1 matches with score {score}"


@pytest.mark.parametrize(
    ("conditions", "failed"),
    [
        ({"channel": "irc"}, "channel is discord, not irc"),
        ({"account": "x"}, "account is bot, not x"),
        ({"guild": "h"}, "guild is g, not h"),
        ({"guild": "g", "roles": ["admin", "owner"]}, "the sender has no role admin or owner"),
        ({"parent": Peer("group", "c")}, "parent is channel c, not group c"),
        ({"peer": Peer("channel", "t")}, "peer is thread t, not channel t"),
        ({"peer": Peer("thread", "t"), "channel": "irc"}, "channel is discord, not irc"),
    ],
)
def test_one_condition_that_fails_fails_the_binding_and_is_named(conditions: dict[str, Any], failed: str) -> None:
    finding = found([Binding(agent="ops", **conditions)], THREAD)
    assert (finding.agent, finding.layer) == ("main", "default")
    assert [(each.score, each.failed) for each in finding.bindings] == [(None, failed)]


def test_what_a_source_does_not_give_fails_as_such() -> None:
    bindings = [Binding(agent="ops", guild="g"), Binding(agent="ops", parent=Peer("channel", "c"))]
    failures = [each.failed for each in found(bindings, source()).bindings]
    assert failures == ["guild is not given, not g", "parent is not given, not channel c"]


def test_an_exact_peer_beats_every_sum_without_one() -> None:
    rich = Binding(
        agent="main", guild="g", roles=["mod"], parent=Peer("channel", "c"), account="bot", channel="discord"
    )
    finding = found([rich, Binding(agent="ops", peer=Peer("thread", "t"))], THREAD)
    assert (finding.agent, finding.score) == ("ops", 8)
    assert [each.score for each in finding.bindings] == [20, 8]


def test_of_equal_scores_the_first_in_the_file_wins() -> None:
    same: dict[str, Any] = {"channel": "discord", "account": "bot"}
    finding = found(
        [Binding(agent="main", guild="x"), Binding(agent="ops", **same), Binding(agent="main", **same)], THREAD
    )
    assert (finding.agent, finding.binding) == ("ops", 1)
    assert [each.index for each in finding.bindings] == [0, 1, 2]


@pytest.mark.parametrize(
    ("conditions", "changes", "agent"),
    [
        # the peer of a direct message is its sender
        ({"peer": Peer("dm", "5")}, {"chat_id": "other", "sender_id": "5"}, "ops"),
        ({"peer": Peer("dm", "5")}, {"chat_id": "5", "sender_id": "other"}, "main"),
        ({"peer": Peer("dm", "5")}, {"chat_type": "group", "chat_id": "5", "sender_id": "5"}, "main"),
        # a channel that names no account has the default one
        ({"account": "default"}, {}, "ops"),
        ({"account": "default"}, {"account_id": "x"}, "main"),
    ],
)
def test_peer_and_account_of_a_message(conditions: dict[str, Any], changes: dict[str, Any], agent: str) -> None:
    assert found([Binding(agent="ops", **conditions)], source(**changes)).agent == agent


places = st.sampled_from(["1", "2", "telegram"])
bindings = st.builds(
    Binding,
    agent=st.sampled_from(AGENTS),
    channel=st.sampled_from(["telegram", "discord"]),
    account=st.none() | places,
    guild=places,
    roles=st.lists(places, max_size=2),
    peer=st.none() | st.builds(Peer, st.sampled_from(["dm", "group"]), places),
)


@given(st.lists(bindings, max_size=6), sources)
def test_the_binding_that_wins_is_second_to_none(given: list[Binding], message: MessageSource) -> None:
    finding = found(given, message)
    assert len(finding.bindings) == len(given)
    assert all((each.score is None) != (each.failed is None) for each in finding.bindings)
    ranks = {
        each.index: (given[each.index].peer is not None, each.score, -each.index)
        for each in finding.bindings
        if each.score is not None
    }
    assert finding.binding == max(ranks, key=lambda index: ranks[index], default=None)


@pytest.mark.parametrize(
    ("text", "agent", "left"),
    [
        ("/ops status", "ops", "status"),
        ("/OPS  deploy it\n  now ", "ops", "deploy it\n  now "),
        (" \n/ops\nline", "ops", "line"),
        ("/ops", "ops", ""),
        ("/ops /new", "ops", "/new"),
    ],
)
def test_a_known_agent_as_a_prefix_is_stripped_and_answers(text: str, agent: str, left: str) -> None:
    finding = found([], source(), text)
    assert (finding.agent, finding.layer, finding.text) == (agent, "prefix", left)
    assert finding.reason == "the text begins with /ops"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/status", "/status is a command of the gateway"),
        ("/Status now", "/status is a command of the gateway"),
        ("/new", "/new is a command of the gateway"),
        ("/unknown do it", "there is no agent unknown"),
        ("/ops/log is full", "no /AGENT prefix"),
        ("/ops: now", "no /AGENT prefix"),
        ("//ops now", "no /AGENT prefix"),
        ("/ ops", "no /AGENT prefix"),
        ("ops now", "no /AGENT prefix"),
        ("please /ops now", "no /AGENT prefix"),
        ("/" + "o" * 65, "no /AGENT prefix"),
        ("", "no /AGENT prefix"),
    ],
)
def test_any_other_text_is_left_whole_for_the_default_agent(text: str, why: str) -> None:
    finding = found([], source(), text)
    assert (finding.agent, finding.layer, finding.text) == ("main", "default", text)
    assert why in finding.reason
    assert found([], source(), text, default_agent="status").agent == "status"


def test_a_binding_comes_before_a_prefix_and_leaves_the_text() -> None:
    finding = found([Binding(agent="main", channel="telegram")], source(), "/ops status")
    assert (finding.agent, finding.layer, finding.text) == ("main", "binding", "/ops status")
