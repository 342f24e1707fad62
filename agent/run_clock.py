"""The time that a run may take; while a person is asked it does not pass."""

import trio

__all__ = ["RunClock"]


class RunClock:
    """Cancels ``scope`` when the time is over. Enter the scope first."""

    def __init__(self, seconds: float) -> None:
        self.scope = trio.CancelScope()
        self._left = seconds
        self._since: float | None = None

    def go_on(self) -> None:
        """Let the time pass; harmless when it does."""
        if self._since is None:
            self._since = trio.current_time()
            self.scope.deadline = self._since + self._left

    def pause(self) -> None:
        """Stop it; harmless when it stands."""
        if self._since is not None:
            self._left = max(0.0, self._left - (trio.current_time() - self._since))
            self._since = None
            self.scope.deadline = float("inf")
