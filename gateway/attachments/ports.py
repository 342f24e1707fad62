"""What an attached session asks of the gateway around it."""

from collections.abc import Callable
from typing import Any, Protocol

from gateway.run import Run
from pool import Lease, Pool
from profiles import CapabilityProfile
from rpc.raw import RawRequest
from wire.messages import SessionResult

__all__ = ["AttachmentDesk"]


class AttachmentDesk(Protocol):
    """Implemented by ``gateway.attachments.desk.Attachments``."""

    @property
    def pool(self) -> Pool:
        """Where workers come from."""
        ...

    @property
    def start_soon(self) -> Callable[..., None]:
        """Run something that outlives the request."""
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

    def owner_of(self, path: str) -> str | None:
        """Whose conversation lies in this file; None for nobody's."""
        ...

    def altered(self, worker: str) -> None:
        """The worker was changed at run time: nobody else may have it."""
        ...

    def moved(self, lease: Lease, held: SessionResult) -> None:
        """The session has another conversation now."""
        ...
