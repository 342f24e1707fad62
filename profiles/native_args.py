"""What only programs of the dialect ``native`` can be told: what their tools may do, which model server they ask."""

from collections.abc import Iterator

from errors import UsageError
from profiles.paths import resolve_resource
from profiles.settings import AgentSettings

__all__ = ["check_native_settings", "native_args"]

_NATIVE_ONLY = (
    *("permission_mode", "require_approval", "allow_outside", "allow_background", "tool_env", "hooks"),
    *("base_url", "context_tokens", "max_steps", "history_turns"),
)
_DEFAULTS = AgentSettings()


def check_native_settings(definition: AgentSettings) -> None:
    """Raise UsageError where a program that speaks pi is asked for what it has no means to do, or to tell a secret.

    Passing it over in silence would be worse than an error: whoever writes ``permission_mode`` relies on it.
    """
    if definition.dialect == "native":
        if definition.base_url is not None:
            _check_base_url(definition.base_url)
        return
    for name in _NATIVE_ONLY:
        if getattr(definition, name) != getattr(_DEFAULTS, name):
            raise UsageError(
                f"{name}: a program of dialect {definition.dialect!r} has no such thing; remove the setting, or give "
                'the agent dialect = "native"',
                setting=name,
            )


def _check_base_url(url: str) -> None:
    """It becomes an argument, and arguments are there for everybody on the machine to see."""
    if "@" in url.partition("://")[2].partition("/")[0]:
        text = "base_url: a name or password in it would be seen by everybody here; put the key into env"
        raise UsageError(text, setting="base_url")
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"base_url: must begin with http://HOST or https://HOST, not {url!r}", setting="base_url")


def native_args(definition: AgentSettings, cwd: str) -> Iterator[str]:
    """The flags; a default has none. Names are a set: sorted, so that their order makes no second profile."""
    if definition.permission_mode != "auto":
        yield from ("--permission-mode", definition.permission_mode)
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
