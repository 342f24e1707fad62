"""What of a worker's environment its tools' commands see: all but the keys with which models are paid for. Pure.

A command is chosen by a model and may print, or send, whatever it finds.
"""

from collections.abc import Collection, Mapping

__all__ = ["PROVIDER_KEYS", "environment_of_tools"]

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


def environment_of_tools(environment: Mapping[str, str], allowed: Collection[str] = ()) -> dict[str, str]:
    """The environment without the providers' keys, but those that are ``allowed`` by name."""
    return {name: value for name, value in environment.items() if name not in PROVIDER_KEYS or name in allowed}
