"""Which workers' logs are kept: those of living ones, and of the others the latest, of earlier lives too."""

import os
from pathlib import Path

from pool.worker_logs import WorkerLogs
from wire.log_file import log_path, rotated_path


def written(log: Path) -> Path:
    log.write_text("said")
    rotated_path(log).write_text("said before")
    return log


def names(place: Path) -> set[str]:
    assert all(rotated_path(log).exists() for log in place.glob("*.log")), "both files go together"
    return {path.stem for path in place.glob("*.log")}


def test_only_the_latest_workers_logs_are_kept(tmp_path: Path) -> None:
    logs = WorkerLogs()
    for number in range(4):
        logs.close(written(logs.open(tmp_path, f"w{number}", 2)))
    assert names(tmp_path) == {"w2", "w3"}


def test_the_log_of_a_worker_that_lives_is_kept_however_many_come_after_it(tmp_path: Path) -> None:
    logs = WorkerLogs()
    written(logs.open(tmp_path, "w0", 2))
    for number in range(1, 5):
        logs.close(written(logs.open(tmp_path, f"w{number}", 2)))
    assert names(tmp_path) == {"w0", "w4"}


def test_logs_of_an_earlier_supervisor_are_kept_and_make_room_first(tmp_path: Path) -> None:
    for at, name in enumerate(["w8", "w1", "w9"]):
        log = written(log_path(tmp_path, name))
        for path in (log, rotated_path(log)):
            os.utime(path, (at, at))
    logs = WorkerLogs()
    again = logs.open(tmp_path, "w1", 3)
    assert names(tmp_path) == {"w1", "w8", "w9"}, "a name that is used again is one log"
    written(logs.open(tmp_path, "w2", 3))
    assert names(tmp_path) == {"w1", "w2", "w9"}
    logs.close(again)
