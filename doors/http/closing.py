"""The end of the server, as those see it who work for a peer: they are told, or what they wait for is cancelled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

__all__ = ["Closing"]


class Closing:
    """Begins once; until then it knows whom to tell."""

    def __init__(self) -> None:
        self._begun = trio.Event()
        self._told: dict[object, Callable[[], object]] = {}

    @property
    def has_begun(self) -> bool:
        """Whether the server ends."""
        return self._begun.is_set()

    def begin(self) -> None:
        """Tell everybody."""
        self._begun.set()
        for tell in list(self._told.values()):
            tell()

    async def wait(self) -> None:
        """Until it begins."""
        await self._begun.wait()

    @contextmanager
    def telling(self, tell: Callable[[], object]) -> Iterator[None]:
        """Have ``tell`` called when the server ends; at once where it does already."""
        key = object()
        self._told[key] = tell
        try:
            if self.has_begun:
                tell()
            yield
        finally:
            del self._told[key]

    @contextmanager
    def scope(self) -> Iterator[trio.CancelScope]:
        """Work that is cancelled when the server ends; ``cancelled_caught`` tells afterwards whether it was."""
        with trio.CancelScope() as scope, self.telling(scope.cancel):
            yield scope
