"""Which session a request belongs to, and the way of a call's id out and back."""

import pytest

from doors.openai.session_ref import OWN_SESSION, SessionRef, find_session_ref
from errors import UsageError


def place(headers: dict[str, str] | None = None, user: str | None = None, answered: tuple[str, ...] = ()) -> SessionRef:
    return find_session_ref(headers or {}, user, answered, "token:http")


def test_the_header_comes_before_the_user_and_both_before_a_session_of_its_own() -> None:
    assert place({"x-pool-session": "alice"}, "bob")[:3:2] == ("alice", False)
    assert place(user="bob")[:3:2] == ("bob", False)
    own = place(user="")
    assert own.is_ours
    assert OWN_SESSION.fullmatch(own.session)
    assert own.session != place().session


def test_a_key_has_one_spelling() -> None:
    assert place(user="agent:OPS:main").session == "agent:ops:main:main"


def test_an_empty_header_is_refused_and_not_taken_for_none() -> None:
    with pytest.raises(UsageError, match="X-Pool-Session"):
        place({"x-pool-session": ""}, "bob")


def test_a_header_may_hold_more_than_ascii() -> None:
    assert place({"x-pool-session": "\u4e16".encode().decode("latin-1")}).session == "\u4e16"
    with pytest.raises(UsageError, match="UTF-8"):
        place({"x-pool-session": "\xff"})


@pytest.mark.parametrize("key", ["", "x" * 129, "a\tb", "\xe4"])
def test_a_key_that_cannot_be_sent_back_is_none(key: str) -> None:
    with pytest.raises(UsageError) as raised:
        place({"idempotency-key": key})
    assert raised.value.details["param"] == "Idempotency-Key"


def test_the_same_key_finds_the_same_session_for_the_same_caller_only() -> None:
    first = place({"idempotency-key": "k1"})
    assert first == place({"idempotency-key": "k1"})
    assert first.run == "k1"
    assert first.session != find_session_ref({"idempotency-key": "k1"}, None, (), "token:other").session


def test_a_call_of_a_session_of_its_own_finds_back() -> None:
    own = place()
    told = own.to_client("r1.1_0\n")
    back = place(answered=(told,))
    assert (back.session, back.from_client(told)) == (own.session, "r1.1_0\n")
    assert place(answered=(told, told)).session == own.session


@pytest.mark.parametrize("others", [("call_x",), ("call_" + "b" * 32 + "_1",)])
def test_calls_of_no_session_or_of_several_find_a_new_one(others: tuple[str, ...]) -> None:
    own = place()
    assert place(answered=(own.to_client("1"), *others)).session != own.session
    assert place(answered=("call_1",)).from_client("call_1") == "call_1"


def test_calls_of_a_session_that_was_named_keep_their_ids() -> None:
    named = place(user="alice")
    assert named.to_client("r1.0") == named.from_client("r1.0") == "r1.0"
