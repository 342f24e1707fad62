"""The environment of tools' commands: all of the worker's but the keys with which models are paid for. Pure.

A command is chosen by a model and may print, or send, whatever it finds. What a model's call or a skill adds may not
make it another command.
"""

import re
from collections.abc import Collection, Mapping

from agent.processes.tree import MARK_VARIABLE

__all__ = ["PROVIDER_KEYS", "environment_of_tools", "may_be_set"]

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
_NEVER_SET = frozenset(
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
_NEVER_SET_PREFIXES = (
    *("LD_", "DYLD_", "BASH_FUNC_", "POOL_"),
    *("PYTHON", "PERL5", "RUBY", "BUNDLE_", "CARGO_", "CMAKE_", "GIT_CONFIG", "NPM_CONFIG_", "LUA_INIT_"),
)
"""Variables by which a command runs other programs than it names: search paths for programs, libraries and settings,
options of interpreters, helper programs; and the marks by which a command's processes are found.
"""
_HARMLESS = frozenset(
    {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUTF8", "CARGO_TERM_COLOR"}
)


def environment_of_tools(environment: Mapping[str, str], allowed: Collection[str] = ()) -> dict[str, str]:
    """The environment without the providers' keys, but those that are ``allowed`` by name."""
    return {name: value for name, value in environment.items() if name not in PROVIDER_KEYS or name in allowed}


def may_be_set(name: str) -> bool:
    """Whether a model's call, or a skill, may give this variable to a command.

    Assignments in the command line itself are not checked: the person who approves the command sees them.
    """
    if not _NAME.fullmatch(name):
        return False
    known = name.upper() if name.lower().startswith("npm_config_") else name
    return name in _HARMLESS or not (known in _NEVER_SET or known.startswith(_NEVER_SET_PREFIXES))
