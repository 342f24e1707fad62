"""Requests that take more than one exchange with a worker, written as generators and driven by its answers."""

from collections.abc import Callable, Generator
from typing import TypeVar

from errors import WorkerRefused

W = TypeVar("W")
A = TypeVar("A")
R = TypeVar("R")


def run_procedure(
    procedure: Generator[W, A, R],
    perform: Callable[[W, Callable[[A | WorkerRefused], None]], None],
    finish: Callable[[R], None],
    fail: Callable[[WorkerRefused], None],
) -> None:
    """Run a procedure; one of ``finish`` and ``fail`` is called at its end.

    ``perform(wanted, resume)`` does what the procedure yields and calls ``resume`` once with the answer, now or later;
    an error is thrown into the procedure.
    """

    def advance(step: Callable[[], W]) -> None:
        try:
            wanted = step()
        except StopIteration as end:
            finish(end.value)
        except WorkerRefused as error:
            fail(error)
        else:
            perform(wanted, resume)

    def resume(answer: A | WorkerRefused) -> None:
        if isinstance(answer, WorkerRefused):
            advance(lambda: procedure.throw(answer))
        else:
            advance(lambda: procedure.send(answer))

    advance(lambda: next(procedure))
