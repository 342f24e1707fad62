"""A program's own command line, as a front end starts it: what of it changes the agent's definition, what stays."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from errors import UsageError
from profiles.profile import CapabilityProfile, make_profile
from profiles.settings import AgentSettings

__all__ = ["AgentFlags", "read_flags", "with_arguments"]

_ALIASES = {
    "-t": "--tools",
    "-nt": "--no-tools",
    "-nbt": "--no-builtin-tools",
    "-e": "--extension",
    "-ne": "--no-extensions",
    "-ns": "--no-skills",
    "-np": "--no-prompt-templates",
    "-nc": "--no-context-files",
    "-c": "--continue",
    "-n": "--name",
}
_SWITCHES = {
    "--no-extensions": "no_extensions",
    "--no-skills": "no_skills",
    "--no-prompt-templates": "no_prompt_templates",
    "--no-context-files": "no_context_files",
}
_LISTS = {"--extension": "extensions", "--skill": "skills", "--prompt-template": "prompt_templates"}
_MODEL = {"--provider": ("provider", "model"), "--model": ("provider", "model"), "--thinking": ("thinking",)}
"""Which settings of the definition such a flag overrules; the program itself reads it, patterns and all."""
_VALUED = frozenset({"--session-dir", "--api-key", "--models", *_MODEL})
_BARE = frozenset({"--no-builtin-tools", "--no-session", "--offline", "--verbose"})
_REFUSED = frozenset({"--resume", "-r", "--print", "-p", "--export", "--list-models", "--help", "-h"})
_NO_FORK = "--fork: the pool forks nothing at the start; attach with --session, then send the request fork or clone"


class AgentFlags(msgspec.Struct, kw_only=True):
    """What a command line asks for.

    ``definition``: the agent's, changed by it. ``arguments``: what the program is given besides, in its own words.
    """

    definition: AgentSettings
    arguments: list[str] = []
    resume_latest: bool = False
    no_session: bool = False
    session_id: str | None = None
    """The conversation of exactly this id."""
    name: str | None = None
    """What the conversation is to be called."""
    is_plain: bool = True
    """Whether nothing in it says what the worker must be like."""


class _Rest:
    """The arguments that are not read yet."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._left = list(reversed(arguments))

    def __bool__(self) -> bool:
        return bool(self._left)

    def flag(self) -> tuple[str, str | None]:
        """The next flag by its long name, with what an ``=`` gives it."""
        text = self._left.pop()
        if not text.startswith("-"):
            raise UsageError(f"unexpected argument {text!r}; prompts are given on stdin")
        name, equals, value = text.partition("=")
        return _ALIASES.get(name, name), value if equals else None

    def value(self, name: str, given: str | None) -> str:
        """What the flag is given."""
        if given is None and not self._left:
            raise UsageError(f"{name} needs a value")
        return self._left.pop() if given is None else given

    def value_if_any(self, given: str | None) -> list[str]:
        """What an unknown flag is given, as far as can be told."""
        if given is not None:
            return [given]
        return [self._left.pop()] if self._left and not self._left[-1].startswith("-") else []


def read_flags(definition: AgentSettings, arguments: Sequence[str]) -> AgentFlags:
    """Read a command line without the program's name and ``--mode rpc``. Raises UsageError.

    Flags that nobody knows are the program's to understand or refuse.
    """
    asked, rest = AgentFlags(definition=definition), _Rest(arguments)
    while rest:
        name, given = rest.flag()
        if name in _REFUSED:
            raise UsageError(f"{name} is nothing for a program that speaks on its stdin; leave it out")
        if name == "--fork":
            raise UsageError(_NO_FORK)
        if name in _OF_CONVERSATION:
            _OF_CONVERSATION[name](asked, "" if name == "--continue" else _some(name, rest.value(name, given)))
            continue
        if name == "--no-session":
            asked.no_session = True
        asked.is_plain = False
        _take(asked, name, given, rest)
    return asked


def _some(name: str, value: str) -> str:
    if not value.strip():
        raise UsageError(f"{name} needs a value that is not blank")
    return value


def _take(asked: AgentFlags, name: str, given: str | None, rest: _Rest) -> None:
    special = _SPECIAL.get(name)
    if special is not None:
        special(asked, rest.value(name, given) if name in _SPECIAL_VALUED else "")
    elif name in _SWITCHES:
        _change(asked, **{_SWITCHES[name]: True})
    elif name in _LISTS:
        field = _LISTS[name]
        _change(asked, **{field: [*getattr(asked.definition, field), rest.value(name, given)]})
    elif name in _VALUED:
        _change(asked, **dict.fromkeys(_MODEL.get(name, ())))
        asked.arguments += [name, rest.value(name, given)]
    elif name in _BARE:
        asked.arguments.append(name)
    else:
        asked.arguments += [name, *rest.value_if_any(given)]


def _change(asked: AgentFlags, **fields: Any) -> None:
    asked.definition = msgspec.structs.replace(asked.definition, **fields)


def _append(asked: AgentFlags, text: str) -> None:
    before = asked.definition.append_system_prompt
    _change(asked, append_system_prompt=text if before is None else f"{before}\n\n{text}")


_SPECIAL: dict[str, Callable[[AgentFlags, str], None]] = {
    "--tools": lambda asked, value: _change(asked, tools=[name.strip() for name in value.split(",") if name.strip()]),
    "--no-tools": lambda asked, _value: _change(asked, tools=[]),
    "--system-prompt": lambda asked, value: _change(asked, system_prompt=value),
    "--append-system-prompt": _append,
}
_OF_CONVERSATION: dict[str, Callable[[AgentFlags, str], None]] = {
    "--continue": lambda asked, _value: setattr(asked, "resume_latest", True),
    "--session-id": lambda asked, value: setattr(asked, "session_id", value),
    "--name": lambda asked, value: setattr(asked, "name", value),
}
"""They say which conversation it is, and nothing of what the worker must be like."""
_SPECIAL_VALUED = frozenset({"--tools", "--system-prompt", "--append-system-prompt"})


def with_arguments(profile: CapabilityProfile, arguments: Sequence[str]) -> CapabilityProfile:
    """The same worker with further arguments of its program, signed anew. Raises UsageError for a NUL."""
    return make_profile(
        command=profile.command,
        cwd=profile.cwd,
        agent=profile.agent,
        role=profile.role,
        dialect=profile.dialect,
        hard_args=(*profile.hard_args, *arguments),
        soft=profile.soft,
        resources=profile.resources,
        env=dict(profile.env),
    )
