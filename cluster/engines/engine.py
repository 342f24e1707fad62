"""What an engine is, and the desk that it brings its nodes to."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from cluster.wire import LinkWire
from errors import PoolError


class EngineLost(PoolError):
    """An engine cannot go on, for a reason that its text says; it is run again after a pause. Its nodes stay."""

    code = "engine_lost"


class DialTarget(NamedTuple):
    """Where node programs dial (TLS); ``fingerprint``: the SHA-256 of the supervisor's certificate, in hex."""

    host: str
    port: int
    fingerprint: str

    @property
    def address(self) -> str:
        """Host and port, as ``pool node --dial`` takes them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Desk(Protocol):
    """Where engines bring their nodes. All methods belong to the event loop's thread."""

    @property
    def dial(self) -> DialTarget | None:
        """Where a node program dials; None where no address is set to listen on."""
        ...

    async def serve(self, wire: LinkWire, name: str, *, engine: str, labels: Mapping[str, str], slots: int) -> None:
        """Serve one link whose node is known by the way it came, until it ends. Raises nothing of the link.

        ``labels`` and ``slots`` come before those that the node says of itself, where they are not empty and not 0.
        """
        ...

    def invite(self, name: str, *, engine: str, labels: Mapping[str, str], slots: int) -> str:
        """The secret with which one node of this name may dial; ``labels`` and ``slots`` as of ``serve``."""
        ...

    def draining(self, name: str, deadline: float | None) -> None:
        """The node takes nothing new and is to be empty; what is left of it ends ``deadline`` seconds from now."""
        ...

    def failed(self, name: str, *, engine: str, reason: str) -> None:
        """No node of this name comes, for a reason that people can do something about."""
        ...

    def idle(self, name: str) -> float:
        """Seconds for which a node has had no worker; 0 where it has some, or is not linked."""
        ...

    def gone(self, name: str, reason: str) -> None:
        """The node is dead, as the engine knows: its link is closed. It is fenced in its time all the same."""
        ...


class Engine(Protocol):
    """Starts node programs and says which nodes there are. It owns no worker: its end ends none.

    Attributes:
        name: what its nodes are listed under ("ssh", "ray", "join").
    """

    name: str

    async def run(self, desk: Desk) -> None:
        """Until cancelled. Raises EngineLost where it cannot go on; it is run again after a pause that doubles."""
        ...

    async def want(self, slots: Mapping[str, int]) -> None:
        """How many more slots of each group waiting requests could use: a hint, for those who can start nodes."""
        ...
