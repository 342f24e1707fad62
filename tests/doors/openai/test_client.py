"""The official client against a real pool, chat completions: it need not know that there is one."""

from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.doors.openai.conftest import READER, Ask, Pool, text_of, wait_until_forgotten

pytestmark = pytest.mark.process


def test_agents_are_the_models_and_there_is_nothing_else(client: OpenAI, ask: Ask) -> None:
    assert [model.id for model in client.models.list().data] == ["main", "ops", "quick", "fake", "p"]
    assert client.models.retrieve("ops").id == "ops"
    with pytest.raises(openai.NotFoundError, match="main, ops"):
        client.models.retrieve("gpt-5")
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError, match="there is no model 'gpt-5'") as raised:
            ask("hello", model="gpt-5", stream=stream)
        assert (raised.value.code, raised.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError, match="there is no POST /v1/embeddings here"):
        client.embeddings.create(model="main", input="x")


def test_an_answer_comes_whole_or_as_a_stream(ask: Ask) -> None:
    answer = ask("hello \u2028 you")
    assert text_of(answer) == 'You said: "hello \u2028 you". (turn 1)'
    choice = answer.choices[0]
    assert (choice.finish_reason, choice.message.role, answer.model) == ("stop", "assistant", "main")
    chunks = list(ask('TOOL:ls {"path": "."} PIECES=3 DELAY=20', stream=True))
    assert text_of(chunks) == "piece 0 piece 1 piece 2 ", "and nothing of the agent's own tools"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [*[None] * (len(chunks) - 1), "stop"]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1


def test_what_is_said_is_in_the_stream_while_the_turn_goes_on(pool: Pool, ask: Ask, session: str) -> None:
    running = ask("PIECES=2 HANG", user=session, stream=True)
    assert next(filter(None, (text_of([chunk]) for chunk in running))) == "piece 0 "
    pool.call("abort", session=session)
    with pytest.raises(openai.APIError, match="aborted"):
        list(running)


def test_long_texts_and_line_ends_of_every_kind_arrive_as_they_are(ask: Ask) -> None:
    assert text_of(ask("PIECES=5000", stream=True)) == "".join(f"piece {number} " for number in range(5000))
    said = "one\u2028two\u2029three\x85four\r\nfive"
    assert text_of(ask(f"ECHO:{said}", stream=True)) == said
    assert "(5000000 characters)" in text_of(ask("x" * 5_000_000))


def test_it_says_what_it_cost_and_in_a_stream_only_if_asked(ask: Ask) -> None:
    *before, last = ask("USAGE=12/7", stream=True, stream_options={"include_usage": True})
    for usage in (ask("USAGE=12/7").usage, last.usage):
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (12, 7, 19)
    assert ([chunk.usage for chunk in before], last.choices) == ([None] * len(before), [])
    assert all(chunk.usage is None for chunk in ask("USAGE=12/7", stream=True))


def test_an_answer_that_was_cut_off_says_so(ask: Ask) -> None:
    assert ask("LENGTH PIECES=2").choices[0].finish_reason == "length"
    assert list(ask("LENGTH PIECES=2", stream=True))[-1].choices[0].finish_reason == "length"


@pytest.mark.parametrize("by", ["user", "header"])
def test_a_session_that_is_named_remembers(ask: Ask, pool: Pool, session: str, by: str) -> None:
    header = {"extra_headers": {"X-Pool-Session": session}, "user": "somebody else"}
    named: dict[str, Any] = {"user": session} if by == "user" else header
    ask("first", **named)
    assert text_of(ask("second", **named)) == 'You said: "second". (turn 2; before: "first")'
    third = pool.call("prompt", session=session, text="third")["text"]
    assert third.startswith('You said: "third". (turn 3; before: "first", "second")')
    with pytest.raises(openai.BadRequestError, match="is a conversation with 'main'") as raised:
        ask("hello", **named, model="ops")
    assert raised.value.param == "model"
    assert session in text_of(ask("/status", **named)), "slash commands are the supervisor's"
    assert text_of(ask("/status", **named, stream=True)).startswith("Session ")


def test_of_a_conversation_that_the_session_remembers_only_the_news_is_sent(ask: Ask, session: str) -> None:
    said: list[dict[str, Any]] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "first"}]
    said.append({"role": "assistant", "content": text_of(ask(said, user=session))})
    recalled = text_of(ask([*said, {"role": "user", "content": "RECALL"}], user=session))
    assert recalled.count("Be kind.") == recalled.count("first") == 1


def test_a_session_of_its_own_is_forgotten_when_the_request_has_been_answered(ask: Ask, pool: Pool) -> None:
    ask("hello")
    list(ask("hello", stream=True))
    wait_until_forgotten(pool)


@pytest.mark.parametrize("named", [False, True])
def test_the_same_request_under_the_same_key_is_one_run(ask: Ask, session: str, *, named: bool) -> None:
    options: dict[str, Any] = {"extra_headers": {"Idempotency-Key": f"k-{session}"}}
    options |= {"user": session} if named else {}
    said = [{"role": "user", "content": "earlier"}, {"role": "assistant", "content": "yes"}]
    said.append({"role": "user", "content": "RECALL"})
    first, again = ask(said, **options), ask(said, **options)
    assert first.id == again.id == f"chatcmpl-k-{session}"
    assert text_of(first) == text_of(again) == text_of(ask(said, stream=True, **options))
    with pytest.raises(openai.ConflictError, match="stands for"):
        ask("something else", **options)


def test_a_bad_key_is_refused_and_one_that_may_only_read_asks_nothing(pool: Pool) -> None:
    messages: Any = [{"role": "user", "content": "x"}]
    for stream in (False, True):
        with pool.client("a-token-of-somebody-else-0123") as stranger, pytest.raises(openai.AuthenticationError) as why:
            stranger.chat.completions.create(model="main", messages=messages, stream=stream)
        assert (why.value.code, why.value.type) == ("invalid_api_key", "authentication_error")
    with pool.client(READER) as reader:
        assert next(iter(reader.models.list())).id == "main"
        with pytest.raises(openai.PermissionDeniedError, match="needs scope write"):
            reader.chat.completions.create(model="main", messages=messages)


WRONG: list[tuple[dict[str, Any], str]] = [
    *(({"n": 2}, "n"), ({"logprobs": True}, "logprobs"), ({"stream": "yes"}, "stream"), ({"messages": []}, "messages")),
    *(({"response_format": {"type": "yaml"}}, "response_format"), ({"stop": list("abcde")}, "stop")),
    *(({"stop": "x" * 201}, "stop"), ({"tool_choice": "required"}, "tool_choice")),
    ({"tool_choice": {"type": "function", "function": {"name": "nowhere"}}}, "tool_choice"),
    ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
    *(({"messages": [{"role": "assistant", "content": "x"}]}, "messages"), ({"user": "agent:"}, "user")),
    ({"extra_headers": {"X-Pool-Session": "agent:"}}, "X-Pool-Session"),
    ({"extra_headers": {"Idempotency-Key": "x" * 129}}, "Idempotency-Key"),
]


@pytest.mark.parametrize(("wrong", "param"), WRONG)
def test_what_cannot_be_done_is_refused_with_its_place(ask: Ask, wrong: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        ask(**{"messages": "hello", **wrong})
    assert raised.value.param == param


def test_what_has_no_effect_is_told_and_not_refused(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="main", messages=[{"role": "user", "content": "x"}], temperature=0.1, max_tokens=5, seed=7
    )
    assert raw.headers["x-pool-ignored"] == "max_tokens, seed, temperature"
    assert raw.parse().id == f"chatcmpl-{raw.headers['x-request-id']}"


def test_an_agent_that_fails_is_a_bad_gateway_and_not_asked_again_by_the_client(
    pool: Pool, ask: Ask, session: str
) -> None:
    with pool.client(max_retries=2) as client, pytest.raises(openai.InternalServerError, match="asked to fail") as why:
        client.chat.completions.create(model="main", messages=[{"role": "user", "content": "ERROR"}], user=session)
    assert (why.value.status_code, why.value.code) == (502, "worker_error")
    assert len(pool.user_texts(session)) == 1
    with pytest.raises(openai.InternalServerError, match=r"OPENAI_API_KEY in \[agents.NAME.env\]"):
        ask("STATUS=401", model="fake")


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_that_takes_too_long_is_a_gateway_timeout(pool: Pool, ask: Ask, session: str, *, stream: bool) -> None:
    pool.call("prompt", session=session, agent="quick", text="hello", timeout=20)  # a worker is there from now on
    with pytest.raises(openai.InternalServerError, match="longer than its timeout") as raised:
        ask("HANG", model="quick", user=session, stream=stream)
    assert (raised.value.status_code, raised.value.code) == (504, "request_timeout")


def test_what_goes_wrong_after_the_first_words_is_the_streams_last_message(ask: Ask) -> None:
    said: list[Any] = []
    with pytest.raises(openai.APIError, match="asked to fail") as raised:
        said.extend(ask("PIECES=4 DELAY=20 ERROR", stream=True))
    assert text_of(said) == "piece 0 piece 1 "
    assert raised.value.code == "worker_error"


def test_a_session_whose_queue_is_full_is_too_many_requests(pool: Pool, ask: Ask, session: str) -> None:
    running = ask("PIECES=2 HANG", user=session, stream=True)
    next(iter(running))
    pool.call("agent", session=session, text="waits", queue="followup")
    with pytest.raises(openai.RateLimitError) as raised:
        ask("one too many", user=session)
    assert (raised.value.code, raised.value.type) == ("saturated", "rate_limit_error")
    assert int(raised.value.response.headers["retry-after"]) >= 1
    assert raised.value.response.headers["x-should-retry"] == "true"
    running.close()
    pool.call("abort", session=session, clear=True)
