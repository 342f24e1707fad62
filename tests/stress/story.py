"""Made-up histories: what a well-behaved pool lets be seen, a line each, to be spoilt by the tests."""

from typing import Any

import msgspec

from stress.checker import CheckRules, check_history
from stress.facts import (
    Fact,
    MachineDelay,
    ObservedProcess,
    PoolDrained,
    PoolEvent,
    ProcessSample,
    RequestAccepted,
    RequestAnswered,
    RequestAsked,
    RequestStarted,
    StatusSample,
    SupervisorStarted,
    WaiterRow,
    WaitingEnded,
    WorkerRow,
)
from stress.outcome import ViolationReport

RULES = CheckRules(max_workers=2, spawn_burst=8, spawn_rate=4.0, backoff_max=2.0)
_WALL = 1_700_000_000.0


class Story:
    """Facts in their order; each method adds some and moves the time on by 10 ms."""

    def __init__(self) -> None:
        self.t = 0.0
        self.facts: list[Fact] = []
        self.sessions: dict[int, str] = {}
        self.turns: dict[str, list[int]] = {}
        self.tell(SupervisorStarted, life=1, supervisor=100)

    def tell(self, kind: type[Any], **fields: Any) -> None:
        self.t += 0.01
        if kind in (PoolEvent, RequestStarted):
            fields["at"] = _WALL + self.t
        self.facts.append(kind(t=self.t, **fields))

    def pass_time(self, seconds: float) -> None:
        """The machine is on time all the while."""
        self.t += seconds
        self.tell(MachineDelay, seconds=0.0)

    def ask(self, number: int, session: str = "", *, accept: bool = True, **fields: Any) -> None:
        session = self.sessions[number] = session or f"s{number}"
        shape = {"profile": "main/p0", "priority": 5, "timeout": 10.0, "turn": 0.1}
        self.tell(RequestAsked, number=number, session=session, **{**shape, **fields})
        if accept:
            self.tell(RequestAccepted, number=number, at=_WALL + self.t)

    def begin(self, number: int, worker: str = "w1") -> None:
        self.tell(PoolEvent, what="session_bound", worker=worker, session=self.sessions[number])
        self.tell(RequestStarted, number=number, worker=worker)

    def answer(self, number: int, **fields: Any) -> None:
        """Well, unless ``fields`` say otherwise: its own word, and those of the turns of its session before it."""
        session = self.sessions[number]
        before = self.turns.setdefault(session, [])
        shape = {"reason": "completed", "code": "", "session": session, "said": (number, *before[-3:])}
        self.tell(RequestAnswered, number=number, at=_WALL + self.t, **{**shape, **fields})
        before.append(number)

    def fail(self, number: int, code: str, **fields: Any) -> None:
        self.answer(number, reason="error", code=code, said=(), **fields)

    def converse(self, number: int, session: str = "", worker: str = "w1") -> None:
        """A whole request, and the session lets go of its worker."""
        self.ask(number, session)
        self.begin(number, worker)
        self.answer(number)
        self.part(number, worker)

    def part(self, number: int, worker: str = "w1", why: str = "rebound") -> None:
        self.tell(PoolEvent, what="session_parked", worker=worker, session=self.sessions[number], why=why)

    def processes(self, *pids: int, **fields: Any) -> None:
        workers = tuple(ObservedProcess(pid, pid, f"w{pid}") for pid in pids)
        self.tell(ProcessSample, **{"life": 1, "supervisor": 100, "workers": workers, **fields})

    def status(self, *pids: int, there: tuple[int, ...] | None = None, **fields: Any) -> None:
        """A document that knows these pids, where ``there`` are the workers that are really there."""
        there = pids if there is None else there
        workers = tuple(WorkerRow(f"w{pid}", pid, "p0", "idle", None, 1) for pid in pids)
        shape: dict[str, Any] = {"life": 1, "mode": "running", "max": 2, "workers": workers, "waiting": ()}
        counters = {"grants": 3, "releases": 1, "lost": 1, "active": 1}
        self.tell(StatusSample, **{**shape, "before": there, "after": there, **counters, **fields})

    def waiting(self, request: str, session: str = "s", *, state: str = "queued") -> tuple[WaiterRow, ...]:
        return (WaiterRow(request, session, "p0", "all workers are busy", state),)

    def pass_over(self, number: int, session: str) -> None:
        """The session asks, and waits longer than one that asks after it and is served."""
        self.ask(number, session)
        self.pass_time(2.0)
        self.ask(number + 1)
        self.begin(number + 1, "w2")
        self.pass_time(2.0)
        self.pass_time(0.0)

    def end(self) -> None:
        self.pass_time(5.0)
        self.tell(WaitingEnded)

    def empty(self, **fields: int | None) -> None:
        shape = {"fds": 20, "fds_before": 20, "workers": 0, "zombies": 0, "rss": 1}
        self.tell(PoolDrained, **{**shape, **fields})

    def violations(self, **rules: Any) -> list[ViolationReport]:
        return check_history(self.facts, msgspec.structs.replace(RULES, **rules))


def broken_by(story: Story, **rules: Any) -> list[str]:
    """The invariants that the story breaks, each once."""
    return list(dict.fromkeys(violation.invariant for violation in story.violations(**rules)))
