"""Stopping a tree that does not want to be stopped."""

import itertools
import signal
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from agent.processes import tree
from wire.procfs import ProcessStat


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

        async def wait_ended(self) -> None:
            if sent == [signal.SIGTERM]:
                await trio.sleep_forever()  # it does not care

    reaped: list[bool] = []
    leader = SimpleNamespace(
        wait_exited=trio.lowlevel.checkpoint, process=SimpleNamespace(wait=lambda: reaped.append(True))
    )
    monkeypatch.setattr(tree, "_ProcessTree", Hydra)
    monkeypatch.setattr(tree, "_ProcessGroup", Hydra)
    await tree.stop_tree(leader, grace=7)  # type: ignore[arg-type]  # as much of a leader as it takes
    assert sent == [signal.SIGTERM, *[signal.SIGKILL] * 4]
    assert trio.current_time() == 7
    assert reaped == [True]


@pytest.mark.parametrize(
    ("flags", "looks", "is_found"),
    [(4194560, 100, True), (4194564, 2, False), (4194560, 10**9, False)],
    ids=["waits for a CPU inside exec", "dying", "never comes out"],
)
def test_a_process_inside_exec_is_asked_for_its_mark_again(
    monkeypatch: pytest.MonkeyPatch, flags: int, looks: int, *, is_found: bool
) -> None:
    fields = ["S", *["1"] * 5, str(flags), *["0"] * 45]
    files = {
        "/proc/7/stat": itertools.repeat(f"7 (x) {' '.join(fields)}".encode()),
        "/proc/7/environ": itertools.chain(
            itertools.repeat(b"", looks), itertools.repeat(b"A=1\0AGENT_EXEC_ID=mine\0")
        ),
    }
    monkeypatch.setattr("wire.procfs._read_file", lambda path: next(files[path]))
    monkeypatch.setattr(tree, "_EXEC_TIMEOUT", 0.25 if looks > 100 else 20)
    row = ProcessStat(7, "S", 1, 7, 7, 5)
    assert tree._is_marked(row, (), 0, b"AGENT_EXEC_ID=mine") is is_found


def test_a_process_that_may_not_be_looked_into_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ``stat`` reads like that of one inside exec."""
    fields = ["S", *["1"] * 5, "4194560", *["0"] * 45]

    def read(path: str) -> bytes:
        if path == "/proc/7/environ":
            raise PermissionError
        return f"7 (x) {' '.join(fields)}".encode()

    monkeypatch.setattr("wire.procfs._read_file", read)
    monkeypatch.setattr("wire.procfs.time.sleep", lambda _: pytest.fail("it waits"))
    assert not tree._is_marked(ProcessStat(7, "S", 1, 7, 7, 5), (), 0, b"AGENT_EXEC_ID=mine")
