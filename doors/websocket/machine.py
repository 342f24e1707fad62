"""What a frame of the peer, or the time, leads to: the states of one connection. Pure."""

from enum import Enum, auto
from typing import NamedTuple, TypeAlias

import msgspec

from doors.http.access import Identity
from doors.websocket.frames import BadFrame, Incoming, encode_event, encode_refusal, read_frame
from doors.websocket.handshake import Admission, Authenticate, CloseCode, ConnectRefused, decide
from doors.websocket.limits import SocketLimits
from doors.websocket.refusals import error_shape
from errors import PoolError, PoolSaturated, UsageError

__all__ = ["Action", "Admit", "End", "IllegalMove", "Phase", "Say", "Serve", "SocketMachine", "Stimulus"]


class Phase(Enum):
    """How far the connection is."""

    CHALLENGED = auto()
    """The peer has been told the nonce; its ``connect`` is awaited."""
    OPEN = auto()
    """It makes requests and hears of runs."""
    ENDED = auto()
    """Nothing it sends counts any more."""


class Stimulus(Enum):
    """What moves it."""

    ADMITTED = auto()
    REFUSED = auto()
    REQUEST = auto()
    BROKEN = auto()
    """What came is no request, or cannot be answered."""
    LATE = auto()
    """No ``connect`` in time."""
    GOING_AWAY = auto()
    """The server ends."""


_MOVES = {
    (Phase.CHALLENGED, Stimulus.ADMITTED): Phase.OPEN,
    (Phase.CHALLENGED, Stimulus.REFUSED): Phase.ENDED,
    (Phase.CHALLENGED, Stimulus.BROKEN): Phase.ENDED,
    (Phase.CHALLENGED, Stimulus.LATE): Phase.ENDED,
    (Phase.CHALLENGED, Stimulus.GOING_AWAY): Phase.ENDED,
    (Phase.OPEN, Stimulus.REQUEST): Phase.OPEN,
    (Phase.OPEN, Stimulus.BROKEN): Phase.ENDED,
    (Phase.OPEN, Stimulus.LATE): Phase.OPEN,
    (Phase.OPEN, Stimulus.GOING_AWAY): Phase.ENDED,
    (Phase.ENDED, Stimulus.LATE): Phase.ENDED,
    (Phase.ENDED, Stimulus.GOING_AWAY): Phase.ENDED,
}


class IllegalMove(RuntimeError):
    """A defect of whoever drives the machine."""


class Say(NamedTuple):
    """Send a frame."""

    frame: bytes


class Admit(NamedTuple):
    """Answer ``connect``: the peer is in."""

    request_id: str
    admission: Admission


class Serve(NamedTuple):
    """Carry a request out; tell ``answered`` when it has its last answer."""

    request: Incoming


class End(NamedTuple):
    """Close the connection once all that was said has been sent."""

    code: int
    reason: str


Action: TypeAlias = Say | Admit | Serve | End


class SocketMachine:
    """One connection's. ``known``: who the peer is by the header of its handshake, where it had one."""

    def __init__(self, nonce: str, known: Identity | None, authenticate: Authenticate, limits: SocketLimits) -> None:
        self.phase = Phase.CHALLENGED
        self._nonce = nonce
        self._known = known
        self._authenticate = authenticate
        self._limits = limits
        self._in_flight: set[str] = set()
        self._refused_in_a_row = 0

    # --- stimuli ------------------------------------------------------------------------------------------------------

    def begin(self, now_ms: int) -> list[Action]:
        """The connection is there."""
        payload = msgspec.json.encode({"nonce": self._nonce, "ts": now_ms})
        return [Say(encode_event("connect.challenge", payload))]

    def receive(self, text: str | None) -> list[Action]:
        """A frame of the peer; None = one that is no text."""
        if self.phase is Phase.ENDED:
            return []
        if text is None:
            return self._end(Stimulus.BROKEN, CloseCode.NO_TEXT, "frames are JSON text")
        return self._connect(text) if self.phase is Phase.CHALLENGED else self._request(text)

    def late(self) -> list[Action]:
        """The time for ``connect`` is over."""
        if self.phase is Phase.CHALLENGED:
            return self._end(Stimulus.LATE, CloseCode.POLICY, "no connect in time")
        self._move(Stimulus.LATE)
        return []

    def go_away(self) -> list[Action]:
        """The server ends."""
        was_open, is_over = self.phase is Phase.OPEN, self.phase is Phase.ENDED
        self._move(Stimulus.GOING_AWAY)
        word = Say(encode_event("shutdown", b'{"reason":"the supervisor ends"}'))
        return [] if is_over else [*([word] if was_open else []), End(CloseCode.GOING_AWAY, "the supervisor ends")]

    def answered(self, request_id: str) -> None:
        """A request has had its last answer: its id may be used again."""
        self._in_flight.remove(request_id)

    # --- moves --------------------------------------------------------------------------------------------------------

    def _move(self, stimulus: Stimulus) -> None:
        after = _MOVES.get((self.phase, stimulus))
        if after is None:
            raise IllegalMove(f"{stimulus.name} in {self.phase.name}")
        self.phase = after

    def _end(self, stimulus: Stimulus, code: int, reason: str) -> list[Action]:
        self._move(stimulus)
        return [End(code, reason)]

    # --- the first frame ----------------------------------------------------------------------------------------------

    def _connect(self, text: str) -> list[Action]:
        if len(text) > self._limits.first_frame_bytes or len(text.encode()) > self._limits.first_frame_bytes:
            return self._end(Stimulus.BROKEN, CloseCode.TOO_LARGE, "the first frame is too large")
        try:
            frame = read_frame(text)
        except BadFrame as exc:
            return self._refuse_connect(exc.request_id, ConnectRefused(exc.message))
        if frame.method != "connect":
            return self._refuse_connect(frame.id, ConnectRefused("the first request must be connect"))
        try:
            admission = decide(frame.params, nonce=self._nonce, known=self._known, authenticate=self._authenticate)
        except ConnectRefused as exc:
            return self._refuse_connect(frame.id, exc)
        self._move(Stimulus.ADMITTED)
        return [Admit(frame.id, admission)]

    def _refuse_connect(self, request_id: str | None, refusal: ConnectRefused) -> list[Action]:
        ending = self._end(Stimulus.REFUSED, refusal.close_code, refusal.message)
        return [*_refusal(request_id, refusal), *ending]

    # --- requests -----------------------------------------------------------------------------------------------------

    def _request(self, text: str) -> list[Action]:
        try:
            frame = read_frame(text)
        except BadFrame as exc:
            return self._refuse_frame(exc)
        self._move(Stimulus.REQUEST)
        try:
            self._check(frame)
        except PoolError as exc:
            return _refusal(frame.id, exc)
        self._refused_in_a_row = 0
        self._in_flight.add(frame.id)
        return [Serve(frame)]

    def _check(self, frame: Incoming) -> None:
        if frame.id in self._in_flight:
            raise UsageError(f"a request with the id {frame.id!r} is still in flight; use another")
        if frame.method == "connect":
            raise UsageError("this connection is connected already")
        if len(self._in_flight) >= self._limits.max_requests:
            text = f"{self._limits.max_requests} requests of this connection have no answer yet, which is the limit"
            raise PoolSaturated(text, retry_after=1.0)

    def _refuse_frame(self, refusal: BadFrame) -> list[Action]:
        self._refused_in_a_row += 1
        answer = _refusal(refusal.request_id, refusal)
        if not answer or self._refused_in_a_row > self._limits.max_refused:
            return [*answer, *self._end(Stimulus.BROKEN, CloseCode.POLICY, refusal.message)]
        self._move(Stimulus.REQUEST)
        return answer


def _refusal(request_id: str | None, error: PoolError) -> list[Action]:
    return [] if request_id is None else [Say(encode_refusal(request_id, error_shape(error)))]
