"""Parts of the OpenAI API that decide by themselves: prompts, sessions of requests, errors, chunks, stops."""

import base64
import json
from http import HTTPStatus
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from doors.http.errors import HttpError
from doors.openai.answer_checks import StopFilter, cut_at_stop
from doors.openai.completion import UnansweredRuns
from doors.openai.completion_bodies import Chunks, TextExtractor, completion_body
from doors.openai.errors import ModelNotFound, render
from doors.openai.prompts import ClientToolResult, answered_call_ids, full_prompt, incremental_prompt
from doors.openai.requests import ChatRequest, ModelInput, chat_input, read_chat
from doors.openai.responses_requests import read_response
from doors.openai.session_ref import OWN_SESSION, SessionRef, find_session_ref, read_response_id, response_id
from errors import (
    AcquireTimeout,
    Conflict,
    InternalError,
    PoolClosed,
    PoolError,
    PoolSaturated,
    ProfileBroken,
    RequestTimeout,
    RunAborted,
    RunInterrupted,
    UsageError,
    WorkerExited,
    WorkerRefused,
)
from gateway.runs.run import DoneReason, RunOutcome

PIXEL = base64.b64encode(b"pixel").decode()
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Bonn"}'}}


def request(*messages: dict[str, Any]) -> ModelInput:
    return chat_input(msgspec.convert({"model": "main", "messages": list(messages)}, ChatRequest))


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def image_at(url: Any) -> list[dict[str, Any]]:
    return [said("user", [{"type": "image_url", "image_url": url}])]


def test_one_message_is_sent_as_it_is() -> None:
    alone = request(said("user", "/status"))
    assert full_prompt(alone).text == incremental_prompt(alone).text == "/status"


def test_a_session_that_knows_nothing_is_told_all_of_it_under_headings() -> None:
    prompt = full_prompt(
        request(
            *(said("system", "Be kind."), said("developer", "Be brief."), said("user", "hello")),
            *(said("assistant", None, tool_calls=[CALL]), said("tool", "grey", tool_call_id="c1")),
            *(said("assistant", "It is grey."), said("system", "It is late."), said("user", "bye")),
        )
    )
    assert prompt.text == (
        "Instructions:\n\nBe kind.\n\nBe brief.\n\nThe conversation so far:\n\nUser: hello\n\n"
        'Assistant called weather with {"city":"Bonn"}\n\nResult of weather: grey\n\nAssistant: It is grey.\n\n'
        "Now answer this:\n\nIt is late.\n\nbye"
    )
    assert prompt.results == []


def test_a_session_that_remembers_is_told_what_comes_after_the_assistant() -> None:
    called = (
        said("assistant", "", tool_calls=[CALL]),
        said("tool", [{"type": "text", "text": "g"}], tool_call_id="c1"),
    )
    news = (said("user", "one"), said("user", "two"))
    asked = request(said("system", "Be kind."), said("user", "hello"), *called, *news)
    assert incremental_prompt(asked) == ("one\n\ntwo", [], [ClientToolResult("c1", "g")])
    lost = request(said("user", "hello"), *called)
    assert "Result of weather: g\n\nNow answer this:\n\nGo on" in full_prompt(lost).text
    assert (full_prompt(lost).results, answered_call_ids(lost)) == ([], ["c1"])


def test_images_of_the_past_are_numbered_where_they_stood() -> None:
    text = {"type": "text", "text": "this?"}
    asked = request(said("user", [IMAGE]), said("assistant", "nice"), said("user", [text, IMAGE]))
    whole, news = full_prompt(asked), incremental_prompt(asked)
    assert "User: [image 1]" in whole.text
    assert whole.text.endswith("this?\n[image 2]")
    assert [image.data for image in whole.images] == [PIXEL, PIXEL]
    assert (news.text, len(news.images), news.images[0].mime_type) == ("this?", 1, "image/png")


@pytest.mark.parametrize("prompt", [incremental_prompt, full_prompt])
@pytest.mark.parametrize(
    ("messages", "param"),
    [
        *(([said("assistant", "x")], "messages"), ([said("system", "x")], "messages")),
        *(([said("user", "x"), said("assistant", "y")], "messages"), ([said("tool", "x")], "messages[0].tool_call_id")),
        ([said("user", [{"type": "input_audio"}])], "messages[0].content[0]"),
        ([said("user", [{"type": "image_url"}])], "messages[0].content[0]"),
        (image_at("data:image/png;base64,%"), "messages[0].content[0]"),
        (image_at("data:text/html;base64,AA=="), "messages[0].content[0]"),
        (image_at({"url": "http://127.0.0.1:9/x.png"}), "messages[0].content[0]"),
        ([said("user", [IMAGE] * 33)], "messages[0].content[32]"),
        ([said("tool", [IMAGE], tool_call_id="c1")], "messages[0].content[0]"),
    ],
)
def test_what_cannot_be_sent_is_named_by_its_place(messages: list[dict[str, Any]], param: str, prompt: Any) -> None:
    with pytest.raises(UsageError) as raised:
        prompt(request(*messages))
    assert raised.value.details["param"] == param


texts = st.integers(0, 10**6).map(lambda number: f"<{number}>")
conversations = st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), texts), max_size=8)


@given(conversations, texts)
def test_nothing_is_lost_and_the_last_message_comes_last(past: list[tuple[str, str]], last: str) -> None:
    asked = request(*(said(role, text) for role, text in past), said("user", last))
    whole, news = full_prompt(asked).text, incremental_prompt(asked).text
    at = -1
    for text in [text for _, text in past] + [last]:
        at = whole.index(text, at + 1)
    assert whole.endswith(news)
    assert news.endswith(last)
    assert not any(text in news and role == "assistant" for role, text in past if text not in news.split("\n\n"))


@pytest.mark.parametrize(
    "harmless",
    [
        {"n": 1, "stop": None, "logprobs": False, "modalities": ["text"], "response_format": {"type": "text"}},
        {"n": None, "stop": [], "tools": [], "tool_choice": "auto", "stream_options": None, "functions": None},
    ],
)
def test_what_asks_for_nothing_special_is_granted(harmless: dict[str, Any]) -> None:
    chat = {"model": "main", "messages": [said("user", "x")], **harmless}
    assert read_chat(msgspec.json.encode(chat)).ignored == ()


@pytest.mark.parametrize("read", [read_chat, read_response])
def test_a_name_of_a_conversation_that_would_have_no_effect_is_refused(read: Any) -> None:
    for name in ("session", "session_id", "sessionKey", "conversation", "thread_id"):
        body = {"model": "main", "messages": [said("user", "x")], "input": "x", name: "mine"}
        with pytest.raises(UsageError, match="by the header X-Pool-Session") as caught:
            read(msgspec.json.encode(body))
        assert caught.value.details["param"] == name


def test_what_goes_back_in_a_header_looks_like_parameters_and_is_not_too_much() -> None:
    names = [f"p_{chr(97 + number)}" for number in range(26)]
    odd = dict.fromkeys((*names, "x\r\ny: z", "P", "q" * 41), 1) | {"seed": None}
    chat = {"model": "main", "messages": [said("user", "x")], **odd}
    assert read_chat(msgspec.json.encode(chat)).ignored == tuple(names[:20])


def place(headers: dict[str, str] | None = None, user: str | None = None, answered: tuple[str, ...] = ()) -> SessionRef:
    return find_session_ref(headers or {}, user, answered, "token:http")


def test_the_header_comes_before_the_user_and_both_before_a_session_of_its_own() -> None:
    assert place({"x-pool-session": "alice"}, "bob")[:3:2] == ("alice", False)
    assert place(user="bob")[:3:2] == ("bob", False)
    own = place(user="")
    assert own.is_ours
    assert OWN_SESSION.fullmatch(own.session)
    assert own.session != place().session
    assert place(user="agent:OPS:main").session == "agent:ops:main:main", "a key has one spelling"
    assert place({"x-pool-session": "\u4e16".encode().decode("latin-1")}).session == "\u4e16"


@pytest.mark.parametrize(
    ("name", "values"),
    [("X-Pool-Session", ["", "\xff"]), ("Idempotency-Key", ["", "x" * 129, "a\tb", "\xe4"])],
)
def test_a_header_that_cannot_be_read_or_sent_back_is_refused(name: str, values: list[str]) -> None:
    for value in values:
        with pytest.raises(UsageError) as raised:
            place({name.lower(): value}, "bob")
        assert raised.value.details["param"] == name


def test_the_same_key_finds_the_same_session_for_the_same_caller_only() -> None:
    key = {"idempotency-key": "k1"}
    first = place(key)
    assert (first, first.run) == (place(key), "k1")
    assert first.session != find_session_ref(key, None, (), "token:other").session


def test_a_call_of_a_session_of_its_own_finds_back_and_of_a_named_one_keeps_its_id() -> None:
    own = place()
    told = own.to_client("r1.1_0\n")
    back = place(answered=(told, told))
    assert (back.session, back.from_client(told)) == (own.session, "r1.1_0\n")
    for other in ("call_x", "call_" + "b" * 32 + "_1"):
        assert place(answered=(told, other)).session != own.session, "calls of none or of several find a new one"
    assert place(answered=("call_1",)).from_client("call_1") == "call_1"
    named = place(user="alice")
    assert named.to_client("r1.0") == named.from_client("r1.0") == "r1.0"


def test_the_id_of_a_response_says_which_session_and_run_it_is() -> None:
    for session in ("alice", "agent:main:telegram:dm:\u4e16", "x" * 500):
        made = response_id(session, "run-1")
        assert made.isascii()
        assert read_response_id(made) == (session, "run-1")
    for wrong in ("", "resp_", "resp_!", "resp_YQ", "resp_YQo", "resp_CmE", "resp_YQpiCmM", "chatcmpl-1"):
        assert read_response_id(wrong) is None


def test_the_latest_unanswered_runs_are_kept_and_the_oldest_give_way() -> None:
    unanswered = UnansweredRuns()
    for number in range(2001):
        unanswered.record(f"s{number}", "tried", "before")
    unanswered.record("s1", "again", "before")
    unanswered.record("one more", "tried", "before")
    covered = [("s0", "tried"), ("s1", "tried"), ("s1", "again"), ("s2", "tried"), ("s3", "tried")]
    found = [unanswered.covers(session, run, "before") for session, run in covered]
    assert found == [False, False, True, False, True], "s1 was noted after s2"
    assert not unanswered.covers("unknown", None, None)


@pytest.mark.parametrize(
    ("error", "status", "code", "again"),
    [
        *((UsageError("x"), 400, "usage", False), (Conflict("x"), 409, "conflict", False)),
        (WorkerRefused("x", worker_code="invalid_params"), 400, "worker_refused", False),
        (WorkerRefused("x", worker_code="no_model"), 502, "worker_refused", False),
        (HttpError(HTTPStatus.UNAUTHORIZED, "x"), 401, "invalid_api_key", False),
        (HttpError(HTTPStatus.FORBIDDEN, "x"), 403, "forbidden", False),
        (ModelNotFound("x", []), 404, "model_not_found", False),
        (HttpError(HTTPStatus.REQUEST_TIMEOUT, "x"), 408, "request_timeout", True),
        *((RunAborted("x"), 409, "aborted", False), (RunInterrupted("x"), 409, "interrupted", False)),
        (PoolSaturated("x"), 429, "saturated", True),
        (HttpError(HTTPStatus.TOO_MANY_REQUESTS, "x"), 429, "too_many_requests", True),
        *((InternalError("x"), 500, "internal", False), (WorkerExited("x"), 502, "worker_exited", False)),
        *((PoolClosed("x"), 503, "pool_closed", True), (PoolClosed("x", cut_short=True), 503, "pool_closed", False)),
        *((ProfileBroken("x"), 503, "profile_broken", True), (AcquireTimeout("x"), 504, "acquire_timeout", True)),
        (RequestTimeout("x"), 504, "request_timeout", False),
    ],
)
def test_each_kind_of_error_has_its_status(error: PoolError, status: int, code: str, *, again: bool) -> None:
    answer = render(error)
    body = msgspec.json.decode(answer.body)["error"]
    assert (answer.status_code, body["code"], answer.headers["x-should-retry"]) == (status, code, str(again).lower())
    assert body.keys() == {"message", "type", "param", "code"}
    assert (body["type"] == "server_error") == (status >= 500)


def test_a_saturated_pool_always_says_when_to_come_again() -> None:
    assert render(PoolSaturated("x")).headers["retry-after"] == "1"
    assert render(PoolSaturated("x", retry_after=2.5)).headers["retry-after"] == "3"


PLACE = SessionRef("alice", "k1", is_ours=False)


def push(*events: tuple[str, Any]) -> bytes:
    return msgspec.json.encode({"request": "r", "events": [{"type": type_, "data": data} for type_, data in events]})


def piece(text: str) -> tuple[str, Any]:
    return "text_chunk", {"delta": text}


def outcome(**facts: Any) -> RunOutcome:
    return RunOutcome(run_id="k1", session="alice", status="ok", **facts)


def chunks() -> Chunks:
    return Chunks(PLACE, model="main", created=7, includes_usage=False)


START: tuple[str, Any] = ("tool:start", {})


@pytest.mark.parametrize(
    ("pushes", "texts"),
    [
        ([push(("run:start", {}), piece("he"), piece("llo"), ("think_chunk", {"delta": "hm"}))], ["hello"]),
        ([push(("text_snapshot", {"from_seq": 1, "to_seq": 9, "text": "all of it"}))], ["all of it"]),
        (
            [push(START, piece("I look."), START, START), push(("tool:end", {})), push(piece("It"), piece(" rains"))],
            ["I look.", "", "\n\nIt rains"],
        ),
        ([push(piece(""), ("done", None))], [""]),
    ],
    ids=["pieces are joined", "a snapshot", "paragraphs around tools", "silence"],
)
def test_of_pushed_events_the_text_is_told(pushes: list[bytes], texts: list[str]) -> None:
    words = TextExtractor()
    assert [words.feed(each) for each in pushes] == texts
    assert words.has_text == any(texts)


def test_what_some_take_for_a_line_end_is_escaped() -> None:
    said = chunks().text("a\u2028b\u2029c\x85d\ne")
    assert said.decode().splitlines()[1:] == [""]
    assert json.loads(said.removeprefix(b"data: "))["choices"][0]["delta"]["content"] == "a\u2028b\u2029c\x85d\ne"


def test_the_first_chunk_names_the_role_whatever_it_says() -> None:
    first, last = chunks().end(outcome()).split(b"\n\n")[:2]
    assert json.loads(first.removeprefix(b"data: "))["choices"][0]["delta"]["role"] == "assistant"
    assert last == b"data: [DONE]"
    begun = chunks()
    begun.text("x")
    assert b"role" not in begun.text("y")


def test_an_answer_of_calls_has_no_text_and_an_empty_one_has() -> None:
    calls = [{"id": "c1", "name": "weather", "input": {"city": "Bonn"}}]
    asking = completion_body(outcome(reason=DoneReason.TOOL_CALLS, calls=calls), PLACE, model="main", created=7)
    silent = completion_body(outcome(silent=True), PLACE, model="main", created=7)
    assert asking["choices"][0]["message"]["content"] is None
    assert asking["choices"][0]["finish_reason"] == "tool_calls"
    assert silent["choices"][0]["message"] == {"role": "assistant", "content": "", "refusal": None}
    assert silent["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


WORDS = st.text("ab", max_size=12)


@example(pieces=["ab", "a"], stops=["b", "aba"])  # while one is whole, another that begins before it may become so
@given(pieces=st.lists(WORDS), stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=4))
def test_however_it_is_cut_the_text_ends_before_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    ends = [at for stop in stops if (at := whole.find(stop)) >= 0]
    cutter = StopFilter(stops)
    shown = [cutter.push(piece) for piece in pieces]
    assert "".join(shown) + cutter.end() == whole[: min(ends, default=len(whole))] == cut_at_stop(stops, whole)


def test_what_cannot_become_a_stop_is_shown_at_once() -> None:
    cutter = StopFilter(["END"])
    shown = [cutter.push(piece) for piece in ("one E", "x", "two EN", "D three", "four")]
    assert [*shown, cutter.end()] == ["one ", "Ex", "two ", "", "", ""]
