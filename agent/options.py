"""The command line of ``agent``, read by hand: argparse alone would cost a tenth of the start-up budget."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from agent.flags import ALIASES, FLAGS, Flag

Thinking = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class OptionError(Exception):
    """The command line is wrong; the message is one line for stderr, the exit code 2."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for. ``tools`` None means all tools; ``timeout`` in seconds."""

    mode: Literal["rpc", "text"] = "text"
    prompt: str | None = None
    provider: str | None = None
    model: str | None = None
    base_url: str | None = None
    context_tokens: Annotated[int, msgspec.Meta(ge=1_000)] = 200_000
    thinking: Thinking = "off"
    tools: list[str] | None = None
    no_tools: bool = False
    no_builtin_tools: bool = False
    deny_tools: list[str] = []
    require_approval: list[str] = []
    permission_mode: Literal["auto", "approval", "readonly"] = "auto"
    allow_outside: bool = False
    no_background: bool = False
    tool_env: list[str] = []
    hooks: list[str] = []
    no_hooks: bool = False
    system_prompt: str | None = None
    append_system_prompt: list[str] = []
    extension: list[str] = []
    no_extensions: bool = False
    skill: list[str] = []
    no_skills: bool = False
    prompt_template: list[str] = []
    no_prompt_templates: bool = False
    no_context_files: bool = False
    without_context: list[str] = []
    session_dir: str | None = None
    session: str | None = None
    resume_latest: bool = False
    no_session: bool = False
    history_turns: _Count | None = None
    max_steps: _Count | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    offline: bool = False
    help: bool = False
    version: bool = False


def parse_options(arguments: Sequence[str]) -> Options:
    """Read the arguments after the program's name; raises OptionError with one line."""
    for argument in arguments:
        try:
            argument.encode()  # what could not be stored or shown later
        except UnicodeEncodeError as exc:
            raise OptionError(f"the argument {argument[:100]!r} is not UTF-8 text") from exc
    values: dict[str, Any] = {}
    rest = list(reversed(arguments))
    while rest:
        name, equals, inline = rest.pop().partition("=")
        flag = FLAGS.get(ALIASES.get(name, name))
        if flag is None:
            kind = "option" if name.startswith("-") else "argument"
            raise OptionError(f"unknown {kind} {name!r}; see agent --help")
        if flag.kind == "switch":
            if equals:
                raise OptionError(f"{name} takes no value")
            values[flag.field] = True
            continue
        if not equals and not rest:
            raise OptionError(f"{name} needs a value ({flag.metavar})")
        _add_value(values, flag, inline if equals else rest.pop())
    return _convert(values)


def _add_value(values: dict[str, Any], flag: Flag, value: str) -> None:
    if flag.kind == "list":
        values.setdefault(flag.field, []).append(value)
    elif flag.kind == "names":
        values.setdefault(flag.field, []).extend(name.strip() for name in value.split(",") if name.strip())
    else:
        values[flag.field] = value


def _convert(values: dict[str, Any]) -> Options:
    try:
        options = msgspec.convert(values, Options, strict=False)
    except msgspec.ValidationError as exc:
        raise OptionError(_invalid_value(values)) from exc
    if options.help or options.version:
        return options
    if options.mode == "text" and options.prompt is None:
        raise OptionError("give --mode rpc, or -p TEXT; see agent --help")
    if options.mode == "rpc" and options.prompt is not None:
        raise OptionError("-p TEXT and --mode rpc exclude each other")
    if sum((options.session is not None, options.resume_latest, options.no_session)) > 1:
        raise OptionError("--session, --continue and --no-session exclude each other")
    return options


def _invalid_value(values: dict[str, Any]) -> str:
    """Which flag's value does not fit, and what would; asked for only when one does not."""
    types = {field.name: field.type for field in msgspec.structs.fields(Options)}
    for name, flag in FLAGS.items():
        value = values.get(flag.field)
        try:
            msgspec.convert(value, types[flag.field] | None, strict=False)
        except msgspec.ValidationError:
            return f"{name} {value!r} does not fit; it takes {_expected_value(types[flag.field])}; see agent --help"
    raise AssertionError(values)  # pragma: no cover - the whole is refused because of one of its parts


def _expected_value(kind: Any) -> str:
    schema: dict[str, Any] = msgspec.json.schema(kind)
    schema = schema.get("anyOf", [schema])[0]
    if "enum" in schema:
        return "one of: " + ", ".join(schema["enum"])
    if schema["type"] == "integer":
        return f"a whole number from {schema['minimum']} on"
    return f"a number above {schema['exclusiveMinimum']:g}"
