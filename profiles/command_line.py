"""Command lines of workers: made from a profile, read from a front end, checked against the dialect."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from errors import UsageError
from profiles.dialects import DIALECTS, DialectTraits
from profiles.profile import CapabilityProfile, resolve_resource
from profiles.settings import AgentSettings
from wire.mcp_servers import McpServer, NamedValue


def worker_argv(profile: CapabilityProfile, session_dir: str | None) -> tuple[str, ...]:
    """Command, hard arguments, soft arguments, resources, and ``--session-dir`` where workers keep transcripts.

    ``session_dir`` is one directory for all workers of a pool, never a session's own: any worker may be asked to go
    on with any conversation. That is why it is no part of the profile; one that names its own keeps it. A program that
    takes no flags of the pool gets its own only.
    """
    if not DIALECTS[profile.dialect].takes_arguments:
        return (*profile.command, *profile.hard_args)
    own_dir = None if "--session-dir" in profile.hard_args else session_dir
    session_args = () if own_dir is None else ("--session-dir", own_dir)
    return (*profile.command, *profile.hard_args, *_soft(profile), *_resources(profile), *session_args)


_PROMPT_FLAGS = ("--system-prompt", "--append-system-prompt")


def prompt_arguments(profile: CapabilityProfile) -> list[tuple[int, str]]:
    """Where texts of system prompts stand in ``worker_argv``, and these texts: all users can read arguments.

    Of the dialect's own program only: whether another one, or one on another machine, can read a file is not known.
    """
    traits = DIALECTS[profile.dialect]
    size, own = len(traits.default_command), traits.default_command
    program, *options = profile.command[:size] or ("",)
    if not own or (Path(program).name, *options) != (Path(own[0]).name, *own[1:]):
        return []
    found = list[tuple[int, str]]()
    words = enumerate(profile.hard_args, start=len(profile.command))
    for _, word in words:
        if word in _PROMPT_FLAGS:
            at, value = next(words, (0, ""))
            text = traits.prompt_text(value)
            if text:
                found.append((at, text))
    return found


def _soft(profile: CapabilityProfile) -> Iterator[str]:
    soft = profile.soft
    for flag, value in (("--provider", soft.provider), ("--model", soft.model), ("--thinking", soft.thinking)):
        if value is not None:
            yield from (flag, value)


def _resources(profile: CapabilityProfile) -> Iterator[str]:
    resources = profile.resources
    for flag, names in (
        ("--skill", resources.skills),
        ("--extension", resources.extensions),
        ("--prompt-template", resources.prompt_templates),
    ):
        for name in names:
            yield from (flag, name)


def allows_tool(profile: CapabilityProfile, tool: str) -> bool:
    """Whether a worker of this profile has the tool: what ``--tools`` lists, or every known one without it.

    Where arguments contradict each other, or a prompt reads like a flag, the answer is the narrower one.
    """
    arguments = profile.hard_args
    if "--no-tools" in arguments:
        return False
    allow_lists = [value.split(",") for flag, value in pairwise(arguments) if flag == "--tools"]
    if allow_lists:
        return all(tool in allowed for allowed in allow_lists)
    return "--no-builtin-tools" not in arguments


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
_SETTING_SWITCHES = {
    "--no-extensions": "no_extensions",
    "--no-skills": "no_skills",
    "--no-prompt-templates": "no_prompt_templates",
    "--no-context-files": "no_context_files",
}
_LIST_FLAGS = {"--extension": "extensions", "--skill": "skills", "--prompt-template": "prompt_templates"}
_MODEL_FLAGS = {"--provider": ("provider", "model"), "--model": ("provider", "model"), "--thinking": ("thinking",)}
"""Which settings of the definition such a flag overrules; the program itself reads it, patterns and all."""
_VALUE_FLAGS = frozenset({"--session-dir", "--api-key", "--models", *_MODEL_FLAGS})
_PASSED_SWITCHES = frozenset({"--no-builtin-tools", "--no-session", "--offline", "--verbose"})
_REJECTED_FLAGS = frozenset({"--resume", "-r", "--print", "-p", "--export", "--list-models", "--help", "-h"})
_FORK_ERROR = "--fork: the pool forks nothing at the start; attach with --session, then send the request fork or clone"


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
    keeps_profile: bool = True
    """Whether nothing in it says what the worker must be like."""


class _ArgumentReader:
    """The arguments that are not read yet."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._left = list(reversed(arguments))

    def __bool__(self) -> bool:
        return bool(self._left)

    def next_flag(self) -> tuple[str, str | None]:
        """The next flag by its long name, with what an ``=`` gives it."""
        text = self._left.pop()
        if not text.startswith("-"):
            raise UsageError(f"unexpected argument {text!r}; prompts are given on stdin")
        name, equals, value = text.partition("=")
        return _ALIASES.get(name, name), value if equals else None

    def required_value(self, name: str, given: str | None) -> str:
        """What the flag is given."""
        if given is None and not self._left:
            raise UsageError(f"{name} needs a value")
        return self._left.pop() if given is None else given

    def optional_value(self, given: str | None) -> list[str]:
        """What an unknown flag is given, as far as can be known."""
        if given is not None:
            return [given]
        return [self._left.pop()] if self._left and not self._left[-1].startswith("-") else []


def read_flags(definition: AgentSettings, arguments: Sequence[str]) -> AgentFlags:
    """Read a command line without the program's name and ``--mode rpc``. Raises UsageError.

    Unknown flags are the program's to understand or refuse.
    """
    asked, rest = AgentFlags(definition=definition), _ArgumentReader(arguments)
    while rest:
        name, given = rest.next_flag()
        if name in _REJECTED_FLAGS:
            raise UsageError(f"{name} is nothing for a program that speaks on its stdin; leave it out")
        if name == "--fork":
            raise UsageError(_FORK_ERROR)
        if name in _CONVERSATION_FLAGS:
            _CONVERSATION_FLAGS[name](
                asked, "" if name == "--continue" else _require_text(name, rest.required_value(name, given))
            )
            continue
        if name == "--no-session":
            asked.no_session = True
        asked.keeps_profile = False
        _apply_flag(asked, name, given, rest)
    return asked


def _require_text(name: str, value: str) -> str:
    if not value.strip():
        raise UsageError(f"{name} needs a value that is not blank")
    return value


def _apply_flag(asked: AgentFlags, name: str, given: str | None, rest: _ArgumentReader) -> None:
    special = _SPECIAL_FLAGS.get(name)
    if special is not None:
        special(asked, rest.required_value(name, given) if name in _SPECIAL_VALUE_FLAGS else "")
    elif name in _SETTING_SWITCHES:
        _replace_settings(asked, **{_SETTING_SWITCHES[name]: True})
    elif name in _LIST_FLAGS:
        field = _LIST_FLAGS[name]
        _replace_settings(asked, **{field: [*getattr(asked.definition, field), rest.required_value(name, given)]})
    elif name in _VALUE_FLAGS:
        _replace_settings(asked, **dict.fromkeys(_MODEL_FLAGS.get(name, ())))
        asked.arguments += [name, rest.required_value(name, given)]
    elif name in _PASSED_SWITCHES:
        asked.arguments.append(name)
    else:
        asked.arguments += [name, *rest.optional_value(given)]


def _replace_settings(asked: AgentFlags, **fields: Any) -> None:
    asked.definition = msgspec.structs.replace(asked.definition, **fields)


def _append_prompt(asked: AgentFlags, text: str) -> None:
    before = asked.definition.append_system_prompt
    _replace_settings(asked, append_system_prompt=text if before is None else f"{before}\n\n{text}")


_SPECIAL_FLAGS: dict[str, Callable[[AgentFlags, str], None]] = {
    "--tools": lambda asked, value: _replace_settings(
        asked, tools=[name.strip() for name in value.split(",") if name.strip()]
    ),
    "--no-tools": lambda asked, _value: _replace_settings(asked, tools=[]),
    "--system-prompt": lambda asked, value: _replace_settings(asked, system_prompt=value),
    "--append-system-prompt": _append_prompt,
}
_CONVERSATION_FLAGS: dict[str, Callable[[AgentFlags, str], None]] = {
    "--continue": lambda asked, _value: setattr(asked, "resume_latest", True),
    "--session-id": lambda asked, value: setattr(asked, "session_id", value),
    "--name": lambda asked, value: setattr(asked, "name", value),
}
"""They say which conversation it is, and nothing of what the worker must be like."""
_SPECIAL_VALUE_FLAGS = frozenset({"--tools", "--system-prompt", "--append-system-prompt"})


_DEFAULTS = AgentSettings()
_NAMES_OF_THE_PROGRAM = ("auth_method", "mode", "model", "provider", "thinking")


def check_agent_settings(definition: AgentSettings) -> None:
    """Raise UsageError where a program is asked for what it has no means to do, or to show a secret.

    Ignoring it would be worse than an error: an author of ``permission_mode`` relies on it.
    """
    traits = definition.traits
    for name in sorted(traits.refused_settings):
        if getattr(definition, name) != getattr(_DEFAULTS, name):
            others = [f'"{other}"' for other, its in DIALECTS.items() if name not in its.refused_settings]
            raise UsageError(
                f"{name}: a program of dialect {definition.dialect!r} has no such thing; remove the setting, or give "
                f"the agent dialect = {' or '.join(others)}",
                setting=name,
            )
    if not definition.command and not traits.default_command:
        raise UsageError(
            f"command: an agent of dialect {definition.dialect!r} needs its program, as in command = "
            '["opencode", "acp"]',
            setting="command",
        )
    if definition.base_url is not None:
        _check_base_url(definition.base_url)
    for name in _NAMES_OF_THE_PROGRAM:
        if (value := getattr(definition, name)) is not None and not value.strip():
            raise UsageError(f"{name}: is empty; leave it out for what the program does by itself", setting=name)
    if definition.thinking is not None:
        _check_thinking(traits, definition.thinking)
    names = [_check_mcp_server(server) for server in definition.mcp_servers]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"mcp_servers: there are several with the name {twice[0][:80]!r}", setting="mcp_servers")


def _check_thinking(traits: DialectTraits, level: str) -> None:
    try:
        traits.check_thinking(level)
    except UsageError as exc:
        raise UsageError(exc.message, setting="thinking") from exc


def _check_mcp_server(server: Mapping[str, Any]) -> str:
    """Its name. Only what is declared as ACP says is known to be secret or not, and programs refuse the rest."""
    name = server.get("name")
    if not isinstance(name, str) or not name:
        raise UsageError("mcp_servers: each needs a name", setting="mcp_servers")
    for member in ("env", "headers"):
        try:
            msgspec.convert(server.get(member, []), list[NamedValue])
        except msgspec.ValidationError:
            raise UsageError(
                f'mcp_servers: {member} of {name[:80]!r} must be a list, as in {member} = [{{name = "KEY", value = '
                '"text"}]',
                setting="mcp_servers",
            ) from None
    try:
        msgspec.convert(server, McpServer)
    except msgspec.ValidationError as exc:
        what = str(exc).replace("`", "")
        raise UsageError(
            f"mcp_servers: {name[:80]!r} is not as ACP declares one: {what}", setting="mcp_servers"
        ) from None
    return name


def _check_base_url(url: str) -> None:
    """It becomes an argument, and every user of the machine can see arguments."""
    if "@" in url.partition("://")[2].partition("/")[0]:
        text = "base_url: a name or password in it would be visible to every user of this machine; put the key into env"
        raise UsageError(text, setting="base_url")
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"base_url: must begin with http://HOST or https://HOST, not {url!r}", setting="base_url")


def native_args(definition: AgentSettings, cwd: str) -> Iterator[str]:
    """The flags; a default has none. Names are a set: sorted, so that their order makes no second profile."""
    if definition.permissions != "auto":
        yield from ("--permission-mode", definition.permissions)
    for flag, names in (("--require-approval", definition.require_approval), ("--tool-env", definition.tool_env)):
        if names:
            yield from (flag, ",".join(sorted(set(names))))
    if definition.allow_outside:
        yield "--allow-outside"
    if not definition.allow_background:
        yield "--no-background"
    for path in definition.hooks:
        yield from ("--hooks", resolve_resource(path, cwd))
    for flag, value in (
        ("--base-url", definition.base_url),
        ("--context-tokens", definition.context_tokens),
        ("--max-steps", definition.max_steps),
    ):
        if value is not None:
            yield from (flag, str(value))
