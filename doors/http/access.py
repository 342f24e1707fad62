"""Authentication: the tokens in force, and the identity and rights of each."""

import hashlib
import hmac
from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

from doors.http.errors import HttpError
from doors.http.tokens import APPROVAL_METHODS, Scope, TokenGrant, scope_of

_BEARER = "bearer "


class TokenIdentity(NamedTuple):
    """Who has shown a token, and what that token may do."""

    name: str
    scope: Scope
    approvals: bool

    @property
    def principal(self) -> str:
        """Implements ``Caller.principal``."""
        return f"token:{self.name}"

    @property
    def rate_key(self) -> str:
        """The key of its requests for ``HttpServices.check_rate``."""
        return f"token {self.name}"

    def can_call(self, method: str) -> bool:
        """Whether it may call the method."""
        return self.approvals if method in APPROVAL_METHODS else self.scope >= scope_of(method)

    def require_method(self, method: str) -> None:
        """Raise HttpError (403) where it may not call the method."""
        if not self.can_call(method):
            wanted = "the right to approve" if method in APPROVAL_METHODS else f"scope {scope_of(method).name.lower()}"
            raise HttpError(
                HTTPStatus.FORBIDDEN, f"{method} needs {wanted}, which the token {self.name!r} does not have"
            )

    def require_scope(self, scope: Scope) -> None:
        """Raise HttpError (403) where its scope is less."""
        if self.scope < scope:
            raise HttpError(
                HTTPStatus.FORBIDDEN,
                f"this needs scope {scope.name.lower()}, which the token {self.name!r} does not have",
            )


class TokenRegistry:
    """The tokens in force, as digests."""

    def __init__(self, grants: Iterable[TokenGrant]) -> None:
        self._known: list[tuple[bytes, TokenIdentity]] = []
        self.set_grants(grants)

    def set_grants(self, grants: Iterable[TokenGrant]) -> bool:
        """Replace the tokens; whether they are others. Identities of removed tokens become invalid."""
        before = dict(self._known)
        known = []
        for grant in grants:
            digest, identity = _digest(grant.token), TokenIdentity(grant.name, grant.scope, grant.approvals)
            same = before.get(digest)
            known.append((digest, same if same == identity else identity))
        self._known = known
        return before != dict(known)

    def authenticate(self, token: str) -> TokenIdentity | None:
        """The identity of a token, in constant time; None for an unknown one."""
        digest = _digest(token)
        found = None
        for known, identity in self._known:
            if hmac.compare_digest(known, digest):
                found = identity
        return found

    def authenticate_header(self, authorization: str | None) -> TokenIdentity:
        """The identity of the token in the header ``Authorization``. Raises HttpError (401)."""
        if authorization is None:
            raise _unauthorized_error("no token was shown; send it as: Authorization: Bearer TOKEN")
        if authorization[: len(_BEARER)].lower() != _BEARER:
            raise _unauthorized_error("the header Authorization must be: Bearer TOKEN")
        identity = self.authenticate(authorization[len(_BEARER) :].strip())
        if identity is None:
            raise _unauthorized_error("this token is not known here")
        return identity

    def is_valid(self, identity: TokenIdentity) -> bool:
        """Whether the token that was shown still holds, with the same rights."""
        return any(known is identity for _, known in self._known)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _unauthorized_error(message: str) -> HttpError:
    return HttpError(HTTPStatus.UNAUTHORIZED, message, {"www-authenticate": 'Bearer realm="pool"'})
