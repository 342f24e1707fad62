"""A coroutine begun in the task of who calls it, and left there until it first has to wait."""

import contextvars
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

__all__ = ["run_eagerly"]

T = TypeVar("T")


@types.coroutine
def run_eagerly(coroutine: Coroutine[Any, Any, T], before_waiting: Callable[[], None]) -> Generator[Any, Any, T]:
    """Await ``coroutine`` in a context of its own; ``before_waiting`` is called once, when it waits for the first time.

    What never waits costs neither a task nor a turn of the scheduler; for what does, the caller can have somebody else
    take over in time. Context variables that the coroutine sets are seen by its own steps only.
    """
    context = contextvars.copy_context()
    try:
        trap = context.run(coroutine.send, None)
        before_waiting()
        while True:
            try:
                woken_with = yield trap
            except BaseException as exc:  # noqa: BLE001  # whatever is thrown in is the coroutine's
                trap = context.run(coroutine.throw, exc)
            else:
                trap = context.run(coroutine.send, woken_with)
    except StopIteration as stop:
        result: T = stop.value
        return result
