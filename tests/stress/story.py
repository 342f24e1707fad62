"""Made-up histories: what a pool may let be seen of itself, as a short script of one step for each happening."""

from collections.abc import Callable
from typing import Any

import msgspec

from stress import facts
from stress.checker import Checker, CheckRules
from stress.facts import Fact, MachineDelay, PoolEvent, RequestAnswered, RequestAsked, RequestStarted, WaiterRow
from stress.outcome import ViolationReport

RULES = CheckRules(max_workers=2, spawn_burst=8, spawn_rate=4.0, backoff_max=2.0)
_WALL = 1_700_000_000.0


class Story:
    """Facts in their order. Each method adds some and moves the time on by 10 ms a fact.

    A step of a script is the name of a method, or of a kind of fact, with its arguments: ``ask 1 ada priority=10``. A
    comma makes a tuple, ``1..3`` is 1 2 3. ``ok`` asserts that no promise is broken so far.
    """

    def __init__(self, script: str = "", **rules: Any) -> None:
        self.t = 0.0
        self.facts: list[Fact] = []
        self.sessions: dict[int, str] = {}
        self.turns: dict[str, list[int]] = {}
        self.add(facts.SupervisorStarted, life=1, supervisor=100)
        for step in filter(None, script.split("; ")):
            self.step(step, **rules)

    def step(self, step: str, **rules: Any) -> None:
        name, *words = step.split()
        positional = [value for word in words if "=" not in word for value in _values(word)]
        fields = {key: _value(word) for key, _, word in (word.partition("=") for word in words if "=" in word)}
        if name == "ok":
            assert self.violations(**rules) == []
        elif name[0].isupper():
            self.add(getattr(facts, name), **fields)
        else:
            getattr(self, name)(*positional, **fields)

    def add(self, kind: type[Any], **fields: Any) -> None:
        self.t += 0.01
        if kind in (PoolEvent, RequestStarted):
            fields["at"] = _WALL + self.t
        self.facts.append(kind(t=self.t, **fields))

    def skip(self, seconds: float) -> None:
        self.t += seconds

    def wait(self, seconds: float, late: float = 0.0) -> None:
        """Time passes, in which the machine was late by so much."""
        self.t += seconds
        self.add(MachineDelay, seconds=late)

    def ask(self, number: int, session: str = "", *, accept: bool = True, shift: float = 0.0, **fields: Any) -> None:
        """``shift``: by how much the supervisor's clock is wrong when it accepts."""
        session = self.sessions[number] = session or f"s{number}"
        shape = {"profile": "main/p0", "priority": 5, "timeout": 10.0, "turn": 0.1}
        self.add(RequestAsked, number=number, session=session, **{**shape, **fields})
        if accept:
            self.add(facts.RequestAccepted, number=number, at=_WALL + self.t + shift)

    def begin(self, number: int, worker: str = "w1") -> None:
        self.add(PoolEvent, what="session_bound", worker=worker, session=self.sessions[number])
        self.add(RequestStarted, number=number, worker=worker)

    def answer(self, number: int, shift: float = 0.0, **fields: Any) -> None:
        """Well, unless ``fields`` say otherwise: its own word, and those of the turns of its session before it."""
        session = self.sessions.setdefault(number, f"s{number}")
        before = self.turns.setdefault(session, [])
        shape = {"reason": "completed", "code": "", "session": session, "said": (number, *before[-3:])}
        self.add(RequestAnswered, number=number, at=_WALL + self.t + shift, **{**shape, **fields})
        before.append(number)

    def fail(self, number: int, code: str, **fields: Any) -> None:
        self.answer(number, reason="error", code=code, said=(), **fields)

    def expire(self, number: int, **fields: Any) -> None:
        self.answer(number, reason="timeout", code="acquire_timeout", said=(), **fields)

    def converse(self, number: int, session: str = "", worker: str = "w1", **fields: Any) -> None:
        """A whole request, and the session lets go of its worker."""
        self.ask(number, session, **fields)
        self.begin(number, worker)
        self.answer(number)
        self.part(number, worker)

    def part(self, number: int, worker: str = "w1", why: str = "rebound") -> None:
        self.add(PoolEvent, what="session_parked", worker=worker, session=self.sessions[number], why=why)

    def hit(self, worker: str, seconds: float = 0.0, **fields: Any) -> None:
        shape = {"fault": "F1", "action": "kill", "pid": int(worker[1:] or 0)}
        self.add(facts.FaultInjected, worker=worker, seconds=seconds, **{**shape, **fields})

    def set_clock(self, seconds: float) -> None:
        self.hit("*", seconds, fault="F7", action="clock_ahead", hurts=False)

    def live_again(self, code: int = -9) -> None:
        self.add(facts.SupervisorEnded, life=1, code=code, signals=(9 if code else 15,))
        self.add(facts.SupervisorStarted, life=2, supervisor=101)

    def processes(self, *pids: int, **fields: Any) -> None:
        workers = tuple(facts.ObservedProcess(pid, pid, f"w{pid}") for pid in pids)
        self.add(facts.ProcessSample, **{"life": 1, "supervisor": 100, "workers": workers, **fields})

    def status(self, *pids: int, waits: str = "", state: str = "queued", turns: int = 1, **fields: Any) -> None:
        """A status document that knows these pids; ``waits``: the session of the one request that waits."""
        waiting = (WaiterRow("r1", waits, "p0", "all workers are busy", state),) if waits else ()
        workers = tuple(facts.WorkerRow(f"w{pid}", pid, "p0", "idle", None, turns) for pid in pids)
        shape: dict[str, Any] = {"life": 1, "mode": "running", "max": 2, "workers": workers, "waiting": waiting}
        counters = {"grants": 3, "releases": 1, "lost": 1, "active": 1}
        self.add(facts.StatusSample, **{**shape, "before": pids, "after": pids, **counters, **fields})

    def end(self) -> None:
        self.wait(5.0)
        self.add(facts.WaitingEnded)

    def empty(self, **fields: int | None) -> None:
        shape = {"fds": 20, "fds_before": 20, "workers": 0, "zombies": 0, "rss": 1}
        self.add(facts.PoolDrained, **{**shape, **fields})

    def violations(self, **rules: Any) -> list[ViolationReport]:
        checker = Checker(msgspec.structs.replace(RULES, **rules))
        for fact in self.facts:
            checker.observe(fact)
        checker.finish()
        return checker.violations


def broken_by(story: Story | str | Callable[[Story], None], **rules: Any) -> str:
    """The invariants that a story breaks, each once, in the order in which they are found."""
    if isinstance(story, str):
        story = Story(story, **rules)
    elif not isinstance(story, Story):
        write, story = story, Story()
        write(story)
    return " ".join(dict.fromkeys(violation.invariant for violation in story.violations(**rules)))


def _values(word: str) -> list[Any]:
    first, dots, last = word.partition("..")
    return list(range(int(first), int(last) + 1)) if dots else [_value(word)]


def _value(word: str) -> Any:
    if "," in word:
        return tuple(_value(part) for part in word.split(",") if part)
    if word in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[word]
    try:
        return float(word) if "." in word else int(word)
    except ValueError:
        return word
