"""What a supervisor says of its own affairs, without one that runs."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.console import ConsoleLog
from app.host import ServiceManager
from app.processes import sweep_last_life
from app.run import run
from app.supervisor import Supervisor
from rpc.sweep import SweepReport
from settings.schema import Settings


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    console, manager = ConsoleLog(live=False), ServiceManager({})
    places = {"data_dir": tmp_path, "socket": tmp_path / "s"}
    return Supervisor(
        Settings(), **places, live=False, console=console, manager=manager, reread=lambda _max: Settings()
    )


async def test_what_an_earlier_supervisor_left_and_could_not_kill_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted: list[tuple[str, dict[str, Any]]] = []

    async def sweep(_: Path) -> SweepReport:
        return SweepReport(killed=(7,), left=(9, 8, 9))

    monkeypatch.setattr("app.processes.sweep_previous", sweep)
    await sweep_last_life(tmp_path / "workers.json", lambda event, data: emitted.append((event, data)))
    assert emitted == [("previous_workers_swept", {"killed": 1}), ("previous_workers_left", {"pids": [8, 9]})]


def test_a_worker_is_attended_to_while_a_client_follows_its_session(supervisor: Supervisor) -> None:
    assert not supervisor._is_attended("w1"), "nothing is served yet"
    pool = SimpleNamespace(session_of={"w1": "alice", "w2": "bob"}.get)
    supervisor._services = SimpleNamespace(pool=pool)  # type: ignore[assignment]  # as much of it as this needs
    supervisor._methods = SimpleNamespace(attended={"alice", ""}.__contains__)  # type: ignore[assignment]  # the same
    assert [supervisor._is_attended(worker) for worker in ("w1", "w2", "w3")] == [True, False, False]


def test_a_supervisor_shares_the_interpreter_with_its_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default a thread waits 5 ms for it, and beside a busy event loop starts to wait again in each round."""
    before = sys.getswitchinterval()
    seen = []
    monkeypatch.setattr("trio.run", lambda _main: seen.append(sys.getswitchinterval()))
    try:
        run(Settings(), data_dir=tmp_path, socket=tmp_path / "s", live=False, reread=lambda _max: Settings())
    finally:
        sys.setswitchinterval(before)
    assert seen == [pytest.approx(50e-6)]
