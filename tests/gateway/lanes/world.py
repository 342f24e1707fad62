"""A world around the lanes: it carries out actions on paper, keeps time and its own books, and objects to nonsense."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from gateway.lanes.machine import LaneMachine
from gateway.lanes.messages import (
    AbortTurn,
    Clear,
    LaneAction,
    LaneStimulus,
    Reconfigure,
    RejectRun,
    StartTurn,
    Steer,
    SteerRejected,
    Submit,
    Tick,
    TurnEnded,
    Withdraw,
)
from gateway.settings import Overflow, QueueSettings
from wire.messages import QueueMode

_MODES = {"follow": "followup", "steer": "steer", "collect": "collect", "interrupt": "interrupt"}


class PaperTurn:
    """What the world knows of a turn that runs."""

    def __init__(self, start: StartTurn) -> None:
        self.start = start
        self.steered: list[str] = []
        self.takes_steers = self.aborted = False


class World:
    """The machine, the time, and where every run has ended. Time passes and turns end only when the test says so."""

    def __init__(self, *, now: float = 1000.0, **settings: Any) -> None:
        self.settings = QueueSettings(**settings)
        self.machine = LaneMachine(self.settings)
        self.now = now
        self.open: dict[str, str] = {}
        """The sessions of runs that wait, as far as the world has been told."""
        self.turns: dict[str, PaperTurn] = {}
        self.ends: dict[str, str] = {}
        """How each run ended: the turn that answered for it, the reason of its refusal, or ``withdrawn``."""
        self.texts: dict[str, str] = {}
        """What callers of refused runs were told."""

    # --- stimuli ----------------------------------------------------------------------------------------------------

    def tell(self, stimulus: LaneStimulus) -> list[LaneAction]:
        actions = self.machine.handle(stimulus, self.now)
        for action in actions:
            self._carry_out(action)
        self._audit()
        return actions

    def submit(
        self, run: str, mode: str = QueueMode.FOLLOWUP, *, session: str = "s", **options: Any
    ) -> list[LaneAction]:
        self.open[run] = session
        self.ends.pop(run, None)
        options = {"text": f"text of {run}", "may_steer": self.takes_steers(session), **options}
        return self.tell(Submit(run=run, session=session, mode=QueueMode(mode), **options))

    def refuse_steer(self, run: str, session: str = "s") -> list[LaneAction]:
        turn = self.turn(session)
        self.turns[turn].steered.remove(run)
        self.open[run] = session
        return self.tell(SteerRejected(turn, run))

    def end(self, session: str = "s", unconsumed: tuple[str, ...] = ()) -> list[LaneAction]:
        turn = self.turn(session)
        paper = self.turns.pop(turn)
        self.open.update(dict.fromkeys(unconsumed, session))
        self.ends.update({run: turn for run in (*paper.start.runs, *paper.steered) if run not in unconsumed})
        return self.tell(TurnEnded(turn, unconsumed))

    def withdraw(self, run: str) -> list[LaneAction]:
        if self.open.pop(run, None) is not None:
            self.ends[run] = "withdrawn"
        return self.tell(Withdraw(run))

    def reconfigure(self, **settings: Any) -> list[LaneAction]:
        self.settings = QueueSettings(**settings)
        return self.tell(Reconfigure(self.settings))

    def pass_time(self, seconds: float) -> list[LaneAction]:
        """As the gateway does it: a Tick whenever the machine wants one."""
        actions: list[LaneAction] = []
        until = self.now + seconds
        while (due := self.machine.next_wakeup()) is not None and due <= until:
            self.now = max(self.now, due)
            actions += self.tell(Tick())
        self.now = until
        return actions

    # --- questions --------------------------------------------------------------------------------------------------

    def turn(self, session: str = "s") -> str:
        turn = self.machine.running_turn(session)
        assert turn is not None, f"session {session} has no turn"
        return turn

    def prompt(self, session: str = "s") -> str:
        return self.turns[self.turn(session)].start.text

    def takes_steers(self, session: str) -> bool:
        return any(paper.takes_steers for paper in self.turns.values() if paper.start.session == session)

    def is_busy(self, session: str = "s") -> bool:
        """Whether a new message would find others before it: a turn that runs, or messages that wait for theirs."""
        return session in {figures.session for figures in self.machine.snapshot().sessions}

    # --- actions ----------------------------------------------------------------------------------------------------

    def _carry_out(self, action: LaneAction) -> None:
        match action:
            case StartTurn():
                assert all(paper.start.session != action.session for paper in self.turns.values()), "a second turn"
                assert action.turn not in self.turns
                for run in action.runs:
                    assert self.open.pop(run) == action.session
                    assert run not in self.ends
                self.turns[action.turn] = PaperTurn(action)
                limit = self.settings.lanes.get(action.lane, 0)
                running = sum(paper.start.lane == action.lane for paper in self.turns.values())
                assert not limit or running <= limit, f"lane {action.lane} is over its limit"
            case Steer(turn=turn, run=run):
                del self.open[run]
                assert not self.turns[turn].aborted, "steered into a turn that was to end"
                self.turns[turn].steered.append(run)
            case AbortTurn(turn=turn):
                assert not self.turns[turn].aborted, "a turn is aborted once"
                self.turns[turn].aborted = True
            case RejectRun(run=run, reason=reason, text=text):
                del self.open[run]
                assert run not in self.ends
                self.ends[run], self.texts[run] = reason.value, text

    def _audit(self) -> None:
        """The figures that the machine gives agree with these books."""
        snapshot = self.machine.snapshot()
        sessions = {figures.session: figures for figures in snapshot.sessions}
        assert set(sessions) == set(self.open.values()) | {paper.start.session for paper in self.turns.values()}
        assert {run for session in sessions for run in self.machine.waiting(session)} == set(self.open)
        assert (snapshot.running, snapshot.waiting) == (len(self.turns), len(self.open))
        for session, waiting in Counter(self.open.values()).items():
            assert sessions[session].waiting + sessions[session].summarized == waiting
        states = {paper.start.session: "aborting" if paper.aborted else "running" for paper in self.turns.values()}
        idle = Counter(figures.state for session, figures in sessions.items() if session not in states)
        assert all(sessions[session].state == state for session, state in states.items())
        assert idle == Counter(queued=sum(lane.waiting for lane in snapshot.lanes), gathering=idle["gathering"])
        running = Counter(paper.start.lane for paper in self.turns.values())
        for lane in snapshot.lanes:
            assert lane.running == running.pop(lane.name, 0)
            assert lane.running or lane.waiting, "a lane without use was kept"
            assert not lane.waiting or lane.running >= (lane.limit or 0) > 0, "a session waits beside a free slot"
        assert not running

    # --- stories ----------------------------------------------------------------------------------------------------

    def play(self, story: str) -> None:
        """Steps ``verb words -> actions``, separated by ``;``: what is not listed behind the arrow must not happen.

        ``follow``, ``steer``, ``collect`` and ``interrupt`` submit runs: into session ``@s``, ``#lane``, with priority
        ``!5``, each ``alone``. ``open`` and ``shut``: whether the turn takes steers. ``end back a``: it never saw a.
        ``waits``, ``free`` and ``due`` look.
        """
        for step in filter(None, map(str.strip, story.split(";"))):
            stimulus, _, expected = step.partition("->")
            verb, *words = stimulus.split()
            marks = {word[0]: word[1:] for word in words if word[0] in "@#!"}
            names = [word for word in words if word[0] not in "@#!" and word not in {"alone", "back"}]
            session, exclusive = marks.get("@", "s"), "alone" in words
            if verb in _MODES:
                options = {"lane": marks.get("#", "main"), "priority": int(marks.get("!", 5))}
                submits = [
                    self.submit(run, _MODES[verb], session=session, exclusive=exclusive, **options) for run in names
                ]
                told = [_short(action) for actions in submits for action in actions]
            else:
                told = [_short(action) for action in self._steps(session, names)[verb]() or []]
            assert ", ".join(told) == expected.strip(), step

    def _steps(self, session: str, words: list[str]) -> dict[str, Callable[[], list[LaneAction] | None]]:
        return {
            "open": lambda: setattr(self.turns[self.turn(session)], "takes_steers", True),
            "shut": lambda: setattr(self.turns[self.turn(session)], "takes_steers", False),
            "end": lambda: self.end(session, tuple(words)),
            "refuse": lambda: self.refuse_steer(words[0], session),
            "withdraw": lambda: self.withdraw(words[0]),
            "clear": lambda: self.tell(Clear(session)),
            "limits": lambda: self.reconfigure(**parse_settings(words)),
            "wait": lambda: self.pass_time(float(words[0])),
            "waits": lambda: _expect(self.machine.waiting(session), tuple(words)),
            "free": lambda: _expect(self.is_busy(session), expected=False),
            "due": lambda: _expect(
                self.machine.next_wakeup(), None if words == ["never"] else pytest.approx(self.now + float(words[0]))
            ),
        }


def _expect(found: object, expected: object) -> None:
    assert found == expected


def parse_settings(words: list[str]) -> dict[str, Any]:
    """``cap=1 lanes=cron:1`` as the fields of ``QueueSettings``."""
    settings: dict[str, Any] = {}
    for name, _, value in (word.partition("=") for word in words):
        lane, _, limit = value.partition(":")
        settings[name] = Overflow(value) if name == "overflow" else {lane: int(limit)} if limit else float(value)
    return settings


def _short(action: LaneAction) -> str:
    match action:
        case StartTurn(runs=runs):
            return f"start {'+'.join(runs)}"
        case Steer(run=run):
            return f"steer {run}"
        case AbortTurn():
            return "abort"
        case RejectRun(run=run, reason=reason):
            return f"{run}:{reason.value}"
