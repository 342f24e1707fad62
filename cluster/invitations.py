"""The secrets with which invited nodes may dial: each lets one link in. Pure."""

import secrets

from cluster.proof import is_same
from cluster.remote_node import NodeOrigin


class Invitations:
    """Who may dial, by name. A name that was invited once is its engine's: the cluster's token does not open it."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[str, NodeOrigin]] = {}

    def invite(self, name: str, origin: NodeOrigin) -> str:
        """The secret for one link of a node of this name; an earlier one is worth nothing any more."""
        secret = secrets.token_urlsafe(24)
        self._by_name[name] = (secret, origin)
        return secret

    def use(self, name: str) -> None:
        """The node has joined: its secret lets no other link in. The engine invites it again."""
        if (known := self._by_name.get(name)) is not None:
            self._by_name[name] = ("", known[1])

    def revoke(self, name: str) -> None:
        """The name is free again."""
        self._by_name.pop(name, None)

    def is_invited(self, name: str) -> bool:
        """Whether the name is an engine's."""
        return name in self._by_name

    def origin_of(self, name: str, shown: str) -> NodeOrigin | None:
        """How the node that shows this secret comes to be here; None: it is not the right one, or was used."""
        secret, origin = self._by_name.get(name, ("", None))
        return origin if secret and is_same(secret, shown) else None
