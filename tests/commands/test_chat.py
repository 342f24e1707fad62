"""What a chat does with keys, events and answers, without a terminal."""

import json
import re
from typing import Any

import msgspec
import pytest

from commands.chat.blocks import MAX_BLOCK_CHARS
from commands.chat.effects import CallText, Effect, GiveBack, Leave, Line, Markdown, Request
from commands.chat.machine import LEAVE_SECONDS, LOOK_SECONDS, SLOW_START_SECONDS, ChatMachine
from commands.chat.markdown import render_markdown
from commands.chat.status import live_lines, shown_lines, status_text, wrapped_parts
from errors import NoSupervisor, PoolError, RequestTimeout, UsageError
from wire.events import channel_of
from wire.messages import EventEnvelope

CALL = {"id": "c1", "name": "exec", "input_preview": '{"command": "ls"}'}
SHOWN = {"parts": [{"name": "command", "text": "ls"}]}


class Chat:
    """A machine of the session ``ada``, its requests, and what it has printed."""

    def __init__(self, **options: Any) -> None:
        self.machine = ChatMachine("ada", **options)
        self.requests: list[Request] = []
        self.printed: list[str] = []
        self.others: list[Effect] = []
        self.seq = 0

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Request():
                    self.requests.append(effect)
                case Line(text=text, end=end):
                    self.printed.append(text + end)
                case Markdown(text=text):
                    self.printed.append(text)
                case CallText(page=page):
                    self.printed += [part.text for part in page.parts]
                case _:
                    self.others.append(effect)

    def type(self, text: str) -> None:
        self.take(self.machine.submit(text, text))

    def happens(self, type_: str, run: str | None = None, **data: Any) -> None:
        self.seq += 1
        raw = msgspec.Raw(json.dumps(data).encode())
        event = EventEnvelope(self.seq, 1.0, "ada", channel_of(type_), type_, raw, run)
        self.take(self.machine.events([event]))

    def say(self, text: str) -> str:
        """Send a message whose turn begins; its run."""
        self.type(text)
        run = str(self.requests[-1].params["run"])
        self.happens("run:start", run, worker="w1", leader=run)
        return run

    def joins(self, leader: str, text: str) -> str:
        """Send a message into the running turn of another run; its run."""
        self.type(text)
        run = str(self.requests[-1].params["run"])
        self.happens("run:start", run, worker="w1", leader=leader)
        return run

    def ends(self, run: str, text: str = "", **data: Any) -> None:
        """A run that a worker has carried out is over, as the gateway says it."""
        self.happens("done", run, **{"reason": "completed", "text": text, "worker": "w1", **data})

    @property
    def asked(self) -> list[tuple[str, dict[str, Any]]]:
        return [(request.method, request.params) for request in self.requests]


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


def test_a_question_is_answered_with_one_key_once(chat: Chat) -> None:
    run = chat.say("list")
    chat.happens("tool:start", run, call=CALL)
    chat.happens("permission_required", run, call=CALL, reason="every call needs approval", shown=SHOWN)
    assert chat.printed[-2:] == ["? may it call exec (every call needs approval)", "ls"]
    questions = chat.machine.transcript.questions
    assert questions.keys == "y Allow · n Deny · or type what to do instead"
    assert questions.key("a") == []
    chat.take(questions.key("y"))
    assert chat.asked[-1] == ("decide", {"call_id": "c1", "session": "ada", "decision": "allow"})
    assert questions.key("y") == []
    chat.take(chat.machine.failed(chat.requests[-1], NoSupervisor("gone"), 1.0))
    chat.type("list the other directory")
    note = {"call_id": "c1", "session": "ada", "decision": "deny", "note": "list the other directory"}
    assert chat.asked[-1] == ("decide", note)
    chat.take(chat.machine.failed(chat.requests[-1], NoSupervisor("gone"), 1.0))
    assert chat.others == [GiveBack("list the other directory")]
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
    assert questions.key("y") == []
    chat.type("yes")  # neither an answer, nor a note that denies it
    assert (chat.printed[-1], chat.requests[1:]) == (questions.keys, [])
    chat.take(questions.key("v"))
    assert chat.asked[-1] == ("approvals.show", {"call_id": "c1", "session": "ada", "offset": 2})
    page = {"parts": [{"name": "command", "text": "the rest", "offset": 2}], "offset": 2, "seen": "abcd"}
    chat.take(chat.machine.answered(chat.requests[-1], {"call": CALL, "page": page}, 1.0))
    assert chat.printed[-1] == "the rest"
    chat.type(" Y ")  # as a line it is the same as the key
    assert (chat.asked[-1][1]["decision"], chat.asked[-1][1]["seen"]) == ("allow", "abcd")


def test_the_answer_for_ever_is_the_agents_own(chat: Chat) -> None:
    run = chat.say("list")
    options = [{"id": "once", "kind": "allow_once"}, {"id": "ever", "kind": "allow_always"}]
    chat.happens("permission_required", run, call=CALL, shown=SHOWN, options=options)
    chat.take(chat.machine.transcript.questions.key("a"))
    assert chat.asked[-1][1]["option_id"] == "ever"
    found = chat.machine.transcript.questions.found([{"id": "c2"}])
    chat.take(found)
    listed = {**CALL, "id": "c2", "options": options}
    chat.take(chat.machine.answered(chat.requests[-1], {"call": listed, "page": SHOWN}, 1.0))
    chat.take(chat.machine.transcript.questions.key("a"))
    assert (chat.asked[-1][1]["call_id"], chat.asked[-1][1]["option_id"]) == ("c2", "ever")


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
