"""Calls that await a person: found by their id, forgotten when decided or when their turn is over."""

import pytest

from errors import UsageError
from gateway import permissions as module
from gateway.events.translate import Single
from gateway.events.vocabulary import READERS
from gateway.permissions import Permissions
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
    with pytest.raises(UsageError, match="2 sessions have a call 'c1'"):
        open_calls.session_of("c1")
    assert open_calls.session_of("c1", "b") == "b"
    for call, session in (("c2", None), ("c1", "z")):
        with pytest.raises(UsageError, match="awaits approval"):
            open_calls.session_of(call, session)


def test_what_workers_can_make_it_remember_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    open_calls = Permissions()
    for call in ("c1", "c2", "c3"):
        open_calls.note("a", asks(call))
    assert [call.id for call in open_calls.pending("a")] == ["c1", "c2"]
