"""From settings to a capability profile: which agent, in which role, where."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import chain

import msgspec

from errors import UsageError
from profiles.command_line import check_agent_settings, native_args
from profiles.profile import (
    CapabilityProfile,
    Resources,
    SoftArgs,
    expand_home,
    make_profile,
    resolve_cwd,
    resolve_resource,
)
from profiles.settings import AgentSettings, ProfilesSettings, RoleSettings, SkillSettings

_SETTING_OF_FLAG = {
    "--provider": "provider",
    "--model": "model",
    "--models": "model",
    "--thinking": "thinking",
    "--tools": "tools",
    "-t": "tools",
    "--no-tools": "tools",
    "-nt": "tools",
    "--system-prompt": "system_prompt",
    "--append-system-prompt": "append_system_prompt",
    "--extension": "extensions",
    "-e": "extensions",
    "--no-extensions": "no_extensions",
    "-ne": "no_extensions",
    "--skill": "skills",
    "--no-skills": "no_skills",
    "-ns": "no_skills",
    "--prompt-template": "prompt_templates",
    "--no-prompt-templates": "no_prompt_templates",
    "-np": "no_prompt_templates",
    "--no-context-files": "no_context_files",
    "-nc": "no_context_files",
    "--api-key": "env",
    "--deny-tools": "deny_tools",
    "--permission-mode": "permission_mode",
    "--require-approval": "require_approval",
    "--allow-outside": "allow_outside",
    "--no-background": "allow_background",
    "--tool-env": "tool_env",
    "--hooks": "hooks",
    "--base-url": "base_url",
    "--context-tokens": "context_tokens",
    "--max-steps": "max_steps",
    "--history-turns": "history_turns",
}
_RESERVED_FLAGS = frozenset(
    {"--mode", "--session-dir", "--session", "--continue", "-c", "--resume", "-r", "--print", "-p"}
)


def build_profile(
    settings: ProfilesSettings,
    agent: str,
    role: str,
    cwd: str,
    session_key: str | None = None,
    *,
    gateway_prompt: str | None = None,
    left_out: Sequence[str] | None = (),
) -> CapabilityProfile:
    """The signed profile of ``agent`` in ``role``, working in ``cwd``.

    ``session_key`` names the session that asks; it is no part of the profile (sessions share workers) and appears in
    the details of errors. ``gateway_prompt`` is the text of the gateway's own features, appended to the user's.
    ``left_out``: context files that the agent does not read; None: it reads none.

    Raises UsageError for an unknown agent or role (with a suggestion) and for settings that no worker could have.
    """
    try:
        return _build(settings, agent, role, cwd, gateway_prompt=gateway_prompt, left_out=left_out)
    except UsageError as error:
        error.details.setdefault("agent", agent)
        if session_key is not None:
            error.details.setdefault("session", session_key)
        raise


def workspace_of(settings: ProfilesSettings, agent: str, role: str) -> str | None:
    """The working directory that role or agent ask for, as written; None where neither names one."""
    return _role(settings, role).workspace or _agent(settings, agent).workspace


def _build(
    settings: ProfilesSettings,
    agent: str,
    role: str,
    cwd: str,
    *,
    gateway_prompt: str | None,
    left_out: Sequence[str] | None,
) -> CapabilityProfile:
    definition, role_settings = _agent(settings, agent), _role(settings, role)
    if left_out is None or (left_out and not definition.traits.bundled_flags):
        definition, left_out = msgspec.structs.replace(definition, no_context_files=True), ()
    check_agent_settings(definition)
    directory = resolve_cwd(cwd)
    texts = (definition.append_system_prompt, role_settings.append_system_prompt, gateway_prompt)
    appended = "\n\n".join(text for text in texts if text)
    if definition.traits.takes_arguments:
        without = (part for name in left_out for part in ("--without-context", resolve_resource(name, directory)))
        arguments, declared = [*_hard_args(definition, appended, directory), *without], {}
        resources = _resources(settings.skills, definition, role_settings, directory)
    else:
        _check_role(role, role_settings, definition)
        arguments, declared, resources = _extra_args(definition), _declared(definition, appended), Resources()
    declared |= {name: _json(value) for name, value in _places(definition).items() if value}
    return make_profile(
        agent=agent,
        role=role,
        dialect=definition.dialect,
        command=_command(definition),
        cwd=directory,
        hard_args=arguments,
        soft=_soft(definition),
        resources=resources,
        declared=declared,
        env=_env(definition, directory),
        secret_env=_secret_env(definition),
    )


def _check_role(name: str, role: RoleSettings, definition: AgentSettings) -> None:
    for setting in ("skills", "extensions", "prompt_templates"):
        if getattr(role, setting):
            raise UsageError(f"the role {name} has {setting}; a program of dialect {definition.dialect!r} takes none")


def _declared(definition: AgentSettings, appended: str) -> dict[str, str]:
    """What a program without arguments of the pool learns over its protocol or is done for it, each as JSON."""
    facts = {
        "auth_method": definition.auth_method,
        "mcp_servers": definition.mcp_servers or None,
        "permission_mode": definition.permissions,
        "preamble": appended or None,
        "resume": None if definition.resume == "auto" else definition.resume,
    }
    return {name: _json(value) for name, value in facts.items() if value is not None}


def _places(definition: AgentSettings) -> dict[str, object]:
    """Where its workers run, and what is done there."""
    return {"group": definition.group, "prepare": definition.prepare}


def _soft(definition: AgentSettings) -> SoftArgs:
    return SoftArgs(
        provider=definition.provider,
        model=definition.model,
        thinking=definition.thinking,
        mode=definition.mode,
        options=_json(definition.options) if definition.options else None,
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _agent(settings: ProfilesSettings, name: str) -> AgentSettings:
    if name not in settings.agents and name not in settings.agent_names():
        raise UsageError(_unknown("agent", name, settings.agent_names()))
    return settings.agents.get(name, AgentSettings())


def _role(settings: ProfilesSettings, name: str) -> RoleSettings:
    if name not in settings.roles and name not in settings.role_names():
        raise UsageError(_unknown("role", name, settings.role_names()))
    return settings.roles.get(name, RoleSettings())


def _unknown(kind: str, name: str, known: list[str]) -> str:
    close = get_close_matches(name[:200], known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known[:20])}"
    return f"unknown {kind} {name[:200]!r}; {hint}"


def _command(definition: AgentSettings) -> list[str]:
    if definition.command:
        program, *arguments = definition.command
        return [expand_home(program), *arguments]
    return [*definition.traits.default_command]


def _hard_args(definition: AgentSettings, appended: str, cwd: str) -> Iterator[str]:
    yield from _tools(definition)
    if definition.require_approval:
        _check_known_tools("require_approval", definition, definition.require_approval)
    yield from native_args(definition, cwd)
    if definition.system_prompt is not None:
        yield from ("--system-prompt", definition.traits.escape_prompt(definition.system_prompt))
    if appended:
        yield from ("--append-system-prompt", definition.traits.escape_prompt(appended))
    for flag, chosen in (
        ("--no-extensions", definition.no_extensions),
        ("--no-skills", definition.no_skills),
        ("--no-prompt-templates", definition.no_prompt_templates),
        ("--no-context-files", definition.no_context_files),
    ):
        if chosen:
            yield flag
    yield from _extra_args(definition)


def _tools(definition: AgentSettings) -> Iterator[str]:
    """The tools are a set: sorted, so that the order in the settings makes no second profile."""
    if definition.tools is None and not definition.deny_tools:
        return
    if definition.tools is None:
        _check_known_tools("deny_tools", definition, definition.deny_tools)
    allowed = definition.traits.known_tools if definition.tools is None else definition.tools
    if left := sorted(set(allowed) - set(definition.deny_tools)):
        yield from ("--tools", ",".join(left))
    else:
        yield "--no-tools"


def _check_known_tools(setting: str, definition: AgentSettings, names: Iterable[str]) -> None:
    """A misspelt name would leave the tool free to run; a program's own tools are known where ``tools`` names them."""
    known = sorted({*definition.traits.known_tools, *(definition.tools or ())})
    for name in names:
        if name not in known:
            raise UsageError(f"{setting}: {_unknown('tool', name, known)}", setting=setting)


def _extra_args(definition: AgentSettings) -> list[str]:
    for argument in definition.extra_args:
        flag = argument.partition("=")[0]
        if flag in _RESERVED_FLAGS:
            raise UsageError(f"extra_args: {flag} is the pool's own to give")
        if flag in _SETTING_OF_FLAG:
            raise UsageError(f"extra_args: use the setting {_SETTING_OF_FLAG[flag]!r} instead of {flag}")
    return definition.extra_args


def _resources(skills: SkillSettings, definition: AgentSettings, role: RoleSettings, cwd: str) -> Resources:
    named_skills = [*role.skills, *definition.skills, *skills.gateway, *skills.base] or skills.flat
    return Resources(
        skills=_resolved(named_skills, cwd),
        extensions=_resolved(chain(role.extensions, definition.extensions), cwd),
        prompt_templates=_resolved(chain(role.prompt_templates, definition.prompt_templates), cwd),
    )


def _resolved(names: Iterable[str], cwd: str) -> tuple[str, ...]:
    return tuple(resolve_resource(name, cwd) for name in names)


def _secret_env(definition: AgentSettings) -> list[str]:
    for name in definition.secret_env:
        if name not in definition.env:
            raise UsageError(f"secret_env: there is no {name[:200]!r} in env", setting="secret_env")
    return definition.secret_env


def _env(definition: AgentSettings, cwd: str) -> dict[str, str]:
    env = dict(definition.env)
    for setting, name in (("agent_dir", "PI_CODING_AGENT_DIR"), ("package_dir", "PI_PACKAGE_DIR")):
        path: str | None = getattr(definition, setting)
        if path is None:
            continue
        if name in env:
            raise UsageError(f"{name} is set twice: by {setting} and in env; keep one of them")
        env[name] = resolve_resource(path, cwd)
    if "POOL_WORKER_ID" in env:
        raise UsageError("env: POOL_WORKER_ID is the pool's own to set")
    return env
