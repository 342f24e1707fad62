"""What an attached session asks of the gateway around it."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

from gateway.run import Run
from pool import Lease, Pool
from profiles import CapabilityProfile
from rpc.raw import RawRequest
from wire.messages import SessionResult

__all__ = ["AttachmentDesk", "QuickCaller"]


@runtime_checkable
class QuickCaller(Protocol):
    """A ``Caller`` of a door that can push without waiting."""

    def push_now(self, event: str, data: bytes) -> bool:
        """See ``Caller.push_encoded``; False where that would wait: nothing was pushed then."""
        ...


class AttachmentDesk(Protocol):
    """Implemented by ``gateway.attachments.desk.Attachments``."""

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
