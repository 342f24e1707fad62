"""The table of a call's states: every walk through it, and the record that each step leaves."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent.approvals import ApprovalVerdict
from agent.tool_call import TRANSITIONS, is_final, new_record, with_decision, with_result, with_state
from wire.entries import ApprovalDecision, CallRecord, CallState, ToolUseBlock
from wire.states import IllegalTransition

ENDS = frozenset({CallState.COMPLETED, CallState.FAILED, CallState.DENIED, CallState.SEALED})
GOOD = {"ok": True, "data": "fine"}
BAD = {"ok": False, "error": "no"}


def record_in(*path: CallState) -> CallRecord:
    record = new_record(ToolUseBlock("c", "exec", {"command": "ls"}), 1.0)
    for state in path:
        record = with_state(record, state, 2.0, "because")
    return record


def result_for(state: CallState) -> dict[str, object]:
    return GOOD if state is CallState.COMPLETED else BAD


class CallWalk(RuleBasedStateMachine):
    """Steps of any kind in any order: what is legal happens, what is not raises and changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.record = new_record(ToolUseBlock("c", "exec", {"command": "ls"}), self.now)
        self.path = [CallState.PENDING]
        self.decisions: list[str] = []

    def tick(self) -> float:
        self.now += 0.5
        return self.now

    @rule(state=st.sampled_from(sorted(set(CallState) - ENDS)))
    def move(self, state: CallState) -> None:
        legal = state in TRANSITIONS[self.record.state]
        if state is CallState.RUNNING and self.record.approval is not None:
            legal = legal and self.decisions == ["allow"]
        if not legal:
            with pytest.raises(IllegalTransition):
                with_state(self.record, state, self.tick(), "why")
            return
        self.record = with_state(self.record, state, self.tick(), "why")
        self.path.append(state)

    @rule(decision=st.sampled_from(["allow", "deny"]), note=st.none() | st.text(max_size=5))
    def decide(self, decision: ApprovalDecision, note: str | None) -> None:
        if self.record.state is not CallState.AWAITING_APPROVAL or self.decisions:
            with pytest.raises(IllegalTransition):
                with_decision(self.record, ApprovalVerdict(decision, note, "ann"), self.tick())
            return
        self.record = with_decision(self.record, ApprovalVerdict(decision, note, "ann"), self.tick())
        self.decisions.append(decision)

    @rule(state=st.sampled_from(sorted(ENDS)))
    def end(self, state: CallState) -> None:
        legal = state in TRANSITIONS[self.record.state] and not (
            state is CallState.DENIED and self.decisions == ["allow"]
        )
        if not legal:
            with pytest.raises(IllegalTransition):
                with_result(self.record, state, self.tick(), result_for(state))
            return
        self.record = with_result(self.record, state, self.tick(), result_for(state))
        self.path.append(state)

    @precondition(lambda self: is_final(self.record.state))
    @rule(state=st.sampled_from(sorted(CallState)))
    def nothing_follows_an_end(self, state: CallState) -> None:
        with pytest.raises(IllegalTransition):
            with_result(self.record, state, self.tick(), GOOD)
        with pytest.raises(IllegalTransition):
            with_state(self.record, state, self.tick())

    @invariant()
    def the_record_tells_the_walk(self) -> None:
        states = [move.state for move in self.record.audit]
        assert [state for at, state in enumerate(states) if at == 0 or states[at - 1] is not state] == self.path
        assert self.record.state is self.path[-1]
        assert [move.ts for move in self.record.audit] == sorted(move.ts for move in self.record.audit)

    @invariant()
    def it_ran_only_if_nobody_had_to_be_asked_or_somebody_allowed_it(self) -> None:
        if CallState.RUNNING in self.path:
            assert CallState.AWAITING_APPROVAL not in self.path or self.decisions == ["allow"]
            assert self.record.started_at is not None
        else:
            assert self.record.started_at is None
            assert self.record.duration_ms is None

    @invariant()
    def it_has_a_result_exactly_when_it_is_over(self) -> None:
        assert isinstance(self.record.result, dict) == is_final(self.record.state)
        assert (self.record.completed_at is not None) == is_final(self.record.state)
        assert self.path.count(self.record.state) == 1 or not is_final(self.record.state)


TestCallWalk = CallWalk.TestCase
TestCallWalk.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)


def test_the_table_is_that_of_the_design() -> None:
    p, a, r = CallState.PENDING, CallState.AWAITING_APPROVAL, CallState.RUNNING
    c, f, d, s = CallState.COMPLETED, CallState.FAILED, CallState.DENIED, CallState.SEALED
    legal = {(p, a), (p, r), (p, c), (p, f), (p, d), (p, s), (a, r), (a, d), (a, f), (a, s), (r, c), (r, f), (r, s)}
    assert {(one, other) for one, others in TRANSITIONS.items() for other in others} == legal
    assert set(TRANSITIONS) == set(CallState)


def test_a_step_leaves_the_old_record_as_it_was() -> None:
    before = record_in(CallState.AWAITING_APPROVAL)
    history = list(before.audit)
    allowed = with_decision(before, ApprovalVerdict("allow", "go", "ann"), 3.0)
    running = with_state(allowed, CallState.RUNNING, 4.0)
    assert (before.audit, before.approval and before.approval.decision) == (history, None)
    assert [move.note for move in running.audit] == [None, "because", "allow by ann: go", None]
    endless = ApprovalVerdict("deny", "x" * 100_000, "y" * 100_000)
    assert len(str(with_decision(before, endless, 3.0))) < 10_000  # notes are bounded
    assert running.approval is not None
    assert (running.approval.reason, running.approval.note, running.approval.by) == ("because", "go", "ann")


def test_the_duration_is_that_of_the_run_and_never_negative() -> None:
    running = record_in(CallState.RUNNING)
    assert with_result(running, CallState.COMPLETED, 3.25, GOOD).duration_ms == 1250.0
    assert with_result(running, CallState.COMPLETED, 1.0, GOOD).duration_ms == 0.0  # somebody has set the clock back


def test_an_end_takes_a_result_and_nothing_else_does() -> None:
    with pytest.raises(IllegalTransition, match="takes a result"):
        with_state(record_in(), CallState.FAILED, 2.0)
    ended = with_result(record_in(), CallState.FAILED, 4.0, {"ok": False, "error": "z" * 100_000})
    assert len(str(ended.error)) == 2_000
    with pytest.raises(IllegalTransition, match="is no end"):
        with_result(record_in(), CallState.RUNNING, 2.0, BAD)
