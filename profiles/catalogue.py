"""Makes of agents that are known: how each is started, installed and logged in, and the mode in which it asks. Pure."""

import posixpath
from collections.abc import Sequence

import msgspec

from profiles.dialects import DialectName


class AgentMake(msgspec.Struct, frozen=True, kw_only=True):
    """One make of agent. What is written into a definition: ``dialect``, ``command``, ``mode``."""

    name: str
    dialect: DialectName
    command: tuple[str, ...]
    packages: tuple[str, ...]
    """Its packages of npm, the one to install first; a version may follow behind an @."""
    mode: str | None = None
    """The mode in which it asks before it changes anything."""
    key_variables: tuple[str, ...] = ()
    """Any of these in the environment is a login."""
    login_files: tuple[str, ...] = ()
    """Below the home directory; any of them is the trace of a login."""
    login: str = ""
    """What to type in a terminal to log in."""
    note: str = ""
    """What else to know before it is used."""

    @property
    def install(self) -> str:
        """What to type to install it."""
        return f"npm install -g {self.packages[0]}"


MAKES: dict[str, AgentMake] = {
    make.name: make
    for make in (
        AgentMake(
            name="claude",
            dialect="acp",
            command=("claude-agent-acp",),
            packages=("@agentclientprotocol/claude-agent-acp", "@zed-industries/claude-code-acp"),
            mode="default",
            key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
            login_files=(".claude/.credentials.json",),
            login="claude",
            note='mode = "default" has it ask; without a mode, as with "auto", it decides by itself what to allow',
        ),
        AgentMake(
            name="codex",
            dialect="acp",
            command=("codex-acp",),
            packages=("@agentclientprotocol/codex-acp", "@zed-industries/codex-acp"),
            mode="read-only",
            key_variables=("CODEX_API_KEY", "OPENAI_API_KEY"),
            login_files=(".codex/auth.json",),
            login="codex login",
            note='mode = "workspace-write" lets it edit files of the workspace without asking',
        ),
        AgentMake(
            name="gemini",
            dialect="acp",
            command=("gemini", "--acp"),
            packages=("@google/gemini-cli",),
            mode="default",
            key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            login_files=(".gemini/oauth_creds.json",),
            login="gemini",
            note="release 0.61.0 cannot load a conversation: the pool feeds the end of it to a new one",
        ),
        AgentMake(
            name="opencode",
            dialect="acp",
            command=("opencode", "acp"),
            packages=("opencode-ai",),
            mode="build",
            login_files=(".local/share/opencode/auth.json",),
            login="opencode auth login",
            note="what it asks about is set in its own opencode.json (permission)",
        ),
        AgentMake(
            name="pi",
            dialect="pi",
            command=("pi", "--mode", "rpc"),
            packages=("@earendil-works/pi-coding-agent@0.87.1", "@mariozechner/pi-coding-agent"),
            key_variables=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"),
            login_files=(".pi/agent/auth.json",),
            login="pi",
            note="it asks about nothing: all its tools run",
        ),
    )
}
"""By name."""

APPROVING_MODES = frozenset(
    {
        *("auto", "acceptEdits", "bypassPermissions", "dontAsk"),  # claude
        *("agent", "agent-full-access", "full-access"),  # codex, whose older release has an auto, too
        *("auto_edit", "autoEdit", "auto-edit", "yolo"),  # gemini, qwen
        *("accept-edits", "auto-approve"),  # vibe
    }
)
"""Modes in which an agent decides about its tool calls by itself, of every make that was seen."""


def make_of(dialect: str, command: Sequence[str], said: str = "") -> AgentMake | None:
    """The make of a definition, by its program or package; ``said``: the name that a running one gives itself."""
    program = posixpath.basename(command[0]) if command else ""
    words = {_without_version(word) for word in (*command, said) if word}
    for make in MAKES.values():
        packages = {_without_version(package) for package in make.packages}
        if make.dialect == dialect and (make.command[0] in (program, said) or words & packages):
            return make
    return None


def _without_version(package: str) -> str:
    """``@scope/name@1.2`` without its version."""
    return package[0] + package[1:].partition("@")[0]
