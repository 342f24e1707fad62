"""Questions to a person: each is decided once, and whatever comes later is refused with a reason."""

import pytest

from agent.approvals import Approvals, ApprovalVerdict, CallDescription, NotDecidable, PendingApproval
from wire.call_page import CallPart
from wire.messages import ToolCallView


def ask(
    approvals: Approvals, call_id: str, taken: list[ApprovalVerdict] | None = None, *parts: CallPart
) -> PendingApproval:
    question = PendingApproval(
        ToolCallView(call_id, "exec"), ([] if taken is None else taken).append, lambda _: None, CallDescription(parts)
    )
    approvals.open(question)
    return question


def refusal(approvals: Approvals, call_id: str) -> str:
    with pytest.raises(NotDecidable) as refused:
        approvals.decide(call_id, "allow")
    return refused.value.code


def test_a_call_that_was_shown_in_part_is_allowed_only_with_the_word_from_its_end() -> None:
    approvals = Approvals()
    taken: list[ApprovalVerdict] = []
    for call in ("c", "d"):
        ask(approvals, call, taken, CallPart("command", "x\n" * 10_000))
    for seen in (None, "", "wrong"):
        with pytest.raises(NotDecidable, match="longer than what was shown of it by 19,920 characters") as refused:
            approvals.decide("c", "allow", seen=seen)
        assert refused.value.code == "not_shown"
    assert taken == []
    approvals.decide("c", "allow", seen=approvals.page("c", 19_000).seen)
    approvals.decide("d", "deny")  # which harms nobody
    assert [decided.decision for decided in taken] == ["allow", "deny"]


async def test_a_decision_reaches_who_waits_for_it() -> None:
    approvals = Approvals()
    question = ask(approvals, "c")
    approvals.decide("c", "deny", "no", "ann")
    assert await question.wait() == ApprovalVerdict("deny", "no", "ann")


def test_what_nobody_asked_about_cannot_be_decided() -> None:
    approvals = Approvals()
    assert refusal(approvals, "c") == "nothing_pending"
    with pytest.raises(NotDecidable, match=r"call 'x{100}' waits") as refused:
        approvals.decide("x" * 100_000, "allow")
    assert len(str(refused.value)) < 200


def test_each_reason_for_being_closed_has_its_own_code() -> None:
    approvals = Approvals()
    for call_id in ("decided", "ended"):
        ask(approvals, call_id)
    approvals.decide("decided", "allow")
    approvals.withdraw("ended")
    approvals.mark_sealed(["sealed"])
    assert [refusal(approvals, call_id) for call_id in ("decided", "ended", "sealed")] == [
        "already_decided",
        "nothing_pending",
        "sealed",
    ]


def test_an_end_does_not_make_a_decision_undone() -> None:
    approvals = Approvals()
    ask(approvals, "c")
    approvals.decide("c", "allow")
    approvals.withdraw("c")
    assert refusal(approvals, "c") == "already_decided"


def test_sealing_closes_an_open_question() -> None:
    approvals = Approvals()
    taken: list[ApprovalVerdict] = []
    ask(approvals, "c", taken)
    approvals.mark_sealed(["c"])
    assert refusal(approvals, "c") == "sealed"
    assert (taken, approvals.pending()) == ([], [])


def test_an_id_that_is_used_again_is_a_new_question() -> None:
    approvals = Approvals()
    ask(approvals, "c")
    with pytest.raises(ValueError, match="waits for a decision already"):
        ask(approvals, "c")
    approvals.decide("c", "allow")
    ask(approvals, "c")
    approvals.decide("c", "deny")


def test_the_memory_of_closed_calls_is_bounded() -> None:
    approvals = Approvals()
    approvals.mark_sealed(f"c{number}" for number in range(5_000))
    assert len(approvals._closed) == 1_000
    assert refusal(approvals, "c0") == "nothing_pending"
    assert refusal(approvals, "c4999") == "sealed"
