"""Who may come in: tokens and what they may do, the hosts the server answers to, the pages that may call it."""

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
        """See ``gateway.caller.Caller``."""
        return f"token:{self.name}"

    @property
    def rate_key(self) -> str:
        """Under what its requests are counted, see ``HttpServices.check_rate``."""
        return f"token {self.name}"

    def can_call(self, method: str) -> bool:
        """Whether it may call the method."""
        return self.approvals if method in APPROVAL_METHODS else self.scope >= scope_of(method)

    def require_method(self, method: str) -> None:
        """Raise Refusal (403) where it may not call the method."""
        if not self.can_call(method):
            wanted = "the right to approve" if method in APPROVAL_METHODS else f"scope {scope_of(method).name.lower()}"
            raise HttpError(HTTPStatus.FORBIDDEN, f"{method} needs {wanted}, which the token {self.name!r} has not")

    def require_scope(self, scope: Scope) -> None:
        """Raise Refusal (403) where its scope is less."""
        if self.scope < scope:
            raise HttpError(
                HTTPStatus.FORBIDDEN, f"this needs scope {scope.name.lower()}, which the token {self.name!r} has not"
            )


class TokenRegistry:
    """The tokens that hold now. Of each only a digest is kept."""

    def __init__(self, grants: Iterable[TokenGrant]) -> None:
        self._known: list[tuple[bytes, TokenIdentity]] = []
        self.set_grants(grants)

    def set_grants(self, grants: Iterable[TokenGrant]) -> None:
        """From now on these tokens hold. Whoever has shown one of the others is nobody any more."""
        before = dict(self._known)
        known = []
        for grant in grants:
            digest, identity = _digest(grant.token), TokenIdentity(grant.name, grant.scope, grant.approvals)
            same = before.get(digest)
            known.append((digest, same if same == identity else identity))
        self._known = known

    def authenticate(self, token: str) -> TokenIdentity | None:
        """Whose token it is. Takes as long for a wrong one as for a right one."""
        digest = _digest(token)
        found = None
        for known, identity in self._known:
            if hmac.compare_digest(known, digest):
                found = identity
        return found

    def authenticate_header(self, authorization: str | None) -> TokenIdentity:
        """Whose token the header ``Authorization`` shows. Raises Refusal (401)."""
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
