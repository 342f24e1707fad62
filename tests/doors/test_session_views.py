"""One session on the terminal."""

import re
from typing import Any

import pytest

from commands.session_view import history_view, session_view
from tests.doors.terminal import draw


def test_what_is_known_of_a_session_is_a_line_each_and_what_is_not_is_left_out() -> None:
    session = {"key": "ada", "status": "READY", "model": None, "source": {"channel": "sms", "chat_id": "a b"}}
    assert draw(session_view(session), 60) == 'key     ada\nstatus  READY\nsource  channel=sms  chat_id="a b"'


def test_times_are_shown_as_people_read_them() -> None:
    assert re.search(" (19|20)", draw(session_view({"created_at": 0.0}), 60))


def test_messages_are_shown_with_what_the_tools_did_beside_them() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "plain"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "two\nlines\n"},
                {"type": "tool_use", "id": "c", "name": "exec", "input": {"cmd": "ls"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}]},
        {"role": "assistant", "content": [{"type": "toolCall", "name": "read", "arguments": {"a": 1}}]},
        {"role": "user", "content": [{"type": "image", "data": "xx"}, {"type": "of the future"}]},
        {"role": "user", "content": "left", "origin": "steer"},
        {"role": "user", "content": []},
    ]
    assert draw(history_view({"messages": messages}, 60), 60).splitlines() == [
        *("user", "plain", ""),
        *("assistant", "(hm)", "two", "lines", '· exec {"cmd":"ls"}', ""),
        *("user", "! no", ""),
        *("assistant", '· read {"a":1}', ""),
        *("user", "(an image)", ""),
        *("user, into the running turn", "left"),
    ]


def test_where_nothing_was_said_it_says_so() -> None:
    assert draw(history_view({"messages": []}, 60), 60) == "nothing was said yet"


@pytest.mark.parametrize(
    "content", ["\x1b[2J", [{"type": "text", "text": "\x1b[2J"}], [{"type": "thinking", "thinking": "\x1b"}]]
)
def test_what_was_said_cannot_control_the_terminal(content: Any) -> None:
    assert "\x1b" not in draw(history_view({"messages": [{"role": "\x1b[2J", "content": content}]}, 60), 60)
