"""Who may come in: tokens and what they may do, the hosts the server answers to, the pages that may call it."""

import hashlib
import hmac
from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

from doors.http.errors import Refusal
from doors.http.tokens import APPROVALS, Grant, Scope, scope_of

_BEARER = "bearer "


class Identity(NamedTuple):
    """Who has shown a token, and what that token may do."""

    name: str
    scope: Scope
    approvals: bool

    @property
    def principal(self) -> str:
        """See ``gateway.caller.Caller``."""
        return f"token:{self.name}"

    @property
    def rate_key(self) -> str:
        """Under what its requests are counted, see ``Services.check_rate``."""
        return f"token {self.name}"

    def may(self, method: str) -> bool:
        """Whether it may call the method."""
        return self.approvals if method in APPROVALS else self.scope >= scope_of(method)

    def check(self, method: str) -> None:
        """Raise Refusal (403) where it may not call the method."""
        if not self.may(method):
            wanted = "the right to approve" if method in APPROVALS else f"scope {scope_of(method).name.lower()}"
            raise Refusal(HTTPStatus.FORBIDDEN, f"{method} needs {wanted}, which the token {self.name!r} has not")

    def need(self, scope: Scope) -> None:
        """Raise Refusal (403) where its scope is less."""
        if self.scope < scope:
            raise Refusal(
                HTTPStatus.FORBIDDEN, f"this needs scope {scope.name.lower()}, which the token {self.name!r} has not"
            )


class Access:
    """The tokens that hold now. Of each only a digest is kept."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self._known: list[tuple[bytes, Identity]] = []
        self.renew(grants)

    def renew(self, grants: Iterable[Grant]) -> None:
        """From now on these tokens hold. Whoever has shown one of the others is nobody any more."""
        before = dict(self._known)
        known = []
        for grant in grants:
            digest, identity = _digest(grant.token), Identity(grant.name, grant.scope, grant.approvals)
            same = before.get(digest)
            known.append((digest, same if same == identity else identity))
        self._known = known

    def authenticate(self, token: str) -> Identity | None:
        """Whose token it is. Takes as long for a wrong one as for a right one."""
        digest = _digest(token)
        found = None
        for known, identity in self._known:
            if hmac.compare_digest(known, digest):
                found = identity
        return found

    def from_header(self, authorization: str | None) -> Identity:
        """Whose token the header ``Authorization`` shows. Raises Refusal (401)."""
        if authorization is None:
            raise _unauthorized("no token was shown; send it as: Authorization: Bearer TOKEN")
        if authorization[: len(_BEARER)].lower() != _BEARER:
            raise _unauthorized("the header Authorization must be: Bearer TOKEN")
        identity = self.authenticate(authorization[len(_BEARER) :].strip())
        if identity is None:
            raise _unauthorized("this token is not known here")
        return identity

    def holds(self, identity: Identity) -> bool:
        """Whether the token that was shown still holds, with the same rights."""
        return any(known is identity for _, known in self._known)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _unauthorized(message: str) -> Refusal:
    return Refusal(HTTPStatus.UNAUTHORIZED, message, {"www-authenticate": 'Bearer realm="pool"'})
