"""Slash commands: what is one is understood however it is written, what is none is left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sessions.commands import (
    COMMANDS,
    CommandReply,
    CompactCommand,
    NewConversationCommand,
    ParsedCommand,
    QueueOnceCommand,
    SetOptionCommand,
    StatusCommand,
    StopCommand,
    help_text,
    parse_command,
)
from profiles.dialects import THINKING_LEVELS
from wire.messages import QueueMode

QUEUE_HELP = COMMANDS["queue"].help


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("/new", NewConversationCommand("new")),
        ("/reset", NewConversationCommand("reset")),
        ("/new FORCE", NewConversationCommand("new", force=True)),
        ("/reset force", NewConversationCommand("reset", force=True)),
        ("/stop", StopCommand()),
        *(
            (text, StopCommand())
            for text in ("/stop it, please", "  /STOP\n", "/Stop@OtherBot now", "/stop\nwhat you do")
        ),
        ("/status", StatusCommand()),
        ("/model openai/gpt:5", SetOptionCommand("model", "openai/gpt:5")),
        ("/model DEFAULT", SetOptionCommand("model", None)),
        ("/think high", SetOptionCommand("thinking", "high")),
        ("/think HIGH", SetOptionCommand("thinking", "high")),
        ("/think Ultra", SetOptionCommand("thinking", "Ultra")),
        ("/think Default", SetOptionCommand("thinking", None)),
        ("/compact", CompactCommand(None)),
        ("/compact keep the  plan\nand names", CompactCommand("keep the  plan\nand names")),
        ("/queue collect", SetOptionCommand("queue_mode", QueueMode.COLLECT)),
        ("/queue default", SetOptionCommand("queue_mode", None)),
        ("/queue Interrupt  do  this\n now", QueueOnceCommand(QueueMode.INTERRUPT, "do  this\n now")),
        ("/queue steer /stop", QueueOnceCommand(QueueMode.STEER, "/stop")),
        ("/verbose on", SetOptionCommand("verbose", value=True)),
        ("/verbose OFF", SetOptionCommand("verbose", value=False)),
        ("/reasoning on", SetOptionCommand("reasoning", value=True)),
        ("/help", CommandReply(help_text())),
        ("/help /queue", CommandReply(f"/queue steer|followup|collect|interrupt|default [TEXT] - {QUEUE_HELP}")),
    ],
)
def test_a_command_is_understood(text: str, parsed: ParsedCommand) -> None:
    assert parse_command(text) == parsed


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *(("/new idea: a garden", "new"), ("/reset x", "reset"), ("/status now", "status"), ("/help me", "help")),
        *(("/model", "model"), ("/model a b", "model"), ("/model " + "x" * 201, "model"), ("/model a\0b", "model")),
        *(("/think", "think"), ("/think high now", "think"), (f"/think {'x' * 201}", "think")),
        *(("/queue", "queue"), ("/queue what", "queue"), ("/queue default text", "queue")),
        *(("/queue what text", "queue"), ("/verbose", "verbose"), ("/verbose yes", "verbose")),
        ("/reasoning", "reasoning"),
    ],
)
def test_wrong_arguments_are_answered_with_how_it_is_written(text: str, name: str) -> None:
    parsed = parse_command(text)
    assert parsed == CommandReply(f"Usage: {COMMANDS[name].usage}\n{COMMANDS[name].help}")


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "/", "//", "/ stop", "/ops", "/ops restart", "/etc/passwd", "/stop/it", "/stop.", "/stop@"),
        *("stop", "please /stop", "!stop", "/stop-all", "/stopp", "/new2", "/mo\u0434el x", "/\u017ftop", "\uff0fstop"),
        *("/stop,now", "/stop@a/b", "/stop@" + "x" * 65, "/agent hi", "\\/stop"),
    ],
)
def test_anything_else_goes_to_the_agent(text: str) -> None:
    assert parse_command(text) is None


@given(
    name=st.sampled_from(sorted(COMMANDS)),
    rest=st.text(max_size=20) | st.sampled_from(["on", "off", "high", "collect", "collect x", "default"]),
    space=st.sampled_from([" ", "\n", "\t", "  ", "\u00a0"]),
    upper=st.booleans(),
    bot=st.sampled_from(["", "@bot"]),
)
def test_every_known_command_is_answered_and_its_spelling_does_not_matter(
    name: str, rest: str, space: str, bot: str, *, upper: bool
) -> None:
    spelled = name.upper() if upper else name
    parsed = parse_command(f"{space}/{spelled}{bot}{space}{rest}{space}")
    assert parsed is not None
    assert parsed == parse_command(f"/{name} {rest.strip()}")


@given(mode=st.sampled_from(QueueMode), text=st.text(min_size=1).map(str.strip).filter(bool))
def test_a_message_with_its_own_queue_mode_keeps_its_text(mode: QueueMode, text: str) -> None:
    assert parse_command(f"/queue {mode} {text}") == QueueOnceCommand(mode, text)


def test_the_help_has_one_line_for_each_command_and_every_level_and_mode_can_be_set() -> None:
    lines = help_text().splitlines()
    assert [line.split()[0] for line in lines] == [f"/{name}" for name in COMMANDS]
    assert max(map(len, lines)) <= 160
    for level in THINKING_LEVELS:
        assert parse_command(f"/think {level}") == SetOptionCommand("thinking", level)
    for mode in QueueMode:
        assert parse_command(f"/queue {mode}") == SetOptionCommand("queue_mode", mode)
