"""Slash commands in a message: answered by the gateway at once, never shown to a model.

A command is the first word of the message: ``/stop``, in any case, with white space around it, or with the name of the
bot behind it as Telegram writes it (``/stop@mybot``). Anything else that begins with a slash (a path, an agent's name,
a command of the agent's own) is none of ours and goes its way unchanged. ``/queue MODE`` alone sets the session's
mode; ``/queue MODE text`` uses the mode for this one message, whose text is what follows, whatever it begins with.
"""

import re
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import msgspec

from profiles.dialects import THINKING_LEVELS
from wire.messages import QueueMode


class NewConversationCommand(msgspec.Struct, frozen=True):
    """Begin a new conversation; the old transcript is kept. ``command``, ``new`` or ``reset``, is for hooks.

    ``force``: even if that ends commands in the background.
    """

    command: Literal["new", "reset"]
    force: bool = False


class StopCommand(msgspec.Struct, frozen=True):
    """Abort the running turn and clear what waits behind it."""


class StatusCommand(msgspec.Struct, frozen=True):
    """Answer with the state of the session."""


class SetOptionCommand(msgspec.Struct, frozen=True):
    """Change one setting of the session, a field of ``SessionData``; None = as the settings or the agent say.

    A model, used from the next turn on, may not exist.
    """

    name: Literal["model", "thinking", "queue_mode", "verbose", "reasoning"]
    value: str | bool | None


class CompactCommand(msgspec.Struct, frozen=True):
    """Summarise the conversation so far; ``instructions`` say what the summary is for."""

    instructions: str | None


class QueueOnceCommand(msgspec.Struct, frozen=True):
    """No command to answer but a message for the agent: ``text``, with a queue mode of its own."""

    mode: QueueMode
    text: str


class CommandReply(msgspec.Struct, frozen=True):
    """Answer with this text: help, or what is wrong with the command."""

    text: str


ParsedCommand = (
    NewConversationCommand
    | StopCommand
    | StatusCommand
    | SetOptionCommand
    | CompactCommand
    | QueueOnceCommand
    | CommandReply
)

_COMMAND = re.compile(r"/([A-Za-z]{1,16})(?:@\w{1,64})?(?:\s|$)")
_MAX_NAME_CHARS = 200
_DEFAULT = "default"
_MODES: Mapping[str, QueueMode] = {mode.value: mode for mode in QueueMode}


class CommandSpec(NamedTuple):
    """One command: how it is written, what it does in one line, and what its arguments mean (None: they are wrong)."""

    usage: str
    help: str
    parse: Callable[[str], ParsedCommand | None]


def parse_command(text: str) -> ParsedCommand | None:
    """What a message asks of the gateway; None = nothing, it is for the agent."""
    text = text.strip()
    match = _COMMAND.match(text)
    command = COMMANDS.get(match[1].lower()) if match else None
    if match is None or command is None:
        return None
    return command.parse(text[match.end() :].strip()) or CommandReply(f"Usage: {command.usage}\n{command.help}")


def help_text() -> str:
    """One line for each command."""
    return "\n".join(f"{command.usage} - {command.help}" for command in COMMANDS.values())


def _new_conversation(command: Literal["new", "reset"]) -> Callable[[str], ParsedCommand | None]:
    forms = {"": NewConversationCommand(command), "force": NewConversationCommand(command, force=True)}
    return lambda rest: forms.get(rest.lower())


def _model(rest: str) -> ParsedCommand | None:
    return _named_option("model", rest)


def _thinking(rest: str) -> ParsedCommand | None:
    return _named_option("thinking", rest.lower() if rest.lower() in THINKING_LEVELS else rest)


def _named_option(option: Literal["model", "thinking"], name: str) -> ParsedCommand | None:
    if not name or len(name) > _MAX_NAME_CHARS or name.split() != [name] or not name.isprintable():
        return None
    return SetOptionCommand(option, None if name.lower() == _DEFAULT else name)


def _queue(rest: str) -> ParsedCommand | None:
    word, text = (*rest.split(maxsplit=1), "", "")[:2]
    mode = _MODES.get(word.lower())
    if text:
        return QueueOnceCommand(mode, text) if mode else None
    return SetOptionCommand("queue_mode", mode) if mode or word.lower() == _DEFAULT else None


def _switch(name: Literal["verbose", "reasoning"]) -> Callable[[str], ParsedCommand | None]:
    forms = {"on": SetOptionCommand(name, value=True), "off": SetOptionCommand(name, value=False)}
    return lambda rest: forms.get(rest.lower())


def _help(rest: str) -> ParsedCommand | None:
    if not rest:
        return CommandReply(help_text())
    command = COMMANDS.get(rest.removeprefix("/").lower())
    return CommandReply(f"{command.usage} - {command.help}") if command else None


COMMANDS: Mapping[str, CommandSpec] = {
    "new": CommandSpec(
        "/new [force]",
        "begin a new conversation; the old one is kept; with force also where commands run in the background",
        _new_conversation("new"),
    ),
    "reset": CommandSpec("/reset [force]", "the same as /new", _new_conversation("reset")),
    # whatever else is said with it: who wants something stopped does not want to hear how to write it
    "stop": CommandSpec("/stop", "end the running turn and drop what waits behind it", lambda _rest: StopCommand()),
    "status": CommandSpec("/status", "what the session is doing", lambda rest: None if rest else StatusCommand()),
    "model": CommandSpec("/model NAME|default", "use another model in this session", _model),
    "think": CommandSpec(
        f"/think {'|'.join(THINKING_LEVELS)}|default",
        "how hard the model thinks in this session; an ACP agent has levels of its own",
        _thinking,
    ),
    "compact": CommandSpec(
        "/compact [INSTRUCTIONS]",
        "summarise the conversation so far, to make room",
        lambda rest: CompactCommand(rest or None),
    ),
    "queue": CommandSpec(
        f"/queue {'|'.join(_MODES)}|default [TEXT]",
        "what becomes of messages while the session is busy; with a text, for that message only",
        _queue,
    ),
    "verbose": CommandSpec("/verbose on|off", "show what the tools do", _switch("verbose")),
    "reasoning": CommandSpec("/reasoning on|off", "show what the model thinks", _switch("reasoning")),
    "help": CommandSpec("/help [COMMAND]", "this list, or one line of it", _help),
}
"""Every command by its name, in the order of the help."""
