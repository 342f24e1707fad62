"""One forwarded request.

One request of a front end on its way: it is answered at most once, by the worker or in its place.

What an attached session asks of the gateway around it.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, runtime_checkable

import trio

from errors import PoolError
from gateway.attachments.front_end_rules import Kind, Manners
from gateway.runs.run import Run
from pool import Lease, Pool
from profiles import CapabilityProfile
from rpc.passthrough import RawObject, RawRequest
from wire.messages import SessionResult


class _Port(Protocol):
    @property
    def manners(self) -> Manners: ...


class Asker(Protocol):
    """Whose request it is."""

    @property
    def port(self) -> _Port:
        """What it is attached to."""
        ...

    @property
    def principal(self) -> str:
        """Who asks."""
        ...

    def tell(self, lines: Iterable[bytes]) -> None:
        """Hand over lines."""
        ...

    def tell_words(self, words: str) -> None:
        """Hand over what the worker has written to its stderr."""
        ...

    def settled(self, pending: "Pending") -> None:
        """It is over."""
        ...

    def leave(self) -> None:
        """The front end wants to be left."""
        ...


class Pending:
    """``begun`` is set once the worker was sent it, or never will be."""

    def __init__(self, asker: Asker, command: RawObject) -> None:
        manners = asker.port.manners
        self.asker = asker
        self.command = command
        self.kind: Kind = manners.kind_of(command)
        self.name = manners.name_of(command) or ""
        self.begun = trio.Event()
        self.run: Run | None = None
        self.request: str | None = None
        """By which the worker's answer is known."""
        self.is_answered = False

    @property
    def is_owed(self) -> bool:
        """Whether a front end that says nothing more still waits for the answer: a run may take as long as it takes."""
        return not (self.kind is Kind.PROMPT and self.begun.is_set())

    def sent(self, request: str) -> None:
        """The worker was sent it."""
        self.request = request
        self.begun.set()

    def refuse(self, error: PoolError) -> None:
        """It failed: say so, unless the worker has answered."""
        if not self.is_answered:
            self.answer(self.asker.port.manners.refusal(self.command, error))
        self.finish()

    def answer(self, line: bytes) -> None:
        """This is its answer."""
        self.is_answered = True
        self.asker.tell((line,))

    def finish(self) -> None:
        """Nothing more will come of it."""
        self.begun.set()
        self.asker.settled(self)


@runtime_checkable
class QuickCaller(Protocol):
    """A ``Caller`` of a door that can push without waiting."""

    def push_now(self, event: str, data: bytes) -> bool:
        """See ``Caller.push_encoded``; False where that would wait: nothing was pushed then."""
        ...


class AttachmentDesk(Protocol):
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

    def accept_raw(self, session: str, text: str, principal: str, raw: RawRequest) -> Run:
        """See ``Intake.accept_raw``."""
        ...

    def abort(self, run: Run) -> Any:
        """End a run."""
        ...

    def lease_of(self, session: str) -> Lease | None:
        """The worker on which a turn of the session runs now."""
        ...

    def running(self, session: str) -> list[str]:
        """The session's commands in the background, in words."""
        ...

    def owner_of(self, path: str) -> str | None:
        """Whose conversation lies in this file; None for nobody's."""
        ...

    async def give_up(self, session: str) -> bool:
        """Forget a session that was made for a front end, so that another one can use its transcript.

        False where it was not made for one, where a front end is attached to it, or something runs in it. Raises
        PoolError where its worker does not close the transcript.
        """
        ...

    def altered(self, worker: str) -> None:
        """The worker was changed at run time: nobody else may have it."""
        ...

    def moved(self, lease: Lease, held: SessionResult) -> None:
        """The session has another conversation now."""
        ...
