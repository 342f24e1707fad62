"""The router's decision as a picture, made from real decisions."""

from pathlib import Path
from typing import Any

import msgspec

from commands.route_view import route_view
from profiles import AgentSettings, ProfilesSettings
from router.route import route
from router.settings import Binding, RouterSettings
from router.source import MessageSource
from tests.doors.terminal import draw


def picture(text: str = "hello", width: int = 100, **source: Any) -> str:
    agents = {"main": AgentSettings(), "coder": AgentSettings()}
    settings = RouterSettings(
        bindings=[Binding(agent="main", channel="discord", guild="g1"), Binding(agent="coder", channel="telegram")]
    )
    message = MessageSource(chat_type="group", chat_id="-100", sender_id="7", **source)
    decision = route(settings, ProfilesSettings(agents=agents), message, text, data_dir=Path("/data"))
    return draw(route_view(msgspec.to_builtins(decision)), width)


def test_every_layer_is_shown_with_its_reasons() -> None:
    assert (
        picture(channel="telegram")
        == """\
agent      coder
           binding 2 of 2 matches with score 1
              binding 1  main   channel is telegram, not discord
           *  binding 2  coder  score 1
session    agent:coder:telegram:account:default:group:-100
           one conversation for each group
role       default
           from default; not set: telegram.groups.-100.role, telegram.groups.*.role,
           telegram.accounts.default, telegram.default, agents.coder
workspace  /data/workspaces/default
           from default
priority   5
           a message in a group
text       hello"""
    )


def test_a_prefix_shows_what_is_left_of_the_text() -> None:
    shown = picture("/coder look", channel="sms")
    assert "the text begins with /coder" in shown
    assert shown.endswith("text       look")
    assert picture("", channel="sms").endswith("text       (none)")


def test_a_message_cannot_control_the_terminal() -> None:
    assert "\x1b" not in picture("\x1b[2J", channel="sms")
