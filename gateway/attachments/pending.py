"""One forwarded request.

One request of a front end on its way: it is answered at most once, by the worker or in its place.

What an attached session asks of the gateway around it.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, runtime_checkable

import trio

from errors import PoolError
from gateway.attachments.front_end_protocol import FrontEndProtocol, RequestKind
from gateway.runs.run import Run
from pool import Lease, Pool
from profiles import CapabilityProfile
from rpc.passthrough import RawObject, RawRequest
from wire.messages import SessionResult


class _AttachedSession(Protocol):
    @property
    def protocol(self) -> FrontEndProtocol: ...


class FrontEnd(Protocol):
    """Whose request it is."""

    @property
    def attached_session(self) -> _AttachedSession:
        """What it is attached to."""
        ...

    @property
    def principal(self) -> str:
        """Who asks."""
        ...

    def send_lines(self, lines: Iterable[bytes]) -> None:
        """Hand over lines."""
        ...

    def send_stderr(self, words: str) -> None:
        """Hand over what the worker has written to its stderr."""
        ...

    def on_settled(self, pending: "ForwardedRequest") -> None:
        """It is over."""
        ...

    def detach(self) -> None:
        """The front end wants to be left."""
        ...


class ForwardedRequest:
    """``begun`` is set once the worker was sent it, or never will be."""

    def __init__(self, asker: FrontEnd, command: RawObject) -> None:
        manners = asker.attached_session.protocol
        self.front_end = asker
        self.command = command
        self.kind: RequestKind = manners.kind_of(command)
        self.name = manners.name_of(command) or ""
        self.dispatched = trio.Event()
        self.run: Run | None = None
        self.request_id: str | None = None
        """By which the worker's answer is known."""
        self.is_answered = False

    @property
    def needs_answer(self) -> bool:
        """Whether a front end that says nothing more still waits for the answer: a run may take as long as it takes."""
        return not (self.kind is RequestKind.PROMPT and self.dispatched.is_set())

    def mark_sent(self, request: str) -> None:
        """The worker was sent it."""
        self.request_id = request
        self.dispatched.set()

    def fail(self, error: PoolError) -> None:
        """It failed: say so, unless the worker has answered."""
        if not self.is_answered:
            self.answer(self.front_end.attached_session.protocol.error_reply(self.command, error))
        self.finish()

    def answer(self, line: bytes) -> None:
        """This is its answer."""
        self.is_answered = True
        self.front_end.send_lines((line,))

    def finish(self) -> None:
        """Nothing more will come of it."""
        self.dispatched.set()
        self.front_end.on_settled(self)


@runtime_checkable
class NonBlockingCaller(Protocol):
    """A ``Caller`` of a door that can push without waiting."""

    def push_now(self, event: str, data: bytes) -> bool:
        """See ``Caller.push_encoded``; False where that would wait: nothing was pushed then."""
        ...


class AttachmentContext(Protocol):
    """Implemented by ``gateway.attachments.attachments.Attachments``."""

    @property
    def pool(self) -> Pool:
        """Where workers come from."""
        ...

    def start_soon(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run something that outlives the request, as long as the gateway does."""
        ...

    async def profile_of(self, session: str) -> CapabilityProfile:
        """What the session's worker must be able to do now."""
        ...

    def accept_passthrough(self, session: str, text: str, principal: str, raw: RawRequest) -> Run:
        """See ``Intake.accept_raw``."""
        ...

    def abort(self, run: Run) -> Any:
        """End a run."""
        ...

    def lease_of(self, session: str) -> Lease | None:
        """The worker on which a turn of the session runs now."""
        ...

    def background_commands(self, session: str) -> list[str]:
        """The session's commands in the background, in words."""
        ...

    def owner_of(self, path: str) -> str | None:
        """Whose conversation lies in this file; None for nobody's."""
        ...

    async def release_transcript(self, session: str) -> bool:
        """Forget a session that was made for a front end, so that another one can use its transcript.

        False where it was not made for one, where a front end is attached to it, or something runs in it. Raises
        PoolError where its worker does not close the transcript.
        """
        ...

    def mark_modified(self, worker: str) -> None:
        """The worker was changed at run time: nobody else may have it."""
        ...

    def conversation_changed(self, lease: Lease, held: SessionResult) -> None:
        """The session has another conversation now."""
        ...
