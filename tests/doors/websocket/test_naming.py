"""Which conversation a request names."""

from typing import Any

import msgspec
import pytest

from doors.websocket.session_ref import ConversationMembers, named_session, resolve_conversation
from errors import UsageError


def _named(**members: Any) -> ConversationMembers:
    return msgspec.convert(members, ConversationMembers)


TELEGRAM = "agent:main:telegram:account:default"


@pytest.mark.parametrize(
    ("members", "session"),
    [
        ({}, "agent:main:main:main"),
        ({"agentId": "Ops"}, "agent:ops:main:main"),
        ({"sessionKey": "alice"}, "alice"),
        ({"sessionId": "alice"}, "alice"),
        ({"sessionKey": "agent:ops:main", "sessionId": "agent:ops:main:main"}, "agent:ops:main:main"),
        ({"sessionKey": "agent:ops:project:docs", "agentId": "ops"}, "agent:ops:project:docs"),
        ({"sessionId": "alice", "agentId": "ops"}, "alice"),
        ({"to": "+43 1"}, "agent:main:dm:+43 1"),
        ({"to": "5", "channel": "irc", "agentId": "ops"}, "agent:ops:irc:dm:5"),
        ({"to": "5", "channel": "irc", "accountId": "x"}, "agent:main:irc:account:x:dm:5"),
        ({"to": "5", "channel": "telegram"}, "agent:main:telegram:account:default:dm:5"),
        ({"groupId": "-1", "channel": "telegram", "threadId": 7}, f"{TELEGRAM}:group:-1:topic:7"),
        ({"groupId": "-1", "channel": "irc"}, "agent:main:irc:group:-1"),
    ],
)
def test_a_conversation_is_named_in_several_ways(members: dict[str, Any], session: str) -> None:
    assert resolve_conversation(_named(**members), "main") == (session, [])


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"sessionKey": "alice", "sessionId": "bob"}, "sessionKey 'alice' and sessionId 'bob' name two conversations"),
        ({"sessionKey": ""}, "sessionKey: "),
        ({"sessionId": ""}, "sessionId: "),
        ({"sessionId": "agent:"}, "sessionId: "),
        ({"sessionKey": "agent:ops:main", "agentId": "main"}, "is agent ops's, not main's"),
        ({"to": "1", "groupId": "2", "channel": "irc"}, "to and groupId name two conversations"),
        ({"groupId": "2"}, "groupId names a conversation only together with channel"),
        ({"to": "1", "threadId": "2"}, "threadId names a conversation only together with groupId"),
        ({"threadId": 2}, "threadId names a conversation only together with groupId"),
        ({"groupChannel": "#general"}, "groupChannel names a conversation only together with groupId"),
        ({"groupSpace": "1"}, "groupSpace names a conversation only together with groupId"),
        ({"to": "1", "accountId": "x"}, "account"),
        ({"to": ""}, "empty"),
        ({"groupId": "", "channel": "irc"}, "empty"),
    ],
)
def test_what_names_no_conversation_or_two_is_refused(members: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        resolve_conversation(_named(**members), "main")
    assert told in refused.value.message


@pytest.mark.parametrize(
    ("members", "unused"),
    [
        ({"sessionKey": "alice", "to": "1", "channel": "irc", "threadId": "7"}, ["to", "channel", "threadId"]),
        ({"groupId": "1", "channel": "irc", "groupSpace": "s"}, ["groupSpace"]),
        ({"channel": "webchat", "accountId": "x"}, ["channel", "accountId"]),
    ],
)
def test_members_that_do_not_help_to_name_it_are_listed(members: dict[str, Any], unused: list[str]) -> None:
    assert resolve_conversation(_named(**members), "main").unused == unused


def test_a_session_may_be_named_by_either_member_or_by_none() -> None:
    assert named_session("agent:OPS:main", None) == named_session(None, "agent:ops:main:main") == "agent:ops:main:main"
    assert named_session(None, None) is None
