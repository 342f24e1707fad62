"""Which processes are our own children: the one list that the reaper, the state file and the status read."""

import trio

from rpc.procfs import ProcessIdentity

__all__ = ["ChildRegistry"]


_SCANS = 4  # more would fight the event loop for the interpreter when many workers end at once


class ChildRegistry:
    """Children that somebody of us waits for. A pid enters in the step that spawns it and leaves in the one that reaps.

    Whoever starts a process by other means while an orphan reaper runs registers it here too, or starts it without a
    session of its own (the reaper leaves those alone).
    """

    def __init__(self) -> None:
        self._children: dict[int, ProcessIdentity] = {}
        self._changed = trio.Event()
        self.scans = trio.CapacityLimiter(_SCANS)
        """How many threads may look through /proc for somebody's descendants at the same time."""

    def register(self, child: ProcessIdentity) -> None:
        """A child was spawned; call it before anything else can run."""
        self._children[child.pid] = child
        self._changed.set()

    def forget(self, pid: int) -> None:
        """A child was reaped; its pid may belong to a stranger from now on."""
        if self._children.pop(pid, None) is not None:
            self._changed.set()

    def __contains__(self, pid: int) -> bool:
        return pid in self._children

    def pids(self) -> set[int]:
        """All registered pids."""
        return set(self._children)

    def workers(self) -> list[ProcessIdentity]:
        """The children that carry a marker, oldest first."""
        return [child for child in self._children.values() if child.marker]

    async def wait_change(self) -> None:
        """Wait until the list has changed since the last call; changes in between count once. For one waiter."""
        await self._changed.wait()
        self._changed = trio.Event()
