"""What can be set about agents, roles and skills; the ``[agents]``, ``[roles]`` and ``[skills]`` tables of the file."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import msgspec

from profiles.dialects import DIALECTS, DialectName, DialectTraits, PermissionMode
from wire.units import Seconds

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Tokens = Annotated[int, msgspec.Meta(ge=1000)]

_AGENT_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]{0,63}")
_RESERVED_AGENT_NAMES = frozenset({"defaults", "gateway_prompts"})  # keys of the same table with a meaning of their own


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One agent definition, ``[agents.NAME]``. Paths may begin with ``~``; relative ones start at the worker's cwd."""

    command: list[str] = []
    """The program and its first arguments; empty = the dialect's own: the bundled agent, or ``pi --mode rpc``. Dialect
    ``acp`` has none of its own."""
    dialect: DialectName = "native"
    """What the program speaks on its stdin and stdout: ``native``, ``pi`` (``pi --mode rpc``) or ``acp`` (the Agent
    Client Protocol)."""
    tools: list[str] | None = None
    """The only tools the agent may use; unset = all known ones, empty = none."""
    deny_tools: list[str] = []
    """Tools it may not use even so."""
    permission_mode: PermissionMode | None = None
    """What becomes of its tool calls: ``auto`` runs them, ``approval`` asks a person about each of them (``pool
    approve``, ``pool deny``), ``readonly`` runs only tools that change nothing. Unset = ``auto``; of dialect ``acp``,
    where it answers what the program asks about: ``approval``. Of dialect ``native`` and ``acp``."""
    require_approval: list[str] = []
    """Tools of which every call waits for a person's approval, whatever the mode. Of dialect ``native``."""
    allow_outside: bool = False
    """Let its tools use files outside the working directory. Of dialect ``native``."""
    allow_background: bool = True
    """Let its commands go on in the background; else a call waits for the end of its command. Of dialect ``native``."""
    tool_env: list[str] = []
    """Variables that its tools' commands may see although they hold a model provider's key, as ``OPENAI_API_KEY``;
    other keys of that kind are kept from them. Of dialect ``native``."""
    hooks: list[str] = []
    """Python files with hooks of the agent, which see its tool calls and prompts; relative ones lie beside this file.
    They may not lie in a workspace where its tools may write. Of dialect ``native``."""
    system_prompt: str | None = None
    """Replaces the program's own system prompt. A text, or ``@path`` for a file beside this one, read when the settings
    are; a text that begins with @ is written with another @ before it. The same for ``append_system_prompt``."""
    append_system_prompt: str | None = None
    """Added to it; the role's text and the gateway's prompt follow."""
    no_extensions: bool = False
    """Load no extension but the ones named here and in the role."""
    no_skills: bool = False
    """The same for skills."""
    no_prompt_templates: bool = False
    """The same for prompt templates."""
    no_context_files: bool = False
    """Read no AGENTS.md and the like."""
    provider: str | None = None
    """Whose model it uses; unset = as the program decides."""
    model: str | None = None
    """Which model of the provider; unset = as the program decides."""
    base_url: str | None = None
    """Where the model's server is, for the provider ``openai``: ``https://host/v1``. Of dialect ``native``."""
    context_tokens: _Tokens | None = None
    """The model's window; a conversation that fills it is compacted. Unset = as the program decides (200000). Of
    dialect ``native``."""
    max_steps: _Count | None = None
    """Model calls in one run; unset = as the program decides (50). Of dialect ``native``."""
    history_turns: _Count | None = None
    """Show the model at most this many of the latest user messages; unset = all. Sent with each prompt, no part of the
    profile; see ``gateway.dm_history_limit``. Of dialect ``native``."""
    thinking: str | None = None
    """How long it may think: ``off``, ``minimal``, ``low``, ``medium``, ``high`` or ``xhigh``; of dialect ``acp``: what
    the program offers. Changed on a live worker where a session wants another; so are provider and model."""
    skills: list[str] = []
    """Skills of this agent: after the role's, before the gateway's and the base ones."""
    extensions: list[str] = []
    """Extensions of this agent, after the role's."""
    prompt_templates: list[str] = []
    """Prompt templates of this agent, after the role's."""
    env: dict[str, str] = {}
    """Environment variables of its workers; no listing shows a value. What a worker prints is shown without those that
    are secret: of variables with KEY, TOKEN, SECRET, PASSWORD or the like in their names, and of ``secret_env``."""
    secret_env: list[str] = []
    """Variables of ``env`` whose values are secret although their names do not say so."""
    agent_dir: str | None = None
    """The program's own directory of settings and sessions (``PI_CODING_AGENT_DIR``)."""
    package_dir: str | None = None
    """Where the program finds its package (``PI_PACKAGE_DIR``)."""
    workspace: str | None = None
    """Working directory of its workers, where the role names none. All its sessions share it, unless ``workspace_per``
    says otherwise: an AGENTS.md that one session writes there enters the system prompts of all."""
    workspace_per: Literal["session"] | None = None
    """``"session"``: each session works in a directory of its own in the workspace, where file tools keep to; it stays
    when the session is deleted. No two sessions can share a worker then: each needs one started in its directory."""
    mode: str | None = None
    """The program's own mode of working (``plan``, ``ask`` ...), by its id; unset = the program's default, which may
    approve its tool calls by itself. Changed on a live worker, as ``options`` are. Of dialect ``acp``."""
    options: dict[str, str | bool] = {}
    """Further configuration options of the program, by their ids. Of dialect ``acp``."""
    resume: Literal["auto", "pin"] = "auto"
    """``"pin"``: a session keeps its worker as long as that lives, in use or not, for a program that cannot go on with
    a conversation. All workers but one may be kept so; further sessions are refused. Of dialect ``acp``."""
    auth_method: str | None = None
    """The way to log in, by its id, where the program asks for a login; none opens a browser. Of dialect ``acp``."""
    mcp_servers: list[dict[str, Any]] = []
    """MCP servers that the program is to start, each as ACP declares it (``name``, ``command``, ``args``, ``env`` as a
    list of ``name`` and ``value``). Of dialect ``acp``."""
    extra_args: list[str] = []
    """Further arguments of the program, given to it as they are; none that has a setting of its own."""
    group: str = ""
    """The group of nodes, of ``[cluster.groups]``, that its workers run on; empty = this machine, and nodes of no
    group."""
    prepare: list[str] = []
    """A command that fills the working directory, run in it once on each machine before a worker starts there, within
    120 s, as ``["git", "clone", "https://host/project", "."]``; a start fails with it."""
    timeout_seconds: Seconds | None = None
    """A run of this agent ends after this; 0 = never; unset = as ``agents.defaults`` says. No part of the profile."""

    @property
    def traits(self) -> DialectTraits:
        """What programs of its dialect understand."""
        return DIALECTS[self.dialect]

    @property
    def permissions(self) -> PermissionMode:
        """Its permission mode, the dialect's own where none is set."""
        return self.permission_mode or self.traits.permission_mode

    def __repr__(self) -> str:
        return f"AgentSettings({', '.join(f'{name}={value!r}' for name, value in _repr_fields(self))})"

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:  # type: ignore[override]  # msgspec's would print env's values
        return _repr_fields(self)


class AgentDefaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What holds for every agent that does not say otherwise, ``[agents.defaults]``."""

    timeout_seconds: Seconds = Seconds(600)
    """A run that names no timeout of its own ends after this, waiting for a worker included; 0 = never."""


class RoleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One role, ``[roles.NAME]``: what sessions of this kind get on top of their agent's definition."""

    skills: list[str] = []
    """Skills of the role; they come before all others."""
    extensions: list[str] = []
    """Extensions of the role, before the agent's."""
    prompt_templates: list[str] = []
    """Prompt templates of the role, before the agent's."""
    append_system_prompt: str | None = None
    """Follows the agent's own text."""
    workspace: str | None = None
    """Working directory of its workers, whatever the agent says."""


class SkillSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Skills that every worker gets, ``[skills]``."""

    base: list[str] = []
    """Skills for all agents; they come last."""
    gateway: list[str] = []
    """Come before the base ones."""
    flat: list[str] = []
    """The older, flat list; used only where neither role nor agent nor the two lists above name a skill."""


class ProfilesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All agents and roles by name. ``main`` (the bundled agent) and ``default`` exist without being named.

    A dotted name is a field's place in the file: ``[agents.defaults]`` stands among the agents.
    """

    agents: dict[str, AgentSettings] = {}
    agent_defaults: AgentDefaults = msgspec.field(default=AgentDefaults(), name="agents.defaults")
    roles: dict[str, RoleSettings] = {}
    skills: SkillSettings = SkillSettings()

    def __post_init__(self) -> None:
        _check_names(self.agents)

    def agent_names(self) -> list[str]:
        """Every agent that ``build_profile`` knows, the default one first."""
        return list(dict.fromkeys(["main", *self.agents]))

    def timeout_of(self, agent: str) -> float | None:
        """Seconds after which a run of that agent ends when it names no timeout of its own; None = never."""
        own = self.agents[agent].timeout_seconds if agent in self.agents else None
        return (self.agent_defaults.timeout_seconds if own is None else own) or None

    def dialect_of(self, agent: str) -> DialectName:
        """What the agent's program speaks."""
        return self.agents.get(agent, AgentSettings()).dialect

    def program_mark(self, agent: str) -> str:
        """The same for two settings where the agent is the same program; it shows nothing of the command."""
        definition = self.agents.get(agent, AgentSettings())
        return hashlib.sha256(msgspec.json.encode([definition.dialect, definition.command])).hexdigest()[:16]

    def traits_of(self, agent: str) -> DialectTraits:
        """What the agent's program understands."""
        return DIALECTS[self.dialect_of(agent)]

    def provider_of(self, agent: str) -> str | None:
        """Whose model the agent uses, where its definition says so."""
        return self.agents.get(agent, AgentSettings()).provider

    def group_of(self, agent: str) -> str:
        """The group of nodes that the agent's workers run on; "" where it names none."""
        return self.agents.get(agent, AgentSettings()).group

    def has_remote_workspace(self, agent: str) -> bool:
        """Whether the agent's directories lie on nodes, or are made by a command where a worker starts."""
        definition = self.agents.get(agent, AgentSettings())
        return bool(definition.group or definition.prepare)

    def has_workspace_per_session(self, agent: str) -> bool:
        """Whether each session of the agent works in a directory of its own."""
        return self.agents.get(agent, AgentSettings()).workspace_per == "session"

    def history_turns_of(self, agent: str, of_channel: int | None) -> int | None:
        """How many user messages the agent's model is shown at most; None = all, as where its program has no limit.

        ``of_channel``: the limit of the channel for direct messages, which comes before the agent's.
        """
        definition = self.agents.get(agent, AgentSettings())
        if not DIALECTS[definition.dialect].history_limit:
            return None
        return definition.history_turns if of_channel is None else of_channel

    def role_names(self) -> list[str]:
        """Every role that ``build_profile`` knows, the default one first."""
        return list(dict.fromkeys(["default", *self.roles]))


def _check_names(agents: Iterable[str]) -> None:
    for problem in filter(None, map(agent_name_problem, agents)):
        raise ValueError(problem)


def agent_name_problem(name: str) -> str | None:
    """Why no agent can have that name; None: one can."""
    if not _AGENT_NAME.fullmatch(name):
        return f"{name[:80]!r} is no name for an agent: 1 to 64 of a-z, 0-9, _ and -, no - in front"
    if name in _RESERVED_AGENT_NAMES:
        return f"{name!r} is a table of its own in [agents]; name the agent otherwise"
    return None


def _repr_fields(settings: AgentSettings) -> Iterator[tuple[str, object]]:
    """Without values of environments."""
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        shown = {"env": sorted(settings.env), "mcp_servers": [server.get("name") for server in settings.mcp_servers]}
        yield name, shown.get(name, value)
