"""The environment of tools' commands: all of the worker's but the keys with which models are paid for. Pure.

A command is chosen by a model and may print, or send, whatever it finds. What a model's call or a skill adds may not
make it another command.
"""

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

_NEVER_SET = frozenset(
    {"PATH", "PYTHONPATH", "PYTHONHOME", "NODE_OPTIONS", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", MARK_VARIABLE}
)
_NEVER_SET_PREFIXES = ("LD_", "DYLD_", "POOL_")
"""What makes other programs run than the command names, and the marks by which a command's processes are found."""


def environment_of_tools(environment: Mapping[str, str], allowed: Collection[str] = ()) -> dict[str, str]:
    """The environment without the providers' keys, but those that are ``allowed`` by name."""
    return {name: value for name, value in environment.items() if name not in PROVIDER_KEYS or name in allowed}


def may_be_set(name: str) -> bool:
    """Whether a model's call, or a skill, may give this variable to a command."""
    return name not in _NEVER_SET and not name.startswith(_NEVER_SET_PREFIXES)
