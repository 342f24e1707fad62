"""The session and run of a request, and ids of responses that encode both. Pure.

``X-Pool-Session`` names the session, else ``user``; a request without either has a session of its own, deleted once it
is answered. Tool call ids of such a session bear its mark, so that results find it. Sessions of ``/v1/responses`` are
kept for ``previous_response_id`` unless ``store`` is false. Response ids stay valid over a restart without any table.
"""

import base64
import binascii
import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from errors import UsageError
from router.keys import normalize_session_key

_PREFIX = "resp_"
_MOST_CHARS = 2000


class SessionRun(NamedTuple):
    """The session and run of a response's id."""

    session: str
    run: str


def response_id(session: str, run: str) -> str:
    """The id of a run's response."""
    text = base64.urlsafe_b64encode(f"{session}\n{run}".encode()).decode().rstrip("=")
    return f"{_PREFIX}{text}"


def read_response_id(given: str) -> SessionRun | None:
    """The session and run of an id; None if it was never one of ours."""
    text = given.removeprefix(_PREFIX)
    if text == given or len(given) > _MOST_CHARS:
        return None
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    session, newline, run = decoded.partition("\n")
    return SessionRun(session, run) if session and newline and run and "\n" not in run else None


SESSION_HEADER = "x-pool-session"
_KEY_HEADER = "idempotency-key"
_MOST_KEY = 128

OWN_SESSION = re.compile(r"openai:(r?[0-9a-f]{32})")
"""Sessions that this door has made for a request that named none; ``r``: one that is kept."""
_OWN_CALL = re.compile(r"call_(r?[0-9a-f]{32})_(.+)", re.DOTALL)


class SessionRef(NamedTuple):
    """Where a run happens."""

    session: str
    run: str
    is_ours: bool
    """Whether the session was made for this request, or for the one whose tools it answers."""
    is_keyed: bool = False
    """Whether the client has named the run: then it may have been begun before."""
    continues: str | None = None
    """The run of ``previous_response_id``, whose session this is."""

    def to_client(self, call_id: str) -> str:
        """The id of a call that the client sees."""
        return f"call_{self.session.partition(':')[2]}_{call_id}" if self.is_ours else call_id

    def from_client(self, call_id: str) -> str:
        """And back."""
        own = _OWN_CALL.fullmatch(call_id)
        return own[2] if self.is_ours and own is not None else call_id


def retry_run_id(run: str) -> str:
    """The id of the run that asks again for what this one was to answer."""
    return _digest(f"{run}\nagain")


def find_session_ref(
    headers: Mapping[str, str], user: str | None, answered: Iterable[str], principal: str
) -> SessionRef:
    """``answered``: ids of calls to which results are brought. Raises UsageError for what cannot be a name."""
    key = _checked_idempotency_key(headers.get(_KEY_HEADER))
    run = key or uuid.uuid4().hex
    named = _header_session(headers.get(SESSION_HEADER))
    if named is not None or user:
        session = _checked_session(user or "", "user") if named is None else _checked_session(named, "X-Pool-Session")
        return SessionRef(session, run, is_ours=False, is_keyed=key is not None)
    new = _digest(f"{principal}\n{key}") if key else uuid.uuid4().hex  # sent again, a request finds its session
    mark = _calling_session_id(answered) or new
    return SessionRef(f"openai:{mark}", run, is_ours=True, is_keyed=key is not None)


def find_response_session_ref(
    headers: Mapping[str, str],
    user: str | None,
    answered: Iterable[str],
    principal: str,
    *,
    previous: str | None,
    is_kept: bool,
) -> SessionRef:
    """The same for a request for a response. ``previous``: its ``previous_response_id``. Raises UsageError."""
    place = find_session_ref(headers, user, answered, principal)
    if previous is None:
        is_new = place.is_ours and not is_stored(place.session) and not _calling_session_id(answered)
        return place._replace(session=place.session.replace(":", ":r", 1)) if is_new and is_kept else place
    before = read_response_id(previous)
    if before is None:
        text = f"previous_response_id: there is no response {previous[:200]!r} here"
        raise UsageError(text, param="previous_response_id")
    before = before._replace(session=_checked_session(before.session, "previous_response_id"))
    if not place.is_ours and place.session != before.session:
        text = f"the response belongs to session {before.session}, the request names {place.session}"
        raise UsageError(f"previous_response_id: {text}", param="previous_response_id")
    is_ours = OWN_SESSION.fullmatch(before.session) is not None
    return place._replace(session=before.session, is_ours=is_ours, continues=before.run)


def is_stored(session: str) -> bool:
    """Whether this door made the session and keeps it for ``previous_response_id``."""
    own = OWN_SESSION.fullmatch(session)
    return own is not None and own[1].startswith("r")


def _checked_idempotency_key(given: str | None) -> str | None:
    if given is None:
        return None
    if not 1 <= len(given) <= _MOST_KEY or not (given.isascii() and given.isprintable()):
        text = f"the header Idempotency-Key has 1 to {_MOST_KEY} visible ASCII characters"
        raise UsageError(text, param="Idempotency-Key")
    return given


def _header_session(header: str | None) -> str | None:
    """Headers are bytes; a name that is more than ASCII is sent as UTF-8."""
    if header is None:
        return None
    try:
        return header.encode("latin-1").decode()
    except UnicodeError as exc:
        raise UsageError("the header X-Pool-Session must be UTF-8", param="X-Pool-Session") from exc


def _checked_session(session: str, param: str) -> str:
    try:
        return normalize_session_key(session)
    except UsageError as exc:
        raise UsageError(f"{param}: {exc.message}", param=param) from exc


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _calling_session_id(answered: Iterable[str]) -> str | None:
    """The one session that the calls went out from."""
    marks = {own[1] if (own := _OWN_CALL.fullmatch(call)) else None for call in answered}
    return marks.pop() if len(marks) == 1 else None
