"""Callers that wait for a worker: one ticket per request, settled exactly once by a grant or an error."""

import trio

from errors import PoolError
from pool.actions import Grant, Reject
from rpc.pending import own_error

__all__ = ["Ticket", "Tickets"]


class Ticket:
    """The place where one caller waits."""

    def __init__(self) -> None:
        self._settled = trio.Event()
        self._grant: Grant | None = None
        self._error: PoolError | None = None

    def settle(self, grant: Grant | None, error: PoolError | None) -> None:
        """Give the caller its outcome."""
        self._grant, self._error = grant, error
        self._settled.set()

    def outcome(self) -> Grant:
        """The grant, or the error raised; trio.WouldBlock before it is settled.

        The machine may give one error to many callers, or to the same session for ever: each raises a copy of its own,
        since an exception keeps the frames of everybody who ever raised it.
        """
        if self._grant is not None:
            return self._grant
        if self._error is None:
            raise trio.WouldBlock
        raise own_error(self._error)

    async def wait(self) -> Grant:
        """Wait to be settled. A checkpoint in any case."""
        await self._settled.wait()
        return self.outcome()


class Tickets:
    """All open tickets by request id. A caller that left has closed its ticket, so nothing reaches it any more."""

    def __init__(self) -> None:
        self._open: dict[str, Ticket] = {}

    def open(self, request: str) -> Ticket:
        """A ticket for a new request."""
        ticket = self._open[request] = Ticket()
        return ticket

    def close(self, request: str) -> None:
        """The caller no longer waits."""
        del self._open[request]

    def grant(self, grant: Grant) -> None:
        """The machine granted a request."""
        self._open[grant.request].settle(grant, None)

    def reject(self, reject: Reject) -> None:
        """The machine refused a request."""
        self._open[reject.request].settle(None, reject.error)
