"""What the protocol's payloads are made of: times in milliseconds, facts that are known. Pure."""

from typing import Any

__all__ = ["milliseconds", "present"]


def milliseconds(seconds: float | None) -> int | None:
    """Unix time as the protocol has it."""
    return None if seconds is None else int(seconds * 1000)


def present(**facts: Any) -> dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in facts.items() if value is not None}
