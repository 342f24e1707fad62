"""Dialogs of extensions: somebody answers, or nobody does, and nothing is agreed to but what would keep a session."""

import json
from typing import Any

import pytest

from rpc.pi.dialogs import MAX_OPEN_DIALOGS
from rpc.pi.procedures import MAX_QUESTIONS, Consent
from rpc.settings import RpcSettings
from tests.rpc.pi.replay import END, Replay, state
from wire.messages import UiRequest
from wire.units import Seconds

SHOWN: list[dict[str, Any]] = [
    {"method": "notify", "message": "hello", "notifyType": "info"},
    {"method": "setStatus", "statusKey": "k", "statusText": "t"},
    {"method": "setWidget", "widgetKey": "k", "widgetLines": ["a", "b"], "widgetPlacement": "belowEditor"},
    {"method": "setTitle", "title": "t"},
    {"method": "set_editor_text", "text": "t"},
]


def dialog(method: str = "confirm", dialog_id: str = "d1", **fields: Any) -> dict[str, Any]:
    return {"type": "extension_ui_request", "id": dialog_id, "method": method, "title": "Sure?", **fields}


@pytest.fixture
def attended(replay: Replay) -> Replay:
    replay.attended = True
    return replay


@pytest.mark.parametrize("method", ["select", "confirm", "input", "editor"])
def test_with_nobody_there_a_dialog_is_cancelled_at_once(replay: Replay, method: str) -> None:
    replay.say(dialog(method))
    assert replay.last == {"type": "extension_ui_response", "id": "d1", "cancelled": True}
    assert replay.told == ['to pi: {"cancelled": true, "id": "d1"}']


@pytest.mark.parametrize("fields", SHOWN, ids=lambda fields: fields["method"])
@pytest.mark.parametrize("is_attended", [True, False])
def test_what_is_only_shown_needs_no_answer(replay: Replay, fields: dict[str, Any], *, is_attended: bool) -> None:
    replay.attended = is_attended
    replay.say({"type": "extension_ui_request", "id": "s1", **fields})
    assert len(replay.lines) == 1
    assert replay.dialect.next_deadline() is None
    (told,) = replay.told
    assert told.startswith(f"ui_request {fields['method']} {{")
    for value in fields.values():
        assert str(value).strip("[]").replace("'", '"') in told


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("select", {"value": "Allow"}),
        ("input", {"value": ""}),
        ("editor", {"value": "text"}),
        ("confirm", {"confirmed": True}),
        ("confirm", {"confirmed": False}),
        ("select", {"cancelled": True}),
    ],
)
def test_somebodys_answer_goes_to_pi(attended: Replay, method: str, answer: dict[str, Any]) -> None:
    attended.say(dialog(method))
    attended.ask("a", "ui_respond", id="d1", **answer)
    assert attended.last == {"type": "extension_ui_response", "id": "d1", **answer}
    assert attended.told[-2:] == ["ui_resolved answered", "a: {}"]


def test_the_first_answer_wins(attended: Replay) -> None:
    attended.say(dialog())
    attended.ask("a", "ui_respond", id="d1", confirmed=False)
    attended.ask("b", "ui_respond", id="d1", confirmed=True)
    attended.ask("c", "ui_respond", id="other", confirmed=True)
    assert attended.told[-2:] == ["b: error unknown_dialog", "c: error unknown_dialog"]
    assert len(attended.lines) == 2


@pytest.mark.parametrize(
    "answer",
    [
        {"value": "yes"},
        {},
        {"cancelled": False},
        {"confirmed": True, "cancelled": True},
        {"confirmed": True, "value": "x"},
        {"confirmed": "true"},
    ],
)
def test_an_answer_that_does_not_fit_leaves_the_dialog_open(attended: Replay, answer: dict[str, Any]) -> None:
    attended.say(dialog("confirm"))
    attended.ask("a", "ui_respond", id="d1", **answer)
    assert attended.told[-1] == "a: invalid_params"
    attended.ask("b", "ui_respond", id="d1", confirmed=True)
    assert attended.told[-1] == "b: {}"


def test_a_dialog_that_nobody_answers_is_cancelled_in_the_end() -> None:
    replay = Replay(RpcSettings(ui_timeout=Seconds(60.0)))
    replay.attended = True
    replay.say(dialog())
    replay.wait(59.9)
    assert len(replay.lines) == 1
    replay.wait(0.2)
    assert replay.last["cancelled"] is True
    assert replay.told[-1] == "ui_resolved timeout"
    assert replay.dialect.next_deadline() is None


def test_an_abort_answers_the_dialogs_that_it_would_not_dismiss(busy: Replay) -> None:
    busy.attended = True
    busy.say(dialog())
    busy.ask("b", "abort")
    assert [json.loads(line)["type"] for line in busy.lines[-2:]] == ["extension_ui_response", "abort"]
    busy.say(dialog(dialog_id="d2"))
    assert busy.last == {"type": "extension_ui_response", "id": "d2", "cancelled": True}
    busy.say(END, busy.answer_to("abort"))
    busy.answer_questions()
    assert busy.told[-1] == 'b: {"left_in_queue": 0}'


def test_a_session_change_in_a_run_does_the_same(busy: Replay) -> None:
    busy.attended = True
    busy.say(dialog())
    busy.ask("b", "new_session")
    assert [json.loads(line)["type"] for line in busy.lines[-2:]] == ["extension_ui_response", "abort"]


def test_open_dialogs_are_bounded(attended: Replay) -> None:
    attended.say(*[dialog(dialog_id=f"d{number}") for number in range(MAX_OPEN_DIALOGS + 1)])
    assert [json.loads(line)["id"] for line in attended.lines[1:]] == [f"d{MAX_OPEN_DIALOGS}"]


def answer_of(replay: Replay, **fields: Any) -> dict[str, Any]:
    """What pi is answered to a dialog that it opens now."""
    replay.say(dialog(**fields))
    answer: dict[str, Any] = replay.last
    return answer


YES = {"type": "extension_ui_response", "id": "d1", "confirmed": True}
NO = {"type": "extension_ui_response", "id": "d1", "cancelled": True}


@pytest.mark.parametrize("is_attended", [True, False])
@pytest.mark.parametrize(
    ("method", "params"), [("new_session", {}), ("switch_session", {"session_file": "/old.jsonl"})]
)
def test_what_is_asked_before_the_session_changes_is_confirmed_and_nothing_else(
    replay: Replay, method: str, params: dict[str, Any], *, is_attended: bool
) -> None:
    replay.attended = is_attended
    replay.ask("a", method, **params)
    assert answer_of(replay, title="Clear session?") == NO
    replay.answer(method, {"cancelled": True})
    assert answer_of(replay, title="Clear session?") == YES
    assert answer_of(replay, title="And the files?") == NO, "a second extension's"
    replay.answer(method, {"cancelled": True})
    assert answer_of(replay, title="Clear session?") == YES
    assert answer_of(replay, title="And the files?") == YES
    assert answer_of(replay, title="Trust this project?") == NO, "the new session's beginning"
    replay.answer(method, {"cancelled": False})
    replay.answer("get_state", state(sessionFile="/old.jsonl", messageCount=2))
    assert replay.told[-1].startswith("a: {")
    assert not replay.written
    replay.attended = False
    assert answer_of(replay, title="Clear session?") == NO, "it is over"


@pytest.mark.parametrize("method", ["select", "input", "editor"])
def test_a_question_without_a_yes_keeps_the_session_and_is_named(replay: Replay, method: str) -> None:
    replay.ask("a", "new_session")
    assert answer_of(replay, method=method, title="3 uncommitted files. Proceed?") == NO
    replay.answer("new_session", {"cancelled": True})
    assert (
        replay.error_message == "an extension of pi has cancelled new_session; it asked: 3 uncommitted files. Proceed?"
    )


def test_where_an_extension_refuses_a_conversation_it_is_said_how_to_keep_it(replay: Replay) -> None:
    replay.ask("a", "switch_session", session_file="/old.jsonl")
    replay.answer("switch_session", {"cancelled": True})
    assert replay.error_message.endswith("; to keep the conversation, remove the extension and restart the supervisor")


def test_an_extension_that_always_asks_something_else_is_not_asked_for_ever(replay: Replay) -> None:
    replay.ask("a", "new_session")
    for number in range(MAX_QUESTIONS + 1):
        replay.say(dialog(title=f"{number}?"))
        replay.answer("new_session", {"cancelled": True})
    assert replay.told[-1] == "a: error cancelled"
    assert not replay.written


def test_a_bounded_number_of_questions_is_agreed_to() -> None:
    consent = Consent()
    with consent.granting(frozenset()):
        for number in range(MAX_QUESTIONS + 2):
            answer = consent.answer(UiRequest(id=str(number), method="confirm", fields={"title": f"Sure? {number}"}))
            assert answer is not None
            assert answer.cancelled
    assert consent.refused == {f"Sure? {number}\n" for number in range(MAX_QUESTIONS)}
