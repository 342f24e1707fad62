"""The secrets with which invited nodes may dial: each lets one link in, which gets the next. Pure."""

import secrets
from collections.abc import Callable

import msgspec

from cluster.proof import is_same
from cluster.remote_node import NodeOrigin


class _Invitation(msgspec.Struct):
    origin: NodeOrigin
    secret: str
    next_secret: str = ""


def _random_secret() -> str:
    return secrets.token_urlsafe(24)


class Invitations:
    """Who may dial, by name.

    A secret is used up once its node has shown that it has the next one, by speaking after its welcome: a link that
    breaks before that locks no node out. Whoever reads a secret that was used gets in with it no more.
    """

    def __init__(self, make: Callable[[], str] = _random_secret) -> None:
        self._make = make
        self._by_name: dict[str, _Invitation] = {}

    def invite(self, name: str, origin: NodeOrigin) -> str:
        """The secret for one node of this name; an earlier one is worth nothing any more."""
        secret = self._make()
        self._by_name[name] = _Invitation(origin, secret)
        return secret

    def revoke(self, name: str) -> None:
        """The node is not to come again."""
        self._by_name.pop(name, None)

    def origin_of(self, name: str, secret: str) -> NodeOrigin | None:
        """How the node that shows this secret comes to be here; None: it is not the right one."""
        known = self._by_name.get(name)
        if known is None or not (is_same(known.secret, secret) | is_same(known.next_secret, secret)):
            return None
        return known.origin

    def is_invited(self, name: str) -> bool:
        """Whether there is a secret for this name."""
        return name in self._by_name

    def welcome(self, name: str, shown: str) -> str:
        """The next secret of a node that is let in with ``shown``; "" for one that needs none."""
        known = self._by_name.get(name)
        if known is None or not shown:
            return ""
        known.secret, known.next_secret = shown, self._make()
        return known.next_secret

    def confirm(self, name: str, given: str) -> None:
        """The node has spoken that was ``given`` its next secret: the one that it showed is used up."""
        known = self._by_name.get(name)
        if known is not None and is_same(known.next_secret, given):
            known.secret, known.next_secret = given, ""
