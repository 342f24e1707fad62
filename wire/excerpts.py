"""The excerpt of a text that is too long for an event: its beginning and its end, and how much lies between. Pure."""

__all__ = ["MAX_RESULT", "excerpt"]

MAX_RESULT = 8_000
"""Characters of a tool call's result that events carry."""


def excerpt(text: str, most: int = MAX_RESULT) -> str:
    """The text, or about ``most`` characters of it: three quarters from its beginning, the rest from its end."""
    if len(text) <= most:
        return text
    head = most * 3 // 4
    tail = most - head
    return f"{text[:head]}\n[... {len(text) - most} characters left out ...]\n{text[-tail:]}"
