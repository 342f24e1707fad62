"""What a tool is to the agent: a name, a validated input, and one async call that returns text or fails clearly."""

import os
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

__all__ = ["Tool", "ToolContext", "ToolError", "confined", "definition_of"]


class ToolError(Exception):
    """The call failed; the message is for the model. ``error_type``: validation, runtime, logical or aborted."""

    def __init__(self, message: str, error_type: str = "runtime", *, retryable: bool = False) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.retryable = retryable


class ToolContext(msgspec.Struct, frozen=True):
    """What a call may use: the confining directory (a real path), an environment, and a place to show progress."""

    cwd: str
    environment: dict[str, str]
    report: Callable[[str], None]


class Tool(Protocol):
    """One tool. ``timeout`` in seconds bounds a call from outside; None: the tool bounds itself."""

    @property
    def name(self) -> str:
        """As the model calls it."""
        ...

    @property
    def description(self) -> str:
        """For the model."""
        ...

    @property
    def timeout(self) -> float | None:
        """See the class."""
        ...

    @property
    def input_type(self) -> type[msgspec.Struct]:
        """What the model's JSON must decode to."""
        ...

    async def run(self, arguments: Any, context: ToolContext) -> str:
        """Do it; ``arguments`` is an ``input_type``. Raises ToolError. A cancelled call leaves nothing running."""
        ...


def definition_of(tool: Tool) -> dict[str, Any]:
    """The JSON schema of a tool's input."""
    return msgspec.json.schema(tool.input_type)


def confined(cwd: str, path: str) -> str:
    """The real path of ``path`` taken from ``cwd``; raises ToolError when it lies outside."""
    try:
        real = os.path.realpath(os.path.join(cwd, path))  # noqa: PTH118 - os.path joins and resolves without surprises
    except (OSError, ValueError) as exc:
        raise ToolError(f"{path!r} is no path: {exc}", "validation") from exc
    if real != cwd and not real.startswith(cwd.rstrip("/") + "/"):
        raise ToolError(f"{path} lies outside the working directory {cwd}", "validation")
    return real
