"""The registry of dialects: what the programs of each understand, so that no other module compares a dialect's name."""

import sys
from collections.abc import Callable
from typing import Literal

import msgspec

from errors import UsageError

DialectName = Literal["native", "pi", "acp"]
PermissionMode = Literal["auto", "approval", "readonly"]
THINKING_LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh")
_MAX_NAME_BYTES = 255
"""The longest file name that Linux allows, in bytes."""


class DialectTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What the programs of one dialect understand and need. ``rpc.dialect`` makes its translator."""

    default_command: tuple[str, ...]
    """The program of an agent whose definition names none; empty: a definition must name one."""
    takes_arguments: bool
    """Understands the pool's flags; what another program is to know goes over its protocol."""
    permission_mode: PermissionMode
    """What a definition that sets none has."""
    keeps_journal: bool
    """The supervisor writes what was said into transcripts of its own; the program's own files are its affair."""
    reset_seconds: float
    """A change of the conversation may take this long where ``pool.reset_timeout`` is shorter; 0 = no longer."""
    abort_seconds: float
    """The end of an aborted turn may take this long where ``rpc.abort_grace`` is shorter; 0 = no longer."""
    refused_settings: frozenset[str]
    """Settings of an agent definition that its programs have no means to follow."""
    known_tools: tuple[str, ...]
    """The program's own tools; ``deny_tools`` is subtracted from them."""
    thinking_levels: tuple[str, ...]
    """How hard its programs can be made to think; empty: each has levels of its own, which a conversation shows."""
    escape_prompt: Callable[[str], str]
    """Changes a system prompt so that the program does not read it as the name of a file."""
    prompt_text: Callable[[str], str | None]
    """The text of an argument that ``escape_prompt`` made; None for one that names a file."""
    prompt_file: Callable[[str], str]
    """The argument that has the program read a system prompt from the file of that absolute path."""
    bundled_flags: bool
    """Takes the bundled agent's flags: permissions, hooks, the model's server, its limits."""
    takes_client_tools: bool
    """Runs may bring tools that the client executes."""
    takes_mcp_servers: bool
    """A conversation may bring MCP servers of its own, which its editor has declared."""
    history_limit: bool
    """A prompt may limit how much of the conversation the model sees."""
    fixed_provider: bool
    """A run may not name another provider than the agent's definition does."""
    private_agent_dir: bool
    """Each worker gets a private copy of the program's agent directory, which also holds the user's conversations."""
    front_end_env: bool
    """An attached front end's environment reaches the program."""
    names_conversations: bool
    """A conversation may have a name (``--name``)."""
    reusable_unsaved: bool
    """A worker that keeps no conversation may serve another session."""
    needs_node: bool
    may_be_wrapper: bool
    """The program may start the one that works, and exit before it."""
    ready_with_conversation: bool
    """It is ready once its first conversation has begun: only a start shows its login and its own mode."""

    def check_thinking(self, level: str) -> None:
        """Raise UsageError for a level that its programs do not have, as far as that is known before they run."""
        if self.thinking_levels and level not in self.thinking_levels:
            raise UsageError(f"thinking: there is no level {level[:80]!r}; there are {', '.join(self.thinking_levels)}")


def _escape_leading_at(text: str) -> str:
    return f"@{text}" if text.startswith("@") else text


def _pad_to_no_file_name(text: str) -> str:
    """Pi reads a file of that name where there is one: make a part too long for a name; it ignores trailing spaces."""
    is_long = any(len(part.encode()) > _MAX_NAME_BYTES for part in text.split("/"))
    last = len(text.rpartition("/")[2].encode())
    return text if is_long or not text else text + " " * (_MAX_NAME_BYTES + 1 - last)


_OF_BUNDLED_AGENT = frozenset(
    {
        *("require_approval", "allow_outside", "allow_background", "tool_env", "hooks"),
        *("base_url", "context_tokens", "max_steps", "history_turns"),
    }
)
_OF_ARGUMENTS = frozenset(
    {
        *("tools", "deny_tools", "system_prompt", "skills", "extensions", "prompt_templates", "provider"),
        *("no_skills", "no_extensions", "no_prompt_templates", "no_context_files", "agent_dir", "package_dir"),
    }
)
"""Settings that become flags or variables of the bundled agent and of pi, for which ACP has no words."""
_OF_ACP = frozenset({"mode", "options", "auth_method", "mcp_servers", "resume"})


def _text_after_at(argument: str) -> str | None:
    return None if argument[:1] == "@" and argument[:2] != "@@" else argument.removeprefix("@")


def _text_of_no_file(argument: str) -> str | None:
    is_text = any(len(part.encode()) > _MAX_NAME_BYTES for part in argument.split("/"))
    return argument.rstrip(" ") if is_text else None


DIALECTS: dict[str, DialectTraits] = {
    "native": DialectTraits(
        # "inf": the pool ends a run that takes too long
        default_command=(sys.executable, "-P", "-m", "agent", "--mode", "rpc", "--timeout", "inf"),
        takes_arguments=True,
        permission_mode="auto",
        keeps_journal=False,
        reset_seconds=0.0,
        abort_seconds=0.0,
        refused_settings=_OF_ACP,
        known_tools=("edit", "exec", "find", "grep", "ls", "process", "read", "todo", "write"),
        thinking_levels=THINKING_LEVELS,
        escape_prompt=_escape_leading_at,
        prompt_text=_text_after_at,
        prompt_file=lambda path: f"@{path}",
        bundled_flags=True,
        takes_client_tools=True,
        takes_mcp_servers=False,
        history_limit=True,
        fixed_provider=True,
        private_agent_dir=False,
        front_end_env=False,
        names_conversations=False,
        reusable_unsaved=True,
        needs_node=False,
        may_be_wrapper=False,
        ready_with_conversation=False,
    ),
    "pi": DialectTraits(
        default_command=("pi", "--mode", "rpc"),
        takes_arguments=True,
        permission_mode="auto",
        keeps_journal=False,
        reset_seconds=0.0,
        abort_seconds=0.0,
        refused_settings=_OF_BUNDLED_AGENT | _OF_ACP | {"permission_mode"},
        known_tools=("bash", "edit", "find", "grep", "ls", "read", "write"),
        thinking_levels=THINKING_LEVELS,
        escape_prompt=_pad_to_no_file_name,
        prompt_text=_text_of_no_file,
        prompt_file=lambda path: path,
        bundled_flags=False,
        takes_client_tools=False,
        takes_mcp_servers=False,
        history_limit=False,
        fixed_provider=False,
        private_agent_dir=True,
        front_end_env=True,
        names_conversations=True,
        reusable_unsaved=False,
        needs_node=True,
        may_be_wrapper=False,
        ready_with_conversation=False,
    ),
    "acp": DialectTraits(
        default_command=(),
        takes_arguments=False,
        permission_mode="approval",
        keeps_journal=True,
        reset_seconds=130.0,  # a load of a long conversation: 120 s, and the settings after it
        abort_seconds=5.0,  # opencode needs 0.2 s, and more than 1 s on a busy machine
        refused_settings=_OF_BUNDLED_AGENT | _OF_ARGUMENTS,
        known_tools=(),
        thinking_levels=(),
        escape_prompt=lambda text: text,
        prompt_text=lambda _argument: None,
        prompt_file=lambda path: path,
        bundled_flags=False,
        takes_client_tools=False,
        takes_mcp_servers=True,
        history_limit=False,
        fixed_provider=False,
        private_agent_dir=False,
        front_end_env=False,
        names_conversations=False,
        reusable_unsaved=False,
        needs_node=False,
        may_be_wrapper=True,
        ready_with_conversation=True,
    ),
}
