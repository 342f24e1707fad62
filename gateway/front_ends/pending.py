"""One forwarded request of a front end: answered at most once, by the worker or in its place."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import trio

from errors import PoolError
from gateway.front_ends.protocol import RequestKind
from gateway.runs.run import Run
from rpc.passthrough import RawObject

if TYPE_CHECKING:
    from gateway.front_ends.attachment import Attachment


class ForwardedRequest:
    """``dispatched`` is set once the request is sent to the worker, or never will be."""

    def __init__(self, front_end: "Attachment", command: RawObject) -> None:
        protocol = front_end.attached_session.protocol
        self.front_end = front_end
        self.command = command
        self.kind: RequestKind = protocol.kind_of(command)
        self.name = protocol.name_of(command) or ""
        self.dispatched = trio.Event()
        self.run: Run | None = None
        self.request_id: str | None = None
        """The id that the worker's answer carries."""
        self.is_answered = False

    @property
    def needs_answer(self) -> bool:
        """Whether a front end that has closed its input still waits for the answer; not for one of a run."""
        return not (self.kind is RequestKind.PROMPT and self.dispatched.is_set())

    def mark_sent(self, request: str) -> None:
        """The request was sent to the worker under this id."""
        self.request_id = request
        self.dispatched.set()

    def fail(self, error: PoolError) -> None:
        """Answer with the error, unless the worker has answered."""
        if not self.is_answered:
            self.answer(self.front_end.attached_session.protocol.error_reply(self.command, error))
        self.finish()

    def answer(self, line: bytes) -> None:
        """Send the answer to the front end."""
        self.is_answered = True
        self.front_end.send_lines((line,))

    def finish(self) -> None:
        """Settle the request: nothing more follows."""
        self.dispatched.set()
        self.front_end.on_settled(self)


@runtime_checkable
class NonBlockingCaller(Protocol):
    """A ``Caller`` of a door that can push without waiting."""

    def push_now(self, event: str, data: bytes) -> bool:
        """Push like ``Caller.push_encoded``; False if that would wait: nothing was pushed."""
        ...
