"""Cuts a text that is too long for an event: keeps its beginning and end, and counts the rest. Pure."""

__all__ = ["MAX_RESULT", "excerpt"]

MAX_RESULT = 8_000
"""Characters of a tool call's result in events."""


def excerpt(text: str, most: int = MAX_RESULT) -> str:
    """The text, or about ``most`` characters of it: three quarters from its beginning, the rest from its end."""
    if len(text) <= most:
        return text
    head = most * 3 // 4
    tail = most - head
    return f"{text[:head]}\n[... {len(text) - most} characters left out ...]\n{text[-tail:]}"
