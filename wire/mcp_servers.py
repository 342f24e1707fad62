"""MCP servers that an editor declares for a conversation, as the Agent Client Protocol writes them. Pure."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

MAX_SERVERS = 32
MAX_SERVER_BYTES = 64 * 1024
"""Of all servers of one conversation, as JSON."""
_NEEDED = {"stdio": "command", "http": "url", "sse": "url"}


class NamedValue(msgspec.Struct, frozen=True):
    """A variable or a header of a server; its value may be a secret."""

    name: str
    value: str

    def __repr__(self) -> str:
        return f"NamedValue({self.name!r})"


class McpServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One server: a program with arguments and environment, or an address with headers."""

    name: str
    type: Literal["stdio", "http", "sse"] = "stdio"
    command: str | None = None
    args: list[str] = []
    env: list[NamedValue] = []
    url: str | None = None
    headers: list[NamedValue] = []

    def __post_init__(self) -> None:
        needed = _NEEDED[self.type]
        if not self.name or not getattr(self, needed):
            raise ValueError(f"a server of type {self.type} has a name and a member {needed}")

    def declared(self) -> dict[str, Any]:
        """The server with exactly the members that its type has; one of type stdio is written without its type."""
        pairs = {"env": self.env, "headers": self.headers}
        lists = {name: [{"name": each.name, "value": each.value} for each in value] for name, value in pairs.items()}
        if self.type == "stdio":
            return {"name": self.name, "command": self.command, "args": self.args, "env": lists["env"]}
        return {"type": self.type, "name": self.name, "url": self.url, "headers": lists["headers"]}


def declared_servers(servers: Sequence[McpServer]) -> list[dict[str, Any]]:
    """All of them. Raises ValueError for more bytes than a conversation may have."""
    declared = [server.declared() for server in servers]
    size = len(msgspec.json.encode(declared))
    if size > MAX_SERVER_BYTES:
        raise ValueError(f"the servers have {size:,} bytes, and {MAX_SERVER_BYTES:,} are taken")
    return declared
