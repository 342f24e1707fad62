"""What is done once for all that several tasks have brought, when none of them can run any more."""

from collections.abc import Callable

import trio


class BeforeWaiting(trio.abc.Instrument):
    """Calls ``act`` before the event loop waits, and where it never does, in every second of its rounds.

    That costs no task a step. To be added to the loop with ``trio.lowlevel.add_instrument``. ``act`` must not raise,
    and what it makes runnable does not run before the loop is woken, as ``TrioToken.run_sync_soon`` does.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._has_passed = False

    def before_io_wait(self, timeout: float) -> None:
        """Part of the interface: at the end of a round; ``timeout`` 0 where another one follows at once."""
        self._has_passed = timeout <= 0 and not self._has_passed
        if not self._has_passed:
            self._act()
