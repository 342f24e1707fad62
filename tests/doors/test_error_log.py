"""Errors of sessions, as they reach the log."""

from typing import Any

import msgspec

from app.log import ErrorLog
from wire.events import EventChannel
from wire.messages import EventEnvelope


class Log:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.errors = ErrorLog(lambda name, facts: self.told.append({"name": name, **facts}))

    def take(self, message: str, session: str, run: str | None) -> None:
        data = msgspec.Raw(msgspec.json.encode({"severity": "error", "phase": "model", "message": message}))
        self.errors.record(EventEnvelope(1, 0.0, session, EventChannel.MONITOR, "error", data, run))

    @property
    def messages(self) -> list[str]:
        return [told["message"] for told in self.told]


def test_an_error_is_told_with_its_session_and_its_run() -> None:
    log = Log()
    log.take("no model", "alice", "k1")
    facts = {"severity": "error", "phase": "model", "message": "no model", "session": "alice", "run": "k1"}
    assert log.told == [{"name": "error", **facts}]


def test_of_one_run_only_the_first_error_is_told_however_the_errors_of_runs_alternate() -> None:
    log = Log()
    for number in range(3):
        for session, run in (("alice", "k1"), ("alice", "k2"), ("bob", "k1")):
            log.take(f"{session} {run} {number}", session, run)
    assert log.messages == ["alice k1 0", "alice k2 0", "bob k1 0"]


def test_what_belongs_to_no_run_is_told_each_time_and_what_belongs_to_no_session_never() -> None:
    log = Log()
    for number in range(2):
        log.take(f"alice {number}", "alice", None)
        log.take("of the supervisor", "", None)
    assert log.messages == ["alice 0", "alice 1"]


def test_so_many_runs_are_kept_in_mind_and_no_more() -> None:
    log = Log()
    for number in range(1001):
        log.take("first", "alice", f"k{number}")
    log.take("again", "alice", "k1")
    log.take("again", "alice", "k0")
    assert log.messages[1001:] == ["again"]
    assert len(log.errors._logged) == 1000
