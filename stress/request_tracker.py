"""Open requests by id, as facts, and the nonce of each request, by which a stray answer is recognised. Pure.

Every method is given the time.
"""

import hashlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from stress.arrivals import Arrival
from stress.facts import (
    DirectViolation,
    Fact,
    OutcomeRemembered,
    PoolEvent,
    RequestAccepted,
    RequestAnswered,
    RequestAsked,
    RequestForgotten,
    RequestRefused,
    RequestStarted,
)
from wire.messages import ErrorBody, EventEnvelope

_NONCE = re.compile(r"\bn(\d{7,10})x([0-9a-f]{8})\b")


class NonceMatches(NamedTuple):
    """``numbers`` of requests in the order in which their words stand there; ``strange``: words that none was given."""

    numbers: tuple[int, ...]
    unknown: tuple[str, ...]


class Nonces:
    """The words of one run. They follow from its seed, so that none has to be remembered."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def word(self, number: int) -> str:
        """The word of a request."""
        return f"n{number:07}x{self._digest(number)}"

    def find(self, text: str) -> NonceMatches:
        """Every such word in a text."""
        found = [(int(match[1]), match[0]) for match in _NONCE.finditer(text)]
        numbers = tuple(number for number, word in found if word == self.word(number))
        return NonceMatches(numbers, tuple(word for number, word in found if word != self.word(number)))

    def _digest(self, number: int) -> str:
        return hashlib.blake2b(f"{self._seed}:{number}".encode(), digest_size=4).hexdigest()


_POOL_EVENTS = (
    "session_bound",
    "session_parked",
    "session_failed",
    "worker_spawned",
    "worker_evicted",
    "worker_exited",
)
EVENT_KINDS = ("run:start", "done", *_POOL_EVENTS)
"""What is followed of the event stream."""
_UNKNOWN_RUN_CODE = "usage"
"""The code with which the supervisor says that it knows no such run."""


class _EventError(msgspec.Struct, frozen=True):
    code: str = ""


class _EventData(msgspec.Struct, frozen=True):
    """Of the events that are followed, whatever they are."""

    worker: str | None = None
    reason: str = ""
    cause: str = ""
    text: str = ""
    error: _EventError | str | None = None


_decode = msgspec.json.Decoder(_EventData).decode


class RequestTracker:
    """``open``: the sessions of requests that have no outcome yet, by number; ``promised``: those accepted.

    ``bookmark``: the last event that was heard; None = there was none, and the position of the stream is unknown.
    """

    def __init__(self, nonces: Nonces, record: Callable[[Fact], None], *, prefix: str) -> None:
        """``prefix``: what the ids of this run's requests begin with, which no other run's do."""
        self.open: dict[int, str] = {}
        self.accepted_numbers: dict[int, None] = {}
        self.bookmark: int | None = None
        self._nonces = nonces
        self._record = record
        self._prefix = f"{prefix}-"

    def run_id(self, number: int) -> str:
        """The id, and idempotency key, of a request."""
        return f"{self._prefix}{number}"

    def number_of(self, run_id: str) -> int | None:
        """The request of that id; None = somebody else's."""
        return int(run_id.removeprefix(self._prefix)) if run_id.startswith(self._prefix) else None

    def open_request(self, arrival: Arrival, timeout: float, t: float) -> dict[str, Any]:
        """Open the request; the parameters of the method ``agent``."""
        self.open[arrival.number] = arrival.session
        self._record(
            RequestAsked(
                t=t,
                number=arrival.number,
                session=arrival.session,
                profile=f"{arrival.agent}/{arrival.role}",
                priority=arrival.priority,
                timeout=timeout,
                turn=arrival.turn,
                faulty=arrival.faulty,
            )
        )
        delay = f"DELAY={round(arrival.turn * 1000)} " if arrival.turn else ""
        return {
            "run": self.run_id(arrival.number),
            "text": f"{delay}{arrival.prefix}{self._nonces.word(arrival.number)}",
            "session": arrival.session,
            "agent": arrival.agent,
            "role": arrival.role,
            "priority": arrival.priority,
            "timeout": timeout,
            "queue": "followup",
        }

    def on_accepted(self, number: int, answer: dict[str, Any], t: float) -> None:
        """The answer to ``agent``; the outcome may have been heard before it."""
        if number in self.open:
            self.accepted_numbers[number] = None
        self._record(RequestAccepted(t=t, number=number, at=answer["accepted_at"]))

    def on_refused(self, number: int, error: ErrorBody, t: float) -> None:
        """The error that answered ``agent``."""
        self._close(number)
        self._record(RequestRefused(t=t, number=number, code=error.code))

    def on_outcome(self, number: int, answer: dict[str, Any], t: float) -> None:
        """The answer to ``agent.wait``. Its outcome closes nothing: the stream of events has to tell it too."""
        is_live = answer.get("status") == "timeout"
        error = answer.get("error") or {}
        reason = "live" if is_live else answer.get("reason", "completed")
        self._record(OutcomeRemembered(t=t, number=number, reason=reason, code=error.get("code", "")))

    def on_unknown(self, number: int, error: ErrorBody, t: float) -> None:
        """The error that answered ``agent.wait``; any other than this one says nothing of the request."""
        if error.code == _UNKNOWN_RUN_CODE:
            self._close(number)
            self._record(RequestForgotten(t=t, number=number))

    def on_event(self, event: EventEnvelope, t: float) -> None:
        """The next event of the stream, whatever the connection."""
        if self.bookmark is not None and event.seq <= self.bookmark:
            self._record(DirectViolation(t=t, what=f"event {event.seq} ({event.type}) came after {self.bookmark}"))
        self.bookmark = max(self.bookmark or 0, event.seq)
        data = _decode(event.data)
        if event.type in _POOL_EVENTS:
            why = data.reason or data.cause
            self._record(
                PoolEvent(t=t, what=event.type, worker=data.worker or "", session=event.session, why=why, at=event.ts)
            )
        elif event.run_id is not None and (number := self.number_of(event.run_id)) is not None:
            self._on_run_event(number, event, data, t)

    def _close(self, number: int) -> None:
        self.open.pop(number, None)
        self.accepted_numbers.pop(number, None)

    def _on_run_event(self, number: int, event: EventEnvelope, data: _EventData, t: float) -> None:
        if event.type == "run:start":
            self._record(RequestStarted(t=t, number=number, worker=data.worker or "", at=event.ts))
            return
        found = self._nonces.find(data.text)
        self._close(number)
        code = data.error.code if isinstance(data.error, _EventError) else ""
        self._record(
            RequestAnswered(
                t=t,
                number=number,
                reason=data.reason,
                code=code,
                at=event.ts,
                session=event.session,
                said=found.numbers,
                strange=found.unknown,
            )
        )
