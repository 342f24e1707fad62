"""The end of the server, as those see it who work for a peer: what they wait for is cancelled, then they say so."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

__all__ = ["Closing"]


class Closing:
    """Begins once; until then, scopes that it will cancel."""

    def __init__(self) -> None:
        self._begun = trio.Event()
        self._scopes: set[trio.CancelScope] = set()

    @property
    def has_begun(self) -> bool:
        """Whether the server ends."""
        return self._begun.is_set()

    def begin(self) -> None:
        """Cancel what is in a scope."""
        self._begun.set()
        for scope in self._scopes:
            scope.cancel()

    async def wait(self) -> None:
        """Until it begins."""
        await self._begun.wait()

    @contextmanager
    def scope(self) -> Iterator[trio.CancelScope]:
        """Work that ends when the server does; ``cancelled_caught`` tells afterwards whether it was so."""
        with trio.CancelScope() as scope:
            if self.has_begun:
                scope.cancel()
            self._scopes.add(scope)
            try:
                yield scope
            finally:
                self._scopes.discard(scope)
