"""Async tests that ask for the fixture ``virtual_time`` run on a clock that jumps to the next deadline."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock


def _run(test: Callable[[], Awaitable[Any]], *, clock: None, instruments: Sequence[trio.abc.Instrument]) -> Any:
    return trio.run(test, clock=MockClock(autojump_threshold=0), instruments=instruments)


def _is_async(test: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(test) and not hasattr(test, "hypothesis")


def use_virtual_time(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "virtual_time" in item.fixturenames and _is_async(item.function):
            item.add_marker(pytest.mark.trio(run=_run), append=False)
