"""One request of a front end on its way: it is answered at most once, by the worker or in its place."""

from collections.abc import Iterable
from typing import Protocol

import trio

from errors import PoolError
from gateway.attachments.manners import Kind, Manners
from gateway.run import Run
from rpc.raw import RawObject

__all__ = ["Asker", "Pending"]


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
