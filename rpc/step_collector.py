"""What one step of a sans-IO dialect writes and publishes: requests that wait for an answer, numbered events."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from errors import UsageError, WorkerRefused
from rpc.dialect import JournalWrite, Step
from rpc.passthrough import RawLine
from rpc.run_events import EventStamp
from wire.framing import DecodedBlock
from wire.messages import ErrorBody, Message

A = TypeVar("A")


class StepCollector:
    """One instance per dialect; each request is answered exactly once. ``now``: the time of the step at hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self._encode = msgspec.json.Encoder().encode
        self._unanswered: set[str] = set()
        self._seq = 0
        self._outgoing: list[bytes] = []
        self._messages: list[Message] = []
        self._raw: list[RawLine] = []
        self._journal: list[JournalWrite] = []

    def begin(self, handler: Callable[[str, A], None], request_id: str, asked: A, now: float) -> Step:
        """A request has come, which ``handler`` answers now or later; where it raises UsageError, nothing was sent."""
        self.now = now
        self._unanswered.add(request_id)
        try:
            handler(request_id, asked)
        except UsageError:
            self.forget(request_id)
            raise
        return self.collect_step()

    def forget(self, request_id: str) -> None:
        """Stop waiting; the answer will be dropped."""
        self._unanswered.discard(request_id)

    def answer(self, request_id: str, result: object) -> None:
        """Answer a request; ``result`` is encoded here."""
        if self._was_settled(request_id):
            return
        raw = result if isinstance(result, msgspec.Raw) else msgspec.Raw(self._encode(result))
        self._messages.append(Message(id=request_id, result=raw))

    def reject(self, request_id: str, code: str, message: str) -> None:
        """Answer a request with an error."""
        if not self._was_settled(request_id):
            self._messages.append(Message(id=request_id, error=ErrorBody(code, message)))

    def reject_for(self, request_id: str, error: WorkerRefused) -> None:
        """Answer a request with what its procedure has failed with."""
        self.reject(request_id, error.details.get("worker_code", "refused"), error.message)

    def _was_settled(self, request_id: str) -> bool:
        if request_id not in self._unanswered:
            return True
        self._unanswered.discard(request_id)
        return False

    def emit(self, name: str, data: object) -> None:
        """Emit an event."""
        self._messages.append(Message(event=name, data=msgspec.Raw(self._encode(data))))

    def stamp(self, run_id: str | None = None) -> EventStamp:
        """The next number of this process's events."""
        self._seq += 1
        return EventStamp(run_id, self._seq)

    def record(self, entry: JournalWrite) -> None:
        """Have an entry appended to a transcript before the step's lines are written."""
        self._journal.append(entry)

    def collect_step(self, decoded: DecodedBlock[Any] | None = None) -> Step:
        """Everything collected since the last call."""
        messages, self._messages = self._messages, []
        outgoing, self._outgoing = self._outgoing, []
        raw, self._raw = tuple(self._raw), []
        journal, self._journal = tuple(self._journal), []
        if decoded is None:
            return Step(messages, outgoing, [], raw=raw, journal=journal)
        return Step(messages, outgoing, *decoded[1:], raw, journal)
