"""Stopping a tree that does not want to be stopped."""

import signal
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from agent.processes import tree


async def test_what_forks_between_the_look_and_the_signal_is_looked_for_again(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    sent: list[signal.Signals] = []
    looks = iter([True, True, True, True, False])

    class Hydra:
        def __init__(self, *_: Any) -> None:
            """The tree of a leader."""

        def signal(self, number: signal.Signals) -> bool:
            sent.append(number)
            return next(looks)

        async def ended(self) -> None:
            if sent == [signal.SIGTERM]:
                await trio.sleep_forever()  # it does not care

    reaped: list[bool] = []
    leader = SimpleNamespace(exited=trio.lowlevel.checkpoint, process=SimpleNamespace(wait=lambda: reaped.append(True)))
    monkeypatch.setattr(tree, "_Tree", Hydra)
    monkeypatch.setattr(tree, "_Group", Hydra)
    await tree.stop_tree(leader, grace=7)  # type: ignore[arg-type]  # as much of a leader as it takes
    assert sent == [signal.SIGTERM, *[signal.SIGKILL] * 4]
    assert trio.current_time() == 7
    assert reaped == [True]
