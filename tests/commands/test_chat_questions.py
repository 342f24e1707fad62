"""Tool calls that wait for a person, in a chat without a terminal."""

import pytest

from commands.chat.effects import GiveBack
from errors import NoSupervisor
from tests.commands.chats import CALL, SHOWN, Chat


@pytest.fixture
def chat() -> Chat:
    return Chat(agent="main", role=None)


def test_a_question_is_answered_by_a_line_once(chat: Chat) -> None:
    run = chat.say("list")
    chat.happens("tool:start", run, call=CALL)
    chat.happens("permission_required", run, call=CALL, reason="every call needs approval", shown=SHOWN)
    assert chat.printed[-2:] == ["? may it call exec (every call needs approval)", "ls"]
    questions = chat.machine.transcript.questions
    assert questions.keys == "y Allow · n Deny · n and a text says why · then Enter"
    for text in ("a", "yes, go on", "y do it"):  # no answer of this call; a consent that says more
        chat.type(text)
        assert (chat.printed[-1], len(chat.requests)) == (questions.keys, 1)
    assert chat.others == [GiveBack("yes, go on"), GiveBack("y do it")]
    chat.type("y")
    assert chat.asked[-1] == ("decide", {"call_id": "c1", "session": "ada", "decision": "allow"})
    assert questions.answer("y", "y") == []
    chat.take(chat.machine.failed(chat.requests[-1], NoSupervisor("gone"), 1.0))
    chat.type("n list the other directory")
    note = {"call_id": "c1", "session": "ada", "decision": "deny", "note": "list the other directory"}
    assert chat.asked[-1] == ("decide", note)
    chat.take(chat.machine.failed(chat.requests[-1], NoSupervisor("gone"), 1.0))
    assert chat.others[2:] == [GiveBack("n list the other directory")]
    chat.type("you must not")
    assert chat.asked[-1][1] == {**note, "note": "you must not"}
    chat.happens("permission_decided", run, call_id="c1", decision="deny", by="root")
    chat.type("a message again")
    assert chat.requests[-1].method == "agent"


def test_what_cannot_be_sent_is_given_back_as_it_was_typed(chat: Chat) -> None:
    chat.happens("permission_required", chat.say("list"), call=CALL, shown=SHOWN)
    for decided in (False, True):
        chat.take(chat.machine.submit("a long text", "[paste 1]"))
        assert "a long text" in chat.requests[-1].params.values()
        chat.take(chat.machine.failed(chat.requests[-1], NoSupervisor("gone"), 1.0))
        assert chat.others[-1] == GiveBack("[paste 1]")
        if not decided:
            chat.happens("permission_decided", call_id="c1", decision="deny")


def test_a_long_call_is_allowed_only_once_all_of_it_was_shown(chat: Chat) -> None:
    run = chat.say("write")
    chat.happens("permission_required", run, call=CALL, shown={**SHOWN, "hidden": 9, "hidden_lines": 2})
    questions = chat.machine.transcript.questions
    chat.type("yes")  # neither an answer, nor a note that denies it
    assert (chat.printed[-1], chat.requests[1:]) == (questions.keys, [])
    chat.type("v")
    assert chat.asked[-1] == ("approvals.show", {"call_id": "c1", "session": "ada", "offset": 2})
    page = {"parts": [{"name": "command", "text": "the rest", "offset": 2}], "offset": 2, "seen": "abcd"}
    chat.take(chat.machine.answered(chat.requests[-1], {"call": CALL, "page": page}, 1.0))
    assert chat.printed[-1] == "the rest"
    chat.type(" Y ")
    assert (chat.asked[-1][1]["decision"], chat.asked[-1][1]["seen"]) == ("allow", "abcd")


def test_the_answer_for_ever_is_the_agents_own(chat: Chat) -> None:
    run = chat.say("list")
    options = [{"id": "once", "kind": "allow_once"}, {"id": "ever", "kind": "allow_always"}]
    chat.happens("permission_required", run, call=CALL, shown=SHOWN, options=options)
    chat.type("a")
    assert chat.asked[-1][1]["option_id"] == "ever"
    found = chat.machine.transcript.questions.found([{"id": "c2"}])
    chat.take(found)
    listed = {**CALL, "id": "c2", "options": options}
    chat.take(chat.machine.answered(chat.requests[-1], {"call": listed, "page": SHOWN}, 1.0))
    chat.type("a")
    assert (chat.asked[-1][1]["call_id"], chat.asked[-1][1]["option_id"]) == ("c2", "ever")


@pytest.mark.parametrize("is_read_first", [True, False])
def test_a_question_ends_with_the_supervisor_of_its_turn(chat: Chat, *, is_read_first: bool) -> None:
    run = chat.say("list")
    chat.happens("tool:start", run, call=CALL)
    chat.happens("permission_required", run, call=CALL, shown=SHOWN)
    chat.take(chat.machine.connection(is_there=True))
    view = {"agent": "main", "model": None, "waits_for": None, "state": "READY", "last_run": run}
    if is_read_first:
        chat.take(chat.machine.answered(chat.requests[-1], {**view, "pending_permissions": []}, 1.0))
        assert chat.machine.transcript.questions.current is None
    chat.ends(run, reason="interrupted")
    assert (chat.machine.transcript.questions.current, chat.machine.transcript.calls.running) == (None, [])
    chat.type("hello again")
    assert chat.requests[-1].method == "agent"
