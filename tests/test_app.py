"""What a supervisor tells of its own affairs, without one that runs."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.console import ConsoleLog
from app.process import ServiceManager
from app.supervisor import Supervisor, run
from rpc.sweep import SweepReport
from settings.schema import Settings

Told = list[tuple[str, Any]]


class Bus:
    """Keeps what is published."""

    def __init__(self) -> None:
        self.told: Told = []

    def publish(self, _session: str, type_: str, data: Any) -> int:
        self.told.append((type_, data))
        return len(self.told)


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    return Supervisor(
        Settings(),
        data_dir=tmp_path,
        socket=tmp_path / "s",
        live=False,
        narrator=ConsoleLog(live=False),
        manager=ServiceManager({}),
        reread=Settings,
    )


@pytest.fixture
def told(supervisor: Supervisor) -> Callable[[str, dict[str, Any]], Told]:
    """What is published when the store says that something is wrong."""

    def tell(event: str, data: dict[str, Any]) -> Told:
        bus = Bus()
        supervisor._bus = bus  # type: ignore[assignment]  # as much of a bus as this needs
        supervisor._emit_trouble(event, data)
        return bus.told

    return tell


async def test_what_an_earlier_supervisor_left_and_would_not_die_is_told(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: Told = []

    async def sweep(_: Path) -> SweepReport:
        return SweepReport(killed=(7,), left=(9, 8, 9))

    monkeypatch.setattr("app.supervisor.sweep_previous", sweep)
    monkeypatch.setattr(supervisor, "_emit", lambda event, data: told.append((event, data)))
    await supervisor._sweep_previous(supervisor._data_dir / "workers.json")
    assert told == [("previous_workers_swept", {"killed": 1}), ("previous_workers_left", {"pids": [8, 9]})]


def test_a_disk_that_refuses_is_told_as_an_error_with_its_reason(
    told: Callable[[str, dict[str, Any]], Told],
) -> None:
    facts = {"path": "/d/pool.db", "error": "OperationalError: disk I/O error", "rows_waiting": 3}
    (event, error) = told("store_degraded", facts)
    assert event == ("store_degraded", facts)
    assert error[0] == "error"
    assert (error[1]["severity"], error[1]["phase"]) == ("error", "system")
    assert "OperationalError: disk I/O error" in error[1]["message"]


def test_other_troubles_of_the_store_are_events_of_their_own_alone(
    told: Callable[[str, dict[str, Any]], Told],
) -> None:
    assert told("store_recovered", {"seconds": 1.5, "lost": 0}) == [("store_recovered", {"seconds": 1.5, "lost": 0})]


def test_a_worker_is_attended_to_where_somebody_hears_what_is_asked_in_its_session(supervisor: Supervisor) -> None:
    assert not supervisor._is_attended("w1"), "nothing is served yet"
    pool = SimpleNamespace(session_of={"w1": "alice", "w2": "bob"}.get)
    supervisor._services = SimpleNamespace(pool=pool)  # type: ignore[assignment]  # as much of it as this needs
    supervisor._methods = SimpleNamespace(attended={"alice", ""}.__contains__)  # type: ignore[assignment]  # the same
    assert [supervisor._is_attended(worker) for worker in ("w1", "w2", "w3")] == [True, False, False]


def test_a_supervisor_shares_the_interpreter_with_its_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default a thread waits 5 ms for it, and beside a busy event loop begins to wait anew in each round."""
    before = sys.getswitchinterval()
    seen = []
    monkeypatch.setattr("trio.run", lambda _main: seen.append(sys.getswitchinterval()))
    try:
        run(Settings(), data_dir=tmp_path, socket=tmp_path / "s", live=False, reread=Settings)
    finally:
        sys.setswitchinterval(before)
    assert seen == [pytest.approx(50e-6)]
