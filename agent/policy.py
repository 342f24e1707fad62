"""Permission rules for tool calls, and which variables commands may see and set. Pure.

Rules, in this order; the first that objects decides: the tool exists (``--tools`` removes others), the input fits, the
deny list, the approval list, the mode. Hooks come afterwards and may only be stricter. Input for a running command
counts as a call of ``exec`` too: the lists of both tools apply.

A model chooses the command, which may print or send whatever it finds: its environment holds no key of a model
provider.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from agent.processes.exec_session import INPUT_ACTIONS, ProcessInput
from agent.processes.tree import MARK_VARIABLE
from agent.results import CallResult, denied, failure, of_error
from agent.tools.base import Tool, ToolError, decode_arguments
from wire.entries import CallState, ToolUseBlock

PolicyMode = Literal["auto", "approval", "readonly"]
"""``auto``: run; ``approval``: ask a person about every call; ``readonly``: only tools that change nothing."""

HARMLESS_EFFECTS = frozenset({"read", "none"})
_SHOWN_CHARS = 100


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """``deny`` and ``require_approval`` name tools."""

    mode: PolicyMode = "auto"
    deny: frozenset[str] = frozenset()
    require_approval: frozenset[str] = frozenset()


class Allowed(msgspec.Struct, frozen=True):
    """It may run, with this input in its shape."""

    tool: Tool
    arguments: Any


class ApprovalNeeded(msgspec.Struct, frozen=True):
    """It may run once a person has allowed it; ``reason`` says why one is asked."""

    tool: Tool
    arguments: Any
    reason: str


class CallRejected(msgspec.Struct, frozen=True):
    """It may not run: DENIED by a rule, or FAILED since it makes no sense. ``result`` is for the model."""

    state: Literal[CallState.DENIED, CallState.FAILED]
    result: CallResult


PolicyVerdict: TypeAlias = Allowed | ApprovalNeeded | CallRejected


def evaluate(call: ToolUseBlock, tools: Mapping[str, Tool], policy: Policy) -> PolicyVerdict:
    """What the rules say about one call."""
    tool = tools.get(call.name)
    if tool is None:
        return CallRejected(CallState.FAILED, _unknown_tool(call.name, tools))
    try:
        arguments = decode_arguments(tool, call.input)
    except ToolError as exc:
        return CallRejected(CallState.FAILED, of_error(exc))
    ruling, reason = _rule_by_lists(tool.name, arguments, policy) or _rule_by_mode(tool, policy)
    match ruling:
        case "deny":
            return CallRejected(CallState.DENIED, denied(tool.name, reason))
        case "ask":
            return ApprovalNeeded(tool, arguments, reason)
        case "allow":
            return Allowed(tool, arguments)


_Ruling: TypeAlias = tuple[Literal["allow", "ask", "deny"], str]
"""What a rule says, and why."""


def runs_unapproved(name: str, policy: Policy) -> bool:
    """Whether calls of a tool with effects run without approval."""
    return policy.mode == "auto" and name not in policy.deny and name not in policy.require_approval


def _rule_by_lists(name: str, arguments: Any, policy: Policy) -> _Ruling | None:
    feeds_a_command = isinstance(arguments, ProcessInput) and arguments.action in INPUT_ACTIONS
    if name in policy.deny:
        return "deny", "it is on the deny list"
    if feeds_a_command and "exec" in policy.deny:
        return "deny", "it is input for a command, and exec is on the deny list"
    if name in policy.require_approval:
        return "ask", "it is on the list of tools that need approval"
    if feeds_a_command and "exec" in policy.require_approval:
        return "ask", "it is input for a command, and exec is on the list of tools that need approval"
    return None


def _rule_by_mode(tool: Tool, policy: Policy) -> _Ruling:
    match policy.mode:
        case "auto":
            return "allow", ""
        case "approval":
            return "ask", "every call needs approval"
        case "readonly" if tool.effects in HARMLESS_EFFECTS:
            return "allow", ""
        case "readonly":
            return "deny", "this session may only read"


def _unknown_tool(name: str, tools: Mapping[str, Tool]) -> CallResult:
    there_are = ", ".join(sorted(tools)) or "none"
    return failure(
        f"there is no tool {name[:_SHOWN_CHARS]!r}; available: {there_are}",
        "validation",
        recommendations=["Call one of the tools that there are."],
    )


PROVIDER_KEYS = frozenset(
    {
        *("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "AZURE_OPENAI_API_KEY"),
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_OAUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        *("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"),
        *("AI_GATEWAY_API_KEY", "CEREBRAS_API_KEY", "COHERE_API_KEY", "DEEPSEEK_API_KEY", "FIREWORKS_API_KEY"),
        *("GROQ_API_KEY", "MINIMAX_API_KEY", "MISTRAL_API_KEY", "MOONSHOT_API_KEY", "OPENROUTER_API_KEY"),
        *("PERPLEXITY_API_KEY", "TOGETHER_API_KEY", "XAI_API_KEY", "ZAI_API_KEY"),
    }
)
"""Variables in which providers of models look for a key."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROTECTED_VARIABLES = frozenset(
    {
        *("PATH", "HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", MARK_VARIABLE),
        *("SHELL", "ENV", "BASH_ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "ZDOTDIR"),
        *("EDITOR", "VISUAL", "PAGER", "MANPAGER", "BROWSER", "LESSOPEN", "LESSCLOSE", "VIMINIT", "EXINIT"),
        *("GIT_SSH", "GIT_SSH_COMMAND", "GIT_PROXY_COMMAND", "GIT_ASKPASS", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR"),
        *("GIT_PAGER", "GIT_EXTERNAL_DIFF", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "GIT_DIR", "GIT_COMMON_DIR"),
        *("SSH_ASKPASS", "SUDO_ASKPASS", "RSYNC_RSH", "CVS_RSH", "SVN_SSH", "HGRCPATH", "KUBECONFIG"),
        *("AWS_CONFIG_FILE", "CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
        *("PERLLIB", "NODE_OPTIONS", "NODE_PATH"),
        *("MAVEN_OPTS", "GRADLE_OPTS", "LUA_INIT", "LUA_PATH", "LUA_CPATH", "PHPRC", "PHP_INI_SCAN_DIR", "R_PROFILE"),
        *("GOFLAGS", "GOROOT", "RUSTC", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTFLAGS", "PKG_CONFIG"),
        *("CC", "CXX", "CPP", "AR", "LD", "MAKE", "MAKEFLAGS", "MFLAGS", "MAKEFILES", "GEM_HOME", "GEM_PATH"),
        *("GCONV_PATH", "OPENSSL_CONF", "OPENSSL_MODULES", "GTK_MODULES", "QT_PLUGIN_PATH", "GLIBC_TUNABLES"),
    }
)
_PROTECTED_PREFIXES = (
    *("LD_", "DYLD_", "BASH_FUNC_", "POOL_"),
    *("PYTHON", "PERL5", "RUBY", "BUNDLE_", "CARGO_", "CMAKE_", "GIT_CONFIG", "NPM_CONFIG_", "LUA_INIT_"),
)
"""Variables by which a command runs other programs than it names: search paths for programs, libraries and settings,
options of interpreters, helper programs; and the marks by which a command's processes are found.
"""
_ALWAYS_ALLOWED = frozenset(
    {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUTF8", "CARGO_TERM_COLOR"}
)


def tool_environment(environment: Mapping[str, str], allowed: Collection[str] = ()) -> dict[str, str]:
    """The environment without the providers' keys, but those that are ``allowed`` by name."""
    return {name: value for name, value in environment.items() if name not in PROVIDER_KEYS or name in allowed}


def may_be_set(name: str) -> bool:
    """Whether a model's call, or a skill, may give this variable to a command.

    Assignments in the command line itself are not checked: the person who approves the command sees them.
    """
    if not _NAME.fullmatch(name):
        return False
    known = name.upper() if name.lower().startswith("npm_config_") else name
    return name in _ALWAYS_ALLOWED or not (known in _PROTECTED_VARIABLES or known.startswith(_PROTECTED_PREFIXES))
