"""Calls that await a person: found by their id, forgotten when decided or when their turn is over."""

import pytest

from errors import UsageError
from gateway.events.worker_events import READERS, Single
from gateway.turns import approvals as module
from gateway.turns.approvals import Permissions
from tests.doors.envelopes import event


def asks(call: str) -> Single:
    return READERS["permission_required"](event("x", {"call": {"id": call, "name": "bash"}}).data)


def decided(call: str) -> Single:
    return READERS["permission_decided"](event("x", {"call_id": call, "decision": "allow"}).data)


def test_a_call_is_open_until_it_is_decided_or_its_turn_is_over() -> None:
    open_calls = Permissions()
    for session, call in (("a", "c1"), ("a", "c2"), ("b", "c3")):
        open_calls.note(session, asks(call))
    open_calls.note("a", decided("c1"))
    open_calls.note("b", decided("c2"))
    assert [call.id for call in open_calls.pending("a")] == ["c2"]
    assert [(asked.session, asked.call.id) for asked in open_calls.snapshot()] == [("a", "c2"), ("b", "c3")]
    open_calls.forget("b")
    assert (open_calls.count, open_calls.pending("b")) == (1, [])


def test_a_call_is_found_by_its_id_and_by_its_session_where_several_have_it() -> None:
    open_calls = Permissions()
    open_calls.note("a", asks("c1"))
    assert open_calls.session_of("c1") == "a"
    open_calls.note("b", asks("c1"))
    with pytest.raises(UsageError, match="2 sessions have had a call 'c1'"):
        open_calls.session_of("c1")
    assert open_calls.session_of("c1", "b") == "b"
    for call, session in (("c2", None), ("c1", "z")):
        with pytest.raises(
            UsageError, match=r"awaits approval.*; these do: c1 \(bash, session a\), c1 \(bash, session b"
        ):
            open_calls.session_of(call, session)


def test_a_refusal_says_what_became_of_the_call_or_what_else_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHOWN", 1)
    calls = Permissions()
    with pytest.raises(UsageError, match="no tool call 'c1' awaits approval; none does at all"):
        calls.session_of("c1")
    for call in ("c1", "c2", "c3"):
        calls.note("a", asks(call))
    calls.note("a", decided("c1"))
    with pytest.raises(UsageError, match=r"call 'c1' of session a was decided already \(allow\)"):
        calls.session_of("c1")
    with pytest.raises(UsageError, match=r"these do: c2 \(bash, session a\) and 1 more$") as caught:
        calls.session_of("c9")
    assert caught.value.details["pending"] == [{"session": "a", "call": "c2", "tool": "bash"}]
    calls.forget("a")
    with pytest.raises(UsageError, match="call 'c2' of session a waits no more: its turn is over"):
        calls.session_of("c2", "a")
    with pytest.raises(UsageError, match="no tool call 'c2' awaits approval in session b"):
        calls.session_of("c2", "b")


def test_a_call_that_is_asked_about_again_is_open_again() -> None:
    calls = Permissions()
    calls.note("a", asks("c1"))
    calls.forget("a")
    calls.note("a", asks("c1"))
    assert calls.session_of("c1") == "a"
    calls.note("a", decided("c1"))
    with pytest.raises(UsageError, match="was decided already"):
        calls.session_of("c1")


def test_calls_that_are_no_longer_open_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 2)
    calls = Permissions()
    for call in ("c1", "c2", "c3"):
        calls.note("a", asks(call))
        calls.note("a", decided(call))
    with pytest.raises(UsageError, match="no tool call 'c1' awaits approval"):
        calls.session_of("c1")
    with pytest.raises(UsageError, match="was decided already"):
        calls.session_of("c2")


def test_what_workers_can_make_it_remember_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    open_calls = Permissions()
    for call in ("c1", "c2", "c3"):
        open_calls.note("a", asks(call))
    assert [call.id for call in open_calls.pending("a")] == ["c1", "c2"]
