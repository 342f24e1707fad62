"""Calls that await a person: found by their id, forgotten when decided or when their turn is over."""

import pytest

from errors import UsageError
from gateway.events.worker_events import READERS, PublishedEvent
from gateway.turns import approvals as module
from gateway.turns.approvals import PendingPermissions
from tests.doors.envelopes import event


def asks(call: str) -> PublishedEvent:
    return READERS["permission_required"](event("x", {"call": {"id": call, "name": "bash"}}).data)


def decided(call: str) -> PublishedEvent:
    return READERS["permission_decided"](event("x", {"call_id": call, "decision": "allow"}).data)


def test_a_call_is_open_until_it_is_decided_or_its_turn_is_over() -> None:
    first: dict[str, list[str | None]] = {"a": [], "b": []}
    open_calls = PendingPermissions(lambda session, call: first[session].append(call))
    for session, call in (("a", "c1"), ("a", "c2"), ("b", "c3")):
        open_calls.observe(session, asks(call))
    open_calls.observe("a", decided("c1"))
    open_calls.observe("b", decided("c2"))
    assert [call.id for call in open_calls.pending("a")] == ["c2"]
    assert [(asked.session, asked.call.id) for asked in open_calls.snapshot()] == [("a", "c2"), ("b", "c3")]
    open_calls.close_session("b")
    open_calls.close_session("b")
    assert first == {"a": ["c1", "c2"], "b": ["c3", None]}
    assert (open_calls.count, open_calls.pending("b")) == (1, [])


def test_a_call_is_found_by_its_id_and_by_its_session_where_several_have_it() -> None:
    open_calls = PendingPermissions()
    open_calls.observe("a", asks("c1"))
    assert open_calls.session_of("c1") == "a"
    open_calls.observe("b", asks("c1"))
    with pytest.raises(UsageError, match="2 sessions have had a call 'c1'"):
        open_calls.session_of("c1")
    assert open_calls.session_of("c1", "b") == "b"
    for call, session in (("c2", None), ("c1", "z")):
        with pytest.raises(
            UsageError, match=r"waits for approval.*; these do: c1 \(bash, session a\), c1 \(bash, session b"
        ):
            open_calls.session_of(call, session)


def test_a_refusal_says_what_became_of_the_call_or_what_else_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_LISTED", 1)
    calls = PendingPermissions()
    with pytest.raises(UsageError, match="no tool call 'c1' waits for approval; none does at all"):
        calls.session_of("c1")
    for call in ("c1", "c2", "c3"):
        calls.observe("a", asks(call))
    calls.observe("a", decided("c1"))
    with pytest.raises(UsageError, match=r"call 'c1' of session a was decided already \(allow\)"):
        calls.session_of("c1")
    with pytest.raises(UsageError, match=r"these do: c2 \(bash, session a\) and 1 more$") as caught:
        calls.session_of("c9")
    assert caught.value.details["pending"] == [{"session": "a", "call": "c2", "tool": "bash"}]
    calls.close_session("a")
    with pytest.raises(UsageError, match="call 'c2' of session a is no longer pending: its turn has ended"):
        calls.session_of("c2", "a")
    with pytest.raises(UsageError, match="no tool call 'c2' waits for approval in session b"):
        calls.session_of("c2", "b")


def test_a_call_that_is_asked_about_again_is_open_again() -> None:
    calls = PendingPermissions()
    calls.observe("a", asks("c1"))
    calls.close_session("a")
    calls.observe("a", asks("c1"))
    assert calls.session_of("c1") == "a"
    calls.observe("a", decided("c1"))
    with pytest.raises(UsageError, match="was decided already"):
        calls.session_of("c1")


def test_calls_that_are_no_longer_open_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_CLOSED", 2)
    calls = PendingPermissions()
    for call in ("c1", "c2", "c3"):
        calls.observe("a", asks(call))
        calls.observe("a", decided(call))
    with pytest.raises(UsageError, match="no tool call 'c1' waits for approval"):
        calls.session_of("c1")
    with pytest.raises(UsageError, match="was decided already"):
        calls.session_of("c2")


def test_what_workers_can_make_it_remember_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_CALLS", 2)
    open_calls = PendingPermissions()
    for call in ("c1", "c2", "c3"):
        open_calls.observe("a", asks(call))
    assert [call.id for call in open_calls.pending("a")] == ["c1", "c2"]
