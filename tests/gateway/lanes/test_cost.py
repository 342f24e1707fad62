"""What a step costs, counted in lines of Python that run: the same figure on any machine."""

import sys
from collections.abc import Iterable
from types import FrameType
from typing import TYPE_CHECKING

from gateway.lanes import Clear, LaneMachine, LaneStimulus, Submit, TurnEnded, Withdraw
from gateway.settings import Overflow, QueueMode, QueueSettings

if TYPE_CHECKING:
    from _typeshed import TraceFunction


def submit(run: object, session: object, mode: QueueMode = QueueMode.FOLLOWUP, **options: object) -> Submit:
    return Submit(run=str(run), session=str(session), text="hello", mode=mode, **options)  # type: ignore[arg-type]  # the tests name fields


def lines_per_step(machine: LaneMachine, stimuli: Iterable[LaneStimulus]) -> float:
    """The average over ``stimuli``: compaction of the heaps is spread over many steps."""
    count = 0

    def trace(_frame: FrameType, event: str, _value: object) -> "TraceFunction":
        nonlocal count
        count += event == "line"
        return trace

    stimuli = list(stimuli)
    old = sys.gettrace()
    sys.settrace(trace)
    try:
        for stimulus in stimuli:
            machine.handle(stimulus, 0.0)
    finally:
        sys.settrace(old)
    return count / len(stimuli)


def crowded(sessions: int, **settings: object) -> LaneMachine:
    """A machine in which every session runs and has a message waiting."""
    values = {"pending": 2 * sessions, "cap": 10 * sessions, **settings}
    machine = LaneMachine(QueueSettings(**values))  # type: ignore[arg-type]  # QueueSettings checks them
    for number in range(sessions):
        machine.handle(submit(f"running {number}", number), 0.0)
        machine.handle(submit(f"waiting {number}", number), 0.0)
    return machine


def stories(sessions: int) -> dict[str, float]:
    """What steps of each kind cost among so many sessions that wait."""
    numbers = range(100)
    evicting = crowded(sessions, pending=sessions)
    withdrawing, clearing, ending, gathering = (crowded(sessions) for _ in range(4))
    in_line = crowded(sessions, lanes={"cron": 1})
    one = crowded(sessions, overflow=Overflow.OLD, cap=sessions, pending=10 * sessions)
    for number in range(sessions):
        in_line.handle(submit(f"cron {number}", f"c{number}", lane="cron"), 0.0)
        one.handle(submit(f"more {number}", "0", QueueMode.COLLECT), 0.0)
    return {
        "evict": lines_per_step(evicting, (submit(n, n, priority=9) for n in numbers)),
        "withdraw": lines_per_step(withdrawing, (Withdraw(f"waiting {n}") for n in numbers)),
        "clear": lines_per_step(clearing, (Clear(f"{n}") for n in numbers)),
        "end": lines_per_step(ending, (TurnEnded(f"t{n + 1}") for n in numbers)),
        "collect": lines_per_step(gathering, (submit(n, n, QueueMode.COLLECT) for n in numbers)),
        "line up": lines_per_step(in_line, (submit(n, f"d{n}", lane="cron") for n in numbers)),
        "drop the oldest": lines_per_step(one, (submit(n, "0", QueueMode.COLLECT) for n in numbers)),
    }


def test_a_step_costs_the_same_among_many_sessions_as_among_few() -> None:
    few, many = stories(200), stories(4000)
    assert {kind: (few[kind], many[kind]) for kind in few if many[kind] > 1.5 * few[kind]} == {}
