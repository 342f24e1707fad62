"""Slash commands in a message: answered by the gateway at once, never shown to a model.

A command is the first word of the message: ``/stop``, in any case, with white space around it, or with the name of the
bot behind it as Telegram writes it (``/stop@mybot``). Anything else that begins with a slash (a path, an agent's name,
a command of the agent's own) is none of ours and goes its way unchanged. ``/queue MODE`` alone sets the session's
mode; ``/queue MODE text`` uses the mode for this one message, whose text is what follows, whatever it begins with.
"""

import re
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, get_args

import msgspec

from gateway.settings import QueueMode
from profiles.settings import ThinkingLevel


class NewConversation(msgspec.Struct, frozen=True):
    """Begin a new conversation; the old transcript is kept. ``command``, ``new`` or ``reset``, is for hooks.

    ``force``: even if that ends commands in the background.
    """

    command: Literal["new", "reset"]
    force: bool = False


class Stop(msgspec.Struct, frozen=True):
    """Abort the running turn and clear what waits behind it."""


class Status(msgspec.Struct, frozen=True):
    """Answer with the state of the session."""


class SetModel(msgspec.Struct, frozen=True):
    """Use this model in the session from the next turn on; None = the agent's own again. May not exist."""

    model: str | None


class SetThinking(msgspec.Struct, frozen=True):
    """Think this hard in the session; None = as the agent's definition says."""

    level: ThinkingLevel | None


class Compact(msgspec.Struct, frozen=True):
    """Summarise the conversation so far; ``instructions`` say what the summary is for."""

    instructions: str | None


class SetQueueMode(msgspec.Struct, frozen=True):
    """What happens to messages of the session while it is busy; None = as the settings say."""

    mode: QueueMode | None


class QueueOnce(msgspec.Struct, frozen=True):
    """No command to answer but a message for the agent: ``text``, with a queue mode of its own."""

    mode: QueueMode
    text: str


class SetVerbose(msgspec.Struct, frozen=True):
    """Show what the tools do, in the session's answers."""

    on: bool


class SetReasoning(msgspec.Struct, frozen=True):
    """Show what the model thinks, in the session's answers."""

    on: bool


class Reply(msgspec.Struct, frozen=True):
    """Answer with this text: help, or what is wrong with the command."""

    text: str


Parsed = (
    NewConversation
    | Stop
    | Status
    | SetModel
    | SetThinking
    | Compact
    | SetQueueMode
    | QueueOnce
    | SetVerbose
    | SetReasoning
    | Reply
)

_COMMAND = re.compile(r"/([A-Za-z]{1,16})(?:@\w{1,64})?(?:\s|$)")
_LONGEST_MODEL = 200
_DEFAULT = "default"
_FORCE = "force"
_LEVELS: Mapping[str, ThinkingLevel] = {level: level for level in get_args(ThinkingLevel)}
_MODES: Mapping[str, QueueMode] = {mode.value: mode for mode in QueueMode}
_SWITCH: Mapping[str, bool] = {"on": True, "off": False}


class CommandHelp(NamedTuple):
    """One command: how it is written, what it does in one line, and what its arguments mean (None: they are wrong)."""

    usage: str
    help: str
    read: Callable[[str], Parsed | None]


def parse_command(text: str) -> Parsed | None:
    """What a message asks of the gateway; None = nothing, it is for the agent."""
    text = text.strip()
    match = _COMMAND.match(text)
    command = COMMANDS.get(match[1].lower()) if match else None
    if match is None or command is None:
        return None
    return command.read(text[match.end() :].strip()) or Reply(f"Usage: {command.usage}\n{command.help}")


def help_text() -> str:
    """One line for each command."""
    return "\n".join(f"{command.usage} - {command.help}" for command in COMMANDS.values())


def _without_arguments(parsed: Parsed) -> Callable[[str], Parsed | None]:
    return lambda rest: None if rest else parsed


def _new_conversation(command: Literal["new", "reset"]) -> Callable[[str], Parsed | None]:
    forms = {"": NewConversation(command), _FORCE: NewConversation(command, force=True)}
    return lambda rest: forms.get(rest.lower())


def _model(rest: str) -> Parsed | None:
    if not rest or len(rest) > _LONGEST_MODEL or rest.split() != [rest] or not rest.isprintable():
        return None
    return SetModel(None if rest.lower() == _DEFAULT else rest)


def _thinking(rest: str) -> Parsed | None:
    level = _LEVELS.get(rest.lower())
    return SetThinking(level) if level or rest.lower() == _DEFAULT else None


def _queue(rest: str) -> Parsed | None:
    word, text = (*rest.split(maxsplit=1), "", "")[:2]
    mode = _MODES.get(word.lower())
    if text:
        return QueueOnce(mode, text) if mode else None
    return SetQueueMode(mode) if mode or word.lower() == _DEFAULT else None


def _switch(kind: Callable[[bool], Parsed]) -> Callable[[str], Parsed | None]:
    def read(rest: str) -> Parsed | None:
        on = _SWITCH.get(rest.lower())
        return None if on is None else kind(on)

    return read


def _help(rest: str) -> Parsed | None:
    if not rest:
        return Reply(help_text())
    command = COMMANDS.get(rest.removeprefix("/").lower())
    return Reply(f"{command.usage} - {command.help}") if command else None


COMMANDS: Mapping[str, CommandHelp] = {
    "new": CommandHelp(
        "/new [force]",
        "begin a new conversation; the old one is kept; with force also where commands run in the background",
        _new_conversation("new"),
    ),
    "reset": CommandHelp("/reset [force]", "the same as /new", _new_conversation("reset")),
    # whatever else is said with it: who wants something stopped does not want to be told how to write it
    "stop": CommandHelp("/stop", "end the running turn and drop what waits behind it", lambda _rest: Stop()),
    "status": CommandHelp("/status", "what the session is doing", _without_arguments(Status())),
    "model": CommandHelp("/model NAME|default", "use another model in this session", _model),
    "think": CommandHelp(f"/think {'|'.join(_LEVELS)}|default", "how hard the model thinks in this session", _thinking),
    "compact": CommandHelp(
        "/compact [INSTRUCTIONS]",
        "summarise the conversation so far, to make room",
        lambda rest: Compact(rest or None),
    ),
    "queue": CommandHelp(
        f"/queue {'|'.join(_MODES)}|default [TEXT]",
        "what becomes of messages while the session is busy; with a text, for that message only",
        _queue,
    ),
    "verbose": CommandHelp("/verbose on|off", "show what the tools do", _switch(SetVerbose)),
    "reasoning": CommandHelp("/reasoning on|off", "show what the model thinks", _switch(SetReasoning)),
    "help": CommandHelp("/help [COMMAND]", "this list, or one line of it", _help),
}
"""Every command by its name, in the order of the help."""
