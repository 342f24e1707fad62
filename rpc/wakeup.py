"""One task's wait for a word from another: what a parking lot does for many, at a fraction of its cost."""

import trio


class Wakeup:
    """At most one task waits here; ``wake`` resumes it, and does nothing where there is none."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether a task waits here."""
        return self._task is not None

    async def wait(self) -> None:
        """Wait for the next ``wake``. Raises BusyResourceError where another task waits already."""
        if self._task is not None:
            raise trio.BusyResourceError("another task waits here already")
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def wake(self) -> bool:
        """Resume the task that waits; whether there was one."""
        task = self._task
        if task is None:
            return False
        self._task = None
        trio.lowlevel.reschedule(task)
        return True

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED
