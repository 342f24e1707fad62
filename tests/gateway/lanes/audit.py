"""Whether the machine's indexes say the same as a slow look at everything; AssertionError where not."""

from collections import Counter

from gateway.lanes import LaneMachine
from gateway.lanes.entries import EntryState, LaneEntry, LaneSessionState
from gateway.lanes.state import LaneSession


def audit(machine: LaneMachine, now: float) -> None:
    book = machine._state
    assert not book.touched_sessions
    assert not book.touched_lanes
    assert not book.actions
    for session in book.sessions.values():
        _audit_queue(session)
        _audit_session(machine, session, now)
    _audit_runs(machine)
    _audit_lanes(machine)


def _audit_queue(session: LaneSession) -> None:
    queue = session.queue
    whole = [entry for tier in queue._tiers.values() for entry in tier]
    assert queue._priorities == sorted(queue._tiers)
    assert queue.size == len(whole)
    assert queue._texts == sum(not entry.exclusive for entry in whole)
    assert all(entry.state is EntryState.WAITING for entry in whole)
    assert all(entry.state is EntryState.SUMMARIZED and not entry.exclusive for entry in queue.summaries)
    counts = Counter(entry.priority for entry in queue.summaries)
    assert dict(queue.summaries._priorities) == dict(counts), "a count of zero was kept"
    assert all(tier for tier in queue._tiers.values()), "an empty tier was kept"
    for priority, tier in queue._tiers.items():
        grouped = list(tier.batch.entries.values()) if tier.batch else []
        assert not tier.batch or grouped
        ordered = grouped + sorted(tier.rest, key=lambda entry: entry.rank)
        assert ordered == sorted(tier, key=lambda entry: entry.sequence), "a message was overtaken"
        assert all(entry.priority == priority for entry in ordered)


def _audit_session(machine: LaneMachine, session: LaneSession, now: float) -> None:
    state, due = session.state, machine.next_wakeup()
    assert (session.turn is not None) is (state in (LaneSessionState.RUNNING, LaneSessionState.ABORTING))
    assert (session.position is not None) is (state is LaneSessionState.QUEUED)
    assert session.turn is not None or session.queue, "a free session was kept"
    if state is LaneSessionState.GATHERING:
        assert session.timer is not None
        assert now < session.timer.when <= now + 4 * machine._state.settings.debounce
        assert due is not None
        assert due <= session.timer.when


def _audit_runs(machine: LaneMachine) -> None:
    book = machine._state
    waiting: list[LaneEntry] = [entry for session in book.sessions.values() for entry in session.queue]
    turns = [session.turn for session in book.sessions.values() if session.turn]
    running = [entry for turn in turns for entry in turn.entries]
    steered = [entry for turn in turns for entry in turn.steers.values()]
    assert sorted(book.runs) == sorted(entry.run for entry in (*waiting, *running, *steered))
    assert {turn.name: turn for turn in turns} == book.turns
    assert all(entry.state is EntryState.RUNNING for entry in running)
    assert all(entry.state is EntryState.STEERED for entry in steered)
    assert {entry.run for entry in book.pending} == {entry.run for entry in waiting}
    lowest = min(waiting, key=lambda entry: (entry.priority, -entry.sequence), default=None)
    assert book.pending.first() is lowest
    assert len(book.pending) == len(waiting)


def _audit_lanes(machine: LaneMachine) -> None:
    book = machine._state
    in_line = Counter(session.position.lane for session in book.sessions.values() if session.position)
    running = Counter(turn.lane for turn in book.turns.values())
    assert {lane.name for lane in book.slots} == set(in_line) | set(running)
    for lane in book.slots:
        assert lane.running == running[lane.name]
        assert len(lane.queue) == in_line[lane.name]
        assert not lane.queue or not book.slots.has_room(lane.name), "somebody waits beside a free slot"
