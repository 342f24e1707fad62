"""Tracks the requests of a run: ids, nonces, events, transcripts, each as facts.

The nonce of each request identifies stray answers. ``read_transcripts`` reads files.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stress.arrivals import Arrival
from stress.facts import (
    Journal,
    OutcomeRemembered,
    PoolEvent,
    PromptOccurrences,
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
    """``numbers`` of requests in order of their nonces in a text; ``unknown``: nonces of no request."""

    numbers: tuple[int, ...]
    unknown: tuple[str, ...]


class Nonces:
    """The nonces of one run, derived from its seed, so none has to be stored."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def word(self, number: int) -> str:
        """The nonce of a request."""
        return f"n{number:07}x{self._digest(number)}"

    def find(self, text: str) -> NonceMatches:
        """All nonces in a text."""
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
"""Event types that are followed."""
_UNKNOWN_RUN_CODE = "usage"
"""Error code for a run that the supervisor does not know."""


class _EventError(msgspec.Struct, frozen=True):
    code: str = ""


class _EventData(msgspec.Struct, frozen=True):
    """Fields of all followed events."""

    worker: str | None = None
    reason: str = ""
    cause: str = ""
    text: str = ""
    error: _EventError | str | None = None


_decode_event = msgspec.json.Decoder(_EventData).decode


class RequestTracker:
    """``open``: sessions of requests without an outcome, by number; ``accepted_numbers``: those accepted.

    ``bookmark``: the last event received; None = none yet, so the position of the stream is unknown.
    """

    def __init__(self, nonces: Nonces, journal: Journal, *, prefix: str) -> None:
        """``prefix``: of the ids of this run's requests, unique to it."""
        self.open: dict[int, str] = {}
        self.accepted_numbers: dict[int, None] = {}
        self.bookmark: int | None = None
        self._nonces = nonces
        self._journal = journal
        self._prefix = f"{prefix}-"

    def run_id(self, number: int) -> str:
        """The id of a request, which is also its idempotency key."""
        return f"{self._prefix}{number}"

    def number_of(self, run_id: str) -> int | None:
        """The request of that id; None = of another client."""
        return int(run_id.removeprefix(self._prefix)) if run_id.startswith(self._prefix) else None

    def open_request(self, arrival: Arrival, timeout: float) -> dict[str, Any]:
        """Open the request; the parameters of the method ``agent``."""
        self.open[arrival.number] = arrival.session
        self._journal.record(
            RequestAsked(
                t=self._journal.now(),
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

    def on_accepted(self, number: int, answer: dict[str, Any]) -> None:
        """The answer to ``agent``; the outcome may have come before it."""
        if number in self.open:
            self.accepted_numbers[number] = None
        self._journal.record(RequestAccepted(t=self._journal.now(), number=number, at=answer["accepted_at"]))

    def on_refused(self, number: int, error: ErrorBody) -> None:
        """The error that answered ``agent``."""
        self._close(number)
        self._journal.record(RequestRefused(t=self._journal.now(), number=number, code=error.code))

    def on_outcome(self, number: int, answer: dict[str, Any]) -> None:
        """The answer to ``agent.wait``. It closes nothing: the event stream must report the outcome too."""
        is_live = answer.get("status") == "timeout"
        error = answer.get("error") or {}
        reason = "live" if is_live else answer.get("reason", "completed")
        self._journal.record(
            OutcomeRemembered(t=self._journal.now(), number=number, reason=reason, code=error.get("code", ""))
        )

    def on_unknown(self, number: int, error: ErrorBody) -> None:
        """The error that answered ``agent.wait``; only this code says that the request is unknown."""
        if error.code == _UNKNOWN_RUN_CODE:
            self._close(number)
            self._journal.record(RequestForgotten(t=self._journal.now(), number=number))

    def on_event(self, event: EventEnvelope) -> None:
        """The next event of the stream, on any connection."""
        if self.bookmark is not None and event.seq <= self.bookmark:
            self._journal.record_violation(f"event {event.seq} ({event.type}) came after {self.bookmark}")
        self.bookmark = max(self.bookmark or 0, event.seq)
        data = _decode_event(event.data)
        if event.type in _POOL_EVENTS:
            why = data.reason or data.cause
            self._journal.record(
                PoolEvent(
                    t=self._journal.now(),
                    what=event.type,
                    worker=data.worker or "",
                    session=event.session,
                    why=why,
                    at=event.ts,
                )
            )
        elif event.run_id is not None and (number := self.number_of(event.run_id)) is not None:
            self._on_run_event(number, event, data)

    def _close(self, number: int) -> None:
        self.open.pop(number, None)
        self.accepted_numbers.pop(number, None)

    def _on_run_event(self, number: int, event: EventEnvelope, data: _EventData) -> None:
        if event.type == "run:start":
            self._journal.record(
                RequestStarted(t=self._journal.now(), number=number, worker=data.worker or "", at=event.ts)
            )
            return
        found = self._nonces.find(data.text)
        self._close(number)
        code = data.error.code if isinstance(data.error, _EventError) else ""
        self._journal.record(
            RequestAnswered(
                t=self._journal.now(),
                number=number,
                reason=data.reason,
                code=code,
                at=event.ts,
                session=event.session,
                said=found.numbers,
                strange=found.unknown,
            )
        )


# --- transcripts ------------------------------------------------------------------------------------------------------


class _PromptMessage(msgspec.Struct):
    role: str = ""
    content: Any = None


class _TranscriptLine(msgspec.Struct):
    message: _PromptMessage | None = None


_decode_line = msgspec.json.Decoder(_TranscriptLine).decode


def read_transcripts(
    folder: Path | None, owners: Mapping[str, str], sessions: Mapping[int, str], nonces: Nonces, t: float
) -> Iterator[PromptOccurrences]:
    """Read the files. ``owners``: path of a transcript to its session; ``sessions``: of each request.

    ``folder``: all transcripts in it are this run's; a file without an owner, such as one set aside, belongs to the
    session of its first prompt. None: only the owners' files are read.
    """
    own, foreign = Counter[int](), Counter[int]()
    paths = [Path(path) for path in owners] if folder is None else sorted(folder.rglob("*.jsonl"))
    for path in paths:
        session = owners.get(str(path))
        for number in _prompts(path, nonces):
            session = session or sessions.get(number)
            (own if sessions.get(number) == session else foreign)[number] += 1
    for number in sessions:
        yield PromptOccurrences(t=t, number=number, own=own[number], foreign=foreign[number])


def _prompts(path: Path, nonces: Nonces) -> Iterator[int]:
    """The requests whose prompts stand in a file; the last line may be cut off by a kill."""
    with path.open("rb") as lines:
        for line in lines:
            if b'"user"' not in line or not line.endswith(b"\n"):
                continue
            message = _decode_line(line).message
            if message is not None and message.role == "user":
                yield from nonces.find(_text_of(message.content)).numbers


def _text_of(content: Any) -> str:
    """The text of a message, of one or several parts, unescaped: an escape before a nonce would hide it."""
    parts = content if isinstance(content, list) else [content]
    return "\n".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in parts)
