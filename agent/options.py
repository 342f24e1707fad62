"""The command line of ``agent``, read by hand: argparse alone would cost a tenth of the start-up budget."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import msgspec

__all__ = ["THINKING_LEVELS", "Options", "Thinking", "UsageError", "help_text", "parse_options"]

Thinking = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
THINKING_LEVELS: tuple[Thinking, ...] = get_args(Thinking)


class UsageError(Exception):
    """The command line is wrong; the message is one line for stderr, the exit code 2."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for. ``tools`` None means all tools."""

    mode: Literal["rpc", "text"] = "text"
    prompt: str | None = None
    provider: str | None = None
    model: str | None = None
    thinking: Thinking = "off"
    tools: list[str] | None = None
    no_tools: bool = False
    no_builtin_tools: bool = False
    system_prompt: str | None = None
    append_system_prompt: list[str] = []
    extension: list[str] = []
    no_extensions: bool = False
    skill: list[str] = []
    no_skills: bool = False
    prompt_template: list[str] = []
    no_prompt_templates: bool = False
    no_context_files: bool = False
    session_dir: str | None = None
    session: str | None = None
    resume_latest: bool = False
    no_session: bool = False
    offline: bool = False
    help: bool = False
    version: bool = False


class _Flag(msgspec.Struct, frozen=True):
    field: str
    kind: Literal["switch", "value", "list", "names"]
    metavar: str
    help: str


_FLAGS = {
    "--mode": _Flag("mode", "value", "rpc|text", "rpc: JSON Lines on stdin and stdout; text: with -p"),
    "-p": _Flag("prompt", "value", "TEXT", "run one prompt, stream its answer to stdout, exit (also --print)"),
    "--provider": _Flag("provider", "value", "NAME", "model provider (default scripted)"),
    "--model": _Flag("model", "value", "NAME", "model, or PROVIDER/MODEL"),
    "--thinking": _Flag("thinking", "value", "LEVEL", "|".join(THINKING_LEVELS)),
    "--tools": _Flag("tools", "names", "A,B", "allow only these tools"),
    "--no-tools": _Flag("no_tools", "switch", "", "no tools at all"),
    "--no-builtin-tools": _Flag("no_builtin_tools", "switch", "", "no tools but those of extensions"),
    "--system-prompt": _Flag("system_prompt", "value", "TEXT|FILE", "replace the base system prompt"),
    "--append-system-prompt": _Flag("append_system_prompt", "list", "TEXT|FILE", "add to the system prompt"),
    "--extension": _Flag("extension", "list", "PATH", "refused: this agent has no extensions yet"),
    "--no-extensions": _Flag("no_extensions", "switch", "", "take none, also not those named by --extension"),
    "--skill": _Flag("skill", "list", "DIR", "a directory with a SKILL.md, named in the system prompt"),
    "--no-skills": _Flag("no_skills", "switch", "", "take no skills"),
    "--prompt-template": _Flag("prompt_template", "list", "FILE", "a Markdown file that /NAME in a prompt stands for"),
    "--no-prompt-templates": _Flag("no_prompt_templates", "switch", "", "take no prompt templates"),
    "--no-context-files": _Flag("no_context_files", "switch", "", "do not read AGENTS.md"),
    "--session-dir": _Flag(
        "session_dir", "value", "DIR", "where transcripts lie (default ~/.local/state/agent/sessions)"
    ),
    "--session": _Flag("session", "value", "FILE|ID", "go on with this conversation"),
    "--continue": _Flag("resume_latest", "switch", "", "go on with the latest conversation of this directory"),
    "--no-session": _Flag("no_session", "switch", "", "keep no transcript"),
    "--offline": _Flag("offline", "switch", "", "use no network; no model of this agent needs one"),
    "--help": _Flag("help", "switch", "", "show this text"),
    "--version": _Flag("version", "switch", "", "show the version"),
}
_ALIASES = {"--print": "-p", "-h": "--help"}


def parse_options(arguments: Sequence[str]) -> Options:
    """Read the arguments after the program's name; raises UsageError with one line."""
    values: dict[str, Any] = {}
    rest = list(reversed(arguments))
    while rest:
        name, equals, inline = rest.pop().partition("=")
        flag = _FLAGS.get(_ALIASES.get(name, name))
        if flag is None:
            kind = "option" if name.startswith("-") else "argument"
            raise UsageError(f"unknown {kind} {name!r}; see agent --help")
        if flag.kind == "switch":
            if equals:
                raise UsageError(f"{name} takes no value")
            values[flag.field] = True
            continue
        if not equals and not rest:
            raise UsageError(f"{name} needs a value ({flag.metavar})")
        _take_value(values, flag, inline if equals else rest.pop())
    return _checked(values)


def _take_value(values: dict[str, Any], flag: _Flag, value: str) -> None:
    if flag.kind == "list":
        values.setdefault(flag.field, []).append(value)
    elif flag.kind == "names":
        values[flag.field] = [name.strip() for name in value.split(",") if name.strip()]
    else:
        values[flag.field] = value


def _checked(values: dict[str, Any]) -> Options:
    try:
        options = msgspec.convert(values, Options)
    except msgspec.ValidationError as exc:
        raise UsageError(f"{exc}; see agent --help") from exc
    if options.help or options.version:
        return options
    if options.mode == "text" and options.prompt is None:
        raise UsageError("give --mode rpc, or -p TEXT; see agent --help")
    if options.mode == "rpc" and options.prompt is not None:
        raise UsageError("-p TEXT and --mode rpc exclude each other")
    if sum((options.session is not None, options.resume_latest, options.no_session)) > 1:
        raise UsageError("--session, --continue and --no-session exclude each other")
    return options


def help_text(models: str) -> str:
    """The text of ``--help``; ``models`` describes what models there are."""
    rows = [(f"{name} {flag.metavar}".strip(), flag.help) for name, flag in _FLAGS.items()]
    flags = "\n".join(f"  {left:<34} {right}" for left, right in rows)
    return (
        f"usage: agent --mode rpc [options]\n       agent -p TEXT [options]\n\noptions:\n{flags}\n\n{models.strip()}\n"
    )
