"""What a chat does with keys, events and answers, without a terminal."""

import re

import pytest

from commands.chat.blocks import MAX_BLOCK_CHARS
from commands.chat.effects import GiveBack, Leave, Line
from commands.chat.machine import LEAVE_SECONDS, LOOK_SECONDS, SLOW_START_SECONDS
from commands.chat.markdown import render_markdown
from commands.chat.status import live_lines, shown_lines, status_text, wrapped_parts
from errors import NoSupervisor, PoolError, RequestTimeout, UsageError
from tests.commands.chats import CALL, SHOWN, Chat


@pytest.fixture
def chat() -> Chat:
    return Chat(agent="main", role=None)


def test_an_answer_is_printed_in_blocks_and_once(chat: Chat) -> None:
    run = chat.say("hello")
    for piece in ("one", " two\n\nth", "ree"):
        chat.happens("text_chunk", run, delta=piece)
    assert chat.printed == ["> hello", "one two\n"]
    assert live_lines(chat.machine, 80, 10) == ["three"]
    chat.ends(run, "one two\n\nthree")
    assert chat.printed == ["> hello", "one two\n", "three"]
    silent = chat.say("again")
    chat.ends(silent, "all at once")
    assert chat.printed[-1] == "all at once"


@pytest.mark.parametrize("pieces", [["an", "swer"], []])
def test_an_answer_to_messages_that_were_steered_into_its_turn_is_printed_once(chat: Chat, pieces: list[str]) -> None:
    run = chat.say("first")
    for piece in pieces:
        chat.happens("text_chunk", run, delta=piece)
    other = chat.joins(run, "second")
    chat.happens("done", "status", reason="completed", text="a command's answer")  # it is no part of the turn
    for one in (run, other):
        chat.ends(one, "answer")
    assert [line for line in chat.printed if line == "answer"] == ["answer"]
    assert "a command's answer" in chat.printed
    chat.ends(chat.say("third"), "another")
    assert chat.printed[-1] == "another"


def test_a_message_into_a_running_turn_steers_it_and_messages_keep_their_order(chat: Chat) -> None:
    run = chat.say("first")
    chat.type("second")
    first, second = chat.requests
    assert (first.params.get("queue"), second.params["queue"]) == (None, "steer")
    assert (first.params["agent"], first.is_ordered, second.is_ordered) == ("main", True, True)
    chat.happens("run:start", second.params["run"], worker="w1", leader=run)
    for one in (run, second.params["run"]):
        chat.ends(one, reason="interrupted", error={"code": "aborted", "message": "it was aborted"})
    assert chat.printed[2:] == ["✗ it was aborted"]
    assert not chat.machine.is_busy


def test_ctrl_c_aborts_only_what_was_begun_here_and_twice_leaves(chat: Chat) -> None:
    chat.happens("run:start", "other", worker="w1", leader="other")
    chat.take(chat.machine.interrupt(10.0))
    assert chat.requests == []
    assert "not begun here" in chat.printed[-1]
    chat.ends("other")
    run = chat.say("mine")
    chat.take(chat.machine.interrupt(20.0))
    assert chat.asked[-1] == ("abort", {"session": "ada", "run": run})
    chat.take(chat.machine.interrupt(20.0 + LEAVE_SECONDS + 0.1))
    assert chat.others == []
    chat.take(chat.machine.interrupt(20.0 + LEAVE_SECONDS + 0.2))
    assert chat.others == [Leave(130)]
    assert chat.printed[-1] == "session ada: its turn goes on; come back with: pool chat -s ada"


def test_a_call_is_one_line_and_unfolds(chat: Chat) -> None:
    run = chat.say("run it")
    chat.happens("tool:start", run, call=CALL)
    chat.happens("tool:update", run, call=CALL, tail="a\nb\n")
    assert live_lines(chat.machine, 40, 10) == ["· exec ls", "  │ a", "  │ b"]
    done = {**CALL, "state": "COMPLETED", "duration_ms": 1200}
    chat.happens("tool:end", run, call=done, details={"exit_code": 0}, result="a\nb\nc\n")
    assert chat.printed[-1] == "✓ exec ls: ok, code 0 (1.2 s)"
    chat.type("/show")
    assert chat.printed[-4:] == ['✓ exec {"command": "ls"}', "│ a", "│ b", "│ c"]
    chat.type("/show 2")
    assert chat.printed[-1] == "of 1 tool calls that have ended, there is no such one"
    chat.happens("tool:start", run, call={**CALL, "id": "c2"})
    chat.ends(run, reason="interrupted")
    assert chat.printed[-2:] == ["✗ exec ls: no result", "✗ the turn was aborted"]


def test_a_turn_that_was_cut_short_says_by_which_limit(chat: Chat) -> None:
    for stop_reason, words in ((None, "the model's limit"), ("max_steps", "(max_steps)")):
        chat.ends(chat.say("go on"), reason="length", stop_reason=stop_reason)
        assert chat.printed[-1].startswith("✗ ")
        assert chat.printed[-1].endswith(words)


def test_a_message_that_waits_says_why(chat: Chat) -> None:
    chat.type("hello")
    request = chat.requests[-1]
    assert chat.machine.next_wakeup() is None
    chat.take(chat.machine.answered(request, {"status": "accepted"}, 10.0))
    assert chat.machine.next_wakeup() == 10.0 + SLOW_START_SECONDS
    chat.take(chat.machine.wake(10.0))
    assert len(chat.requests) == 1
    chat.take(chat.machine.wake(10.5))
    assert chat.machine.next_wakeup() == 10.5 + LOOK_SECONDS
    view = {"agent": "main", "model": None, "waits_for": "the pool is full", "state": "WORKING", "last_run": None}
    chat.take(chat.machine.answered(chat.requests[-1], {**view, "place": 3, "pending_permissions": []}, 10.5))
    assert live_lines(chat.machine, 40, 10) == ["… waits (place 3): the pool is full"]
    assert status_text(chat.machine, 60).startswith("waiting · ada · main")
    chat.happens("run:start", request.params["run"], worker="w1")
    assert (live_lines(chat.machine, 40, 10), chat.machine.next_wakeup()) == ([], None)


def test_a_chat_begins_with_what_was_said_and_with_what_is_asked(chat: Chat) -> None:
    chat.take(chat.machine.connection(is_there=True))
    view = {"agent": "main", "model": "big", "waits_for": None, "state": "PAUSED", "last_run": "r1"}
    chat.take(chat.machine.answered(chat.requests[0], {**view, "pending_permissions": [CALL]}, 1.0))
    assert [method for method, _ in chat.asked] == ["sessions.get", "sessions.history", "approvals.show"]
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "text", "text": "there"}]}]
    chat.take(chat.machine.answered(chat.requests[1], {"messages": said}, 1.0))
    chat.take(chat.machine.answered(chat.requests[2], {"call": CALL, "page": SHOWN}, 1.0))
    assert chat.printed == ["> hi", "there", "? may it call exec ls", "ls"]
    assert status_text(chat.machine, 60) == "approval · ada · main · big"
    chat.take(chat.machine.connection(is_there=False))
    assert status_text(chat.machine, 14) == "no supervisor…"
    chat.take(chat.machine.connection(is_there=True))
    chat.take(chat.machine.answered(chat.requests[-1], {**view, "pending_permissions": [CALL]}, 1.0))
    assert [method for method, _ in chat.asked][3:] == ["sessions.get"]


def test_a_state_that_is_older_than_an_event_is_asked_for_again(chat: Chat) -> None:
    chat.take(chat.machine.connection(is_there=True))
    view = {"agent": "main", "model": None, "waits_for": None, "state": "PAUSED", "last_run": "r1"}
    chat.happens("done", "r1", reason="completed")
    chat.happens("state_changed", to="READY")
    chat.take(chat.machine.answered(chat.requests[0], {**view, "pending_permissions": [CALL]}, 1.0))
    assert not chat.machine.is_busy
    assert [method for method, _ in chat.asked] == ["sessions.get", "sessions.history", "sessions.get"]
    chat.take(chat.machine.answered(chat.requests[2], {**view, "pending_permissions": [CALL]}, 1.0))
    chat.happens("permission_decided", call_id="c1", decision="allow")
    chat.take(chat.machine.answered(chat.requests[-1], {"call": CALL, "page": SHOWN}, 1.0))
    assert chat.machine.transcript.questions.current is None
    before = list(chat.printed)
    chat.take(chat.machine.failed(chat.requests[-1], UsageError("there is no call 'c1'"), 1.0))
    assert chat.printed == before


def test_a_message_of_another_front_end_that_waits_is_no_turn(chat: Chat) -> None:
    chat.take(chat.machine.connection(is_there=True))
    view = {"agent": "main", "model": None, "waits_for": "the pool is full", "state": "WORKING", "last_run": "r1"}
    chat.take(chat.machine.answered(chat.requests[0], {**view, "pending_permissions": []}, 1.0))
    assert status_text(chat.machine, 60).startswith("waiting · ada")
    assert live_lines(chat.machine, 40, 10) == ["… waits: the pool is full"]
    chat.happens("run:accepted", "r2", text="another one")
    assert chat.machine.next_wakeup() == 1.0 + LOOK_SECONDS
    chat.happens("run:start", "r1", worker="w1", leader="r1")
    assert (live_lines(chat.machine, 40, 10), chat.machine.next_wakeup()) == ([], None)


def test_what_a_slash_command_says_is_no_markdown_and_a_new_conversation_may_be_anothers(chat: Chat) -> None:
    chat.type("/new")
    assert "agent" not in chat.requests[-1].params
    chat.happens("done", chat.requests[-1].params["run"], reason="completed", text="one\n*two*")
    chat.type("hello")
    assert (chat.printed[-2], chat.requests[-1].params["agent"]) == ("one\n*two*", "main")


def test_an_agent_that_is_not_known_is_asked_for_once_at_a_time() -> None:
    chat = Chat()
    run = chat.say("hello")
    for _ in range(3):
        chat.happens("tool:running", run, call=CALL)
    assert [method for method, _ in chat.asked] == ["agent", "sessions.get"]
    chat.take(chat.machine.failed(chat.requests[-1], RequestTimeout("no answer in time"), 1.0))
    chat.happens("tool:running", run, call=CALL)
    assert [method for method, _ in chat.asked] == ["agent", "sessions.get", "sessions.get"]


def test_a_session_that_cannot_be_read_is_tried_again_and_the_error_said_once(chat: Chat) -> None:
    chat.take(chat.machine.connection(is_there=True))
    for at in (10.0, 20.0):
        chat.take(chat.machine.failed(chat.requests[-1], RequestTimeout("no answer in time"), at))
        assert (chat.printed, chat.machine.next_wakeup()) == (["no answer in time"], at + LOOK_SECONDS)
        chat.take(chat.machine.wake(at + LOOK_SECONDS))
        assert chat.machine.next_wakeup() is None
    view = {"agent": "main", "model": None, "waits_for": None, "state": "READY", "last_run": None}
    chat.take(chat.machine.answered(chat.requests[-1], {**view, "pending_permissions": []}, 30.0))
    assert [method for method, _ in chat.asked] == [*["sessions.get"] * 3, "sessions.history"]
    chat.take(chat.machine.failed(chat.requests[-1], UsageError("the transcript cannot be read"), 30.0))
    assert chat.printed[1:] == ["the transcript cannot be read"]


@pytest.mark.parametrize("error", [UsageError("there is no session 'ada'", session="ada"), NoSupervisor("it is gone")])
def test_an_unknown_session_and_one_whose_supervisor_is_gone_need_no_words(chat: Chat, error: PoolError) -> None:
    chat.take(chat.machine.connection(is_there=True))
    chat.take(chat.machine.failed(chat.requests[0], error, 1.0))
    assert (chat.printed, chat.machine.next_wakeup()) == ([], None)


def test_a_message_that_cannot_be_sent_is_given_back(chat: Chat) -> None:
    chat.type("hello")
    chat.take(chat.machine.failed(chat.requests[-1], NoSupervisor("no supervisor listens"), 1.0))
    assert chat.others == [GiveBack("hello")]
    assert (chat.printed[-1], chat.machine.is_busy) == ("no supervisor listens", False)


def test_bytes_of_the_terminal_that_are_no_text_are_replaced(chat: Chat) -> None:
    chat.type("a\udcffb")
    assert (chat.requests[-1].params["text"], chat.printed) == ("a?b", ["> a?b"])


def test_what_others_say_is_shown_and_tokens_are_summed(chat: Chat) -> None:
    chat.happens("run:accepted", "other", text="from elsewhere")
    chat.happens("run:start", "other", worker="w1", leader="other")
    for _ in range(2):
        chat.happens("token_usage", "other", input_tokens=1_000, output_tokens=20, cost=0.25)
    assert chat.printed == ["≫ from elsewhere"]
    assert status_text(chat.machine, 80) == "working · ada · main · 2,040 tokens · $0.50"
    chat.happens("agent_resumed", strategy="loaded")
    chat.happens("agent_resumed", strategy="refed")
    assert [line for line in chat.printed if "conversation" in line] == [
        "! the agent has lost its memory of the conversation and its tool calls; it was given the end of the transcript"
    ]


def test_reasoning_is_shown_where_it_is_asked_for() -> None:
    for thinking, shown in ((False, []), (True, ["  hm", "  so"])):
        chat = Chat(thinking=thinking)
        run = chat.say("why")
        chat.happens("think_chunk", run, delta="hm\nso")
        chat.happens("text_chunk", run, delta="because")
        assert chat.printed == ["> why", *shown]
        for _ in range(3):
            chat.happens("think_chunk", run, delta="x" * MAX_BLOCK_CHARS)
        assert len(chat.machine.transcript.partial_answer) <= MAX_BLOCK_CHARS
        assert len(chat.printed) == 1 + len(shown) + (2 if thinking else 0)


def test_a_line_is_broken_between_words_cut_before_its_end_or_left_to_be_copied() -> None:
    assert shown_lines(Line("! it went away", "warn", is_whole=True), 10) == ["! it went", "away"]
    assert shown_lines(Line("come back with: x -s y", "dim", is_whole=True), 10) == ["come back with: x -s y"]
    assert shown_lines(Line("! exec a long one", end=": code 3"), 20) == ["! exec a lo…: code 3"]


def test_on_a_narrow_terminal_every_key_is_seen() -> None:
    assert wrapped_parts("y Allow · a Allow this command · n Deny", 20) == ["y Allow", "a Allow this command", "n Deny"]
    assert wrapped_parts("y Allow · n Deny", 20) == ["y Allow · n Deny"]


@pytest.mark.parametrize("is_coloured", [False, True])
@pytest.mark.parametrize("block", ["# Title", "```python\nx = 1\n```", "|a|\n|-|\n|1|", "- one", "> quote", "text"])
def test_every_kind_of_block_has_one_empty_line_behind_it(block: str, *, is_coloured: bool) -> None:
    lines = re.sub(r"\x1b\[[\d;]*m", "", render_markdown(block, 40, is_coloured=is_coloured)).split("\n")
    assert (bool(lines[0].strip()), bool(lines[-3].strip()), lines[-2:]) == (True, True, ["", ""])
    assert not lines[0].startswith("   "), "centred"


def test_an_answer_that_comes_is_broken_where_the_terminal_breaks_wide_characters(chat: Chat) -> None:
    run = chat.say("write")
    chat.happens("text_chunk", run, delta="漢字漢字漢字👍 ab")
    assert live_lines(chat.machine, 9, 10) == ["漢字漢字", "漢字👍 ab"]
