"""What is open on one ACP agent's pipe: our requests under their ids, deadlines, text that waits to be joined."""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from errors import WorkerRefused
from rpc.acp.messages import AcpAnswer, AcpError, AcpLine, read_answer
from rpc.dialect import Step
from rpc.procedure import run_procedure
from rpc.run_events import EventStamp
from rpc.step_collector import StepCollector
from wire.framing import DecodedBlock
from wire.messages import AssistantMessage

R = TypeVar("R")
OnAcpAnswer = Callable[[AcpAnswer], None]

TIMED_OUT = "timed_out"


class AcpRequest(NamedTuple):
    """A request to the agent.

    ``seconds``: how long its answer may take, None for any time; with ``limit`` each line of the agent gives it those
    seconds again, up to ``limit`` in all.
    """

    method: str
    params: dict[str, Any]
    seconds: float | None = None
    limit: float | None = None


AcpProcedure = Generator[AcpRequest, AcpAnswer, R]
"""Yields requests and gets their good answers; WorkerRefused is thrown in for the others."""


class _SentRequest:
    __slots__ = ("deadline", "limit", "on_answer", "seconds")

    def __init__(self, on_answer: OnAcpAnswer, now: float, seconds: float | None, limit: float | None) -> None:
        self.on_answer = on_answer
        self.seconds = seconds
        self.deadline = None if seconds is None else now + seconds
        self.limit = None if limit is None else now + limit

    def extend(self, now: float) -> None:
        if self.limit is not None and self.seconds is not None:
            self.deadline = min(now + self.seconds, self.limit)


class AcpLink(StepCollector):
    """One instance per dialect. ``strays``: answers that belong to no request, errors without an id included."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[int, _SentRequest] = {}
        self._last_id = 0
        self._pieces: list[str] = []
        self._pieces_event = ""
        self._pieces_run: str | None = None
        self.strays = 0

    # --- towards the agent ---

    def send(self, request: AcpRequest, on_answer: OnAcpAnswer) -> int:
        """Write a request; ``on_answer`` gets its one answer, or an error when its time is over."""
        self._last_id += 1
        wire_id = self._last_id
        self._open[wire_id] = _SentRequest(on_answer, self.now, request.seconds, request.limit)
        self._write({"jsonrpc": "2.0", "id": wire_id, "method": request.method, "params": request.params})
        return wire_id

    def drop(self, wire_id: int) -> None:
        """Stop waiting for an answer; a late one is a stray."""
        self._open.pop(wire_id, None)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Write a notification."""
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def respond(self, identity: object, result: object) -> None:
        """Answer a request of the agent."""
        self._write({"jsonrpc": "2.0", "id": identity, "result": result})

    def refuse(self, identity: object, code: int, message: str) -> None:
        """Answer a request of the agent with an error."""
        self._write({"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": message}})

    def _write(self, message: dict[str, Any]) -> None:
        self._outgoing.append(self._encode(message) + b"\n")

    def run(
        self, procedure: AcpProcedure[R], finish: Callable[[R], None], fail: Callable[[WorkerRefused], None]
    ) -> None:
        """Run a procedure; one of the two is called at its end."""
        run_procedure(procedure, self._perform, finish, fail)

    def _perform(self, request: AcpRequest, resume: Callable[[AcpAnswer | WorkerRefused], None]) -> None:
        def answered(answer: AcpAnswer) -> None:
            resume(answer if answer.error is None else refusal(request.method, answer.error))

        self.send(request, answered)

    # --- from the agent ---

    def deliver(self, line: AcpLine) -> None:
        """Give an answer to the sender of the request; one that nothing waits for is counted."""
        wire_id = line.id
        sent = self._open.pop(wire_id, None) if type(wire_id) is int else None  # true would be 1
        if sent is None:
            self.strays += 1
        else:
            sent.on_answer(read_answer(line))

    def note_life(self) -> None:
        """The agent has written something: deadlines that move with it are moved."""
        for sent in self._open.values():
            if sent.limit is not None:
                sent.extend(self.now)

    def next_deadline(self) -> float | None:
        """When the first answer is late."""
        return min((sent.deadline for sent in self._open.values() if sent.deadline is not None), default=None)

    def expire(self) -> None:
        """Answer for the agent where it is late."""
        late = [key for key, sent in self._open.items() if sent.deadline is not None and sent.deadline <= self.now]
        for key in late:
            sent = self._open.pop(key, None)
            if sent is not None:
                sent.on_answer(AcpAnswer({}, AcpError(None, TIMED_OUT)))

    # --- towards the layer above ---

    def add_text(self, event: str, run_id: str | None, text: str) -> None:
        """A piece of running text; those of one step become one event where nothing comes between them."""
        if self._pieces and (event != self._pieces_event or run_id != self._pieces_run):
            self._flush()
        self._pieces_event, self._pieces_run = event, run_id
        self._pieces.append(text)

    def stamp(self, run_id: str | None = None) -> EventStamp:
        """The next number of this process's events, after the text that came before."""
        self._flush()
        return super().stamp(run_id)

    def emit(self, name: str, data: object) -> None:
        """Emit an event, after the text that came before it."""
        self._flush()
        super().emit(name, data)

    def answer(self, request_id: str, result: object) -> None:
        """Answer a request, after the text that came before it."""
        self._flush()
        super().answer(request_id, result)

    def collect_step(self, decoded: DecodedBlock[Any] | None = None) -> Step:
        """Everything collected since the last call."""
        self._flush()
        return super().collect_step(decoded)

    def _flush(self) -> None:
        if not self._pieces:
            return
        text, self._pieces = "".join(self._pieces), []
        super().emit(self._pieces_event, AssistantMessage(text, *self.stamp(self._pieces_run)))


def refusal(method: str, error: AcpError) -> WorkerRefused:
    """The error that a procedure gets for a bad answer; ``worker_code`` is ``timeout`` where none has come."""
    if error.code is None and error.message == TIMED_OUT:
        return WorkerRefused(f"the agent did not answer {method} in time", worker_code="timeout")
    return WorkerRefused(error.text, worker_code="agent_error", agent_code=error.code)
