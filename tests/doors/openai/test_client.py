"""The official client against a real pool: it need not know that there is one."""

import asyncio
import base64
import uuid
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.doors.openai.conftest import READER, TOKEN, Ask, Pool, text_of, wait_until_forgotten

pytestmark = pytest.mark.process

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 20).decode()


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex}"


# --- answers ----------------------------------------------------------------------------------------------------------


def test_agents_are_the_models(client: OpenAI) -> None:
    models = client.models.list().data
    assert [model.id for model in models] == ["main", "ops", "quick", "fake", "p"]
    assert client.models.retrieve("ops").id == "ops"


def test_an_answer_comes_whole(ask: Ask) -> None:
    answer = ask("hello \u2028 you")
    [choice] = answer.choices
    assert choice.message.content == 'You said: "hello \u2028 you". (turn 1)'
    assert (choice.finish_reason, choice.message.role, answer.model) == ("stop", "assistant", "main")


def test_an_answer_comes_as_a_stream(ask: Ask) -> None:
    chunks = list(ask("PIECES=3 DELAY=20", stream=True))
    assert text_of(chunks) == "piece 0 piece 1 piece 2 "
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [*[None] * (len(chunks) - 1), "stop"]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1


def test_what_is_said_is_in_the_stream_while_the_turn_goes_on(pool: Pool, ask: Ask, session: str) -> None:
    running = ask("PIECES=2 HANG", user=session, stream=True)
    assert next(filter(None, (text_of([chunk]) for chunk in running))) == "piece 0 "
    pool.call("abort", session=session)
    with pytest.raises(openai.APIError, match="aborted"):
        list(running)


def test_a_long_answer_is_complete_however_it_comes(ask: Ask) -> None:
    whole = ask("PIECES=5000").choices[0].message.content
    assert text_of(ask("PIECES=5000", stream=True)) == whole == "".join(f"piece {number} " for number in range(5000))


def test_line_ends_of_every_kind_stay_within_a_piece_of_a_stream(ask: Ask) -> None:
    said = "one\u2028two\u2029three\x85four\r\nfive"
    assert text_of(ask(f"ECHO:{said}", stream=True)) == said


def test_a_prompt_of_five_megabytes_arrives(ask: Ask) -> None:
    answer = ask("x" * 5_000_000).choices[0].message.content
    assert "(5000000 characters)" in answer


@pytest.mark.parametrize("stream", [False, True])
def test_it_says_what_it_cost(ask: Ask, *, stream: bool) -> None:
    options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    answer = ask("USAGE=12/7", **options)
    usage = list(answer)[-1].usage if stream else answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (12, 7, 19)


def test_a_stream_tells_the_cost_only_in_its_last_chunk_and_only_if_asked(ask: Ask) -> None:
    assert all(chunk.usage is None for chunk in ask("USAGE=12/7", stream=True))
    *before, last = ask("USAGE=12/7", stream=True, stream_options={"include_usage": True})
    assert [chunk.usage for chunk in before] == [None] * len(before)
    assert last.choices == []


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_was_cut_off_says_so(ask: Ask, *, stream: bool) -> None:
    answer = ask("LENGTH PIECES=2", stream=stream)
    last = list(answer)[-1] if stream else answer
    assert last.choices[0].finish_reason == "length"


def test_what_the_agent_does_with_tools_of_its_own_does_not_show(ask: Ask) -> None:
    streamed = text_of(ask('TOOL:ls {"path": "."} PIECES=2', stream=True))
    assert streamed == "piece 0 piece 1 "


def test_the_asynchronous_client_works_as_well(pool: Pool) -> None:
    async def ask_both() -> tuple[Any, list[Any]]:
        async with AsyncOpenAI(base_url=f"{pool.url}/v1", api_key=TOKEN, max_retries=0, timeout=20) as client:
            messages: Any = [{"role": "user", "content": "PIECES=2"}]
            whole = await client.chat.completions.create(model="main", messages=messages)
            stream = await client.chat.completions.create(model="main", messages=messages, stream=True)
            return whole.choices[0].message.content, [chunk async for chunk in stream]

    whole, chunks = asyncio.run(ask_both())
    assert whole == text_of(chunks) == "piece 0 piece 1 "


# --- conversations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["user", "header"])
def test_a_session_that_is_named_remembers(ask: Ask, pool: Pool, session: str, by: str) -> None:
    named: dict[str, Any] = {"user": session}
    if by == "header":
        named = {"extra_headers": {"X-Pool-Session": session}, "user": "somebody else"}
    ask("first", **named)
    assert ask("second", **named).choices[0].message.content == 'You said: "second". (turn 2; before: "first")'
    assert session in pool.sessions()
    assert pool.supervisor.prompt(session, "third").startswith('You said: "third". (turn 3; before: "first", "second")')


def test_of_a_conversation_that_the_session_remembers_only_the_news_is_sent(ask: Ask, session: str) -> None:
    said: list[dict[str, Any]] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "first"}]
    first = ask(said, user=session).choices[0].message
    said += [{"role": "assistant", "content": first.content}, {"role": "user", "content": "RECALL"}]
    recalled = ask(said, user=session).choices[0].message.content
    assert recalled.count("Be kind.") == recalled.count("first") == 1


def test_a_session_that_knows_nothing_yet_is_told_the_conversation(ask: Ask) -> None:
    answer = ask(
        [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "I am Ada."},
            {"role": "assistant", "content": "Hello Ada."},
            {"role": "user", "content": [{"type": "text", "text": "Who am I?"}]},
        ]
    ).choices[0]
    assert (
        "Instructions:\n\nBe kind.\n\nThe conversation so far:\n\nUser: I am Ada.\n\nAssistant: Hello Ada.\n\n"
        "Now answer this:\n\nWho am I?" in answer.message.content
    )


def test_a_session_of_its_own_is_forgotten_when_the_request_has_been_answered(ask: Ask, pool: Pool) -> None:
    ask("hello")
    list(ask("hello", stream=True))
    wait_until_forgotten(pool)


def test_a_session_of_one_agent_is_not_given_to_another(ask: Ask, session: str) -> None:
    ask("hello", user=session)
    with pytest.raises(openai.BadRequestError, match="is a conversation with 'main'") as raised:
        ask("hello", user=session, model="ops")
    assert raised.value.param == "model"


def test_a_slash_command_is_the_supervisors(ask: Ask, session: str) -> None:
    ask("first", user=session)
    assert session in ask("/status", user=session).choices[0].message.content
    assert text_of(ask("/status", user=session, stream=True)).startswith("Session ")


# --- idempotency ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [False, True])
def test_the_same_request_under_the_same_key_is_one_run(ask: Ask, session: str, *, named: bool) -> None:
    options: dict[str, Any] = {
        "extra_headers": {"Idempotency-Key": f"k-{session}"},
        **({"user": session} if named else {}),
    }
    said = [{"role": "user", "content": "earlier"}, {"role": "assistant", "content": "yes"}]
    said.append({"role": "user", "content": "RECALL"})
    first = ask(said, **options)
    again = ask(said, **options)
    assert first.choices[0].message.content == again.choices[0].message.content
    assert first.id == again.id == f"chatcmpl-k-{session}"
    assert text_of(ask(said, stream=True, **options)) == first.choices[0].message.content
    with pytest.raises(openai.ConflictError, match="stands for"):
        ask("something else", **options)


# --- images -----------------------------------------------------------------------------------------------------------


def test_images_are_data_urls(ask: Ask) -> None:
    url = f"data:image/png;base64,{PIXEL}"
    content = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}]
    assert 'You said: "look" with 1 image(s)' in ask([{"role": "user", "content": content}]).choices[0].message.content


def test_images_elsewhere_are_not_fetched(ask: Ask) -> None:
    content = [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/x.png"}}]
    with pytest.raises(openai.BadRequestError, match="data URLs") as raised:
        ask([{"role": "user", "content": content}])
    assert raised.value.param == "messages[0].content[0]"


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_key_is_refused(pool: Pool, ask: Ask, *, stream: bool) -> None:
    with pool.client("a-token-of-somebody-else-0123") as stranger, pytest.raises(openai.AuthenticationError) as raised:
        stranger.chat.completions.create(model="main", messages=[{"role": "user", "content": "x"}], stream=stream)
    assert (raised.value.code, raised.value.type) == ("invalid_api_key", "authentication_error")


def test_who_may_only_look_may_not_ask(pool: Pool) -> None:
    with pool.client(READER) as reader:
        assert next(iter(reader.models.list())).id == "main"
        with pytest.raises(openai.PermissionDeniedError, match="needs scope write"):
            reader.chat.completions.create(model="main", messages=[{"role": "user", "content": "x"}])


@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_model_is_not_found(ask: Ask, client: OpenAI, *, stream: bool) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt-5'") as raised:
        ask("hello", model="gpt-5", stream=stream)
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError, match="main, ops"):
        client.models.retrieve("gpt-5")


def test_what_else_openai_has_is_not_here(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no POST /v1/embeddings here"):
        client.embeddings.create(model="main", input="x")


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"n": 2}, "n"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"logprobs": True}, "logprobs"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": "x" * 201}, "stop"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "nowhere"}}}, "tool_choice"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
        ({"user": "agent:"}, "user"),
        ({"extra_headers": {"X-Pool-Session": "agent:"}}, "X-Pool-Session"),
        ({"extra_headers": {"Idempotency-Key": "x" * 129}}, "Idempotency-Key"),
        ({"stream": "yes"}, "stream"),
    ],
)
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


def test_an_agent_that_fails_is_a_bad_gateway_and_not_asked_again_by_the_client(pool: Pool, session: str) -> None:
    with (
        pool.client(max_retries=2) as client,
        pytest.raises(openai.InternalServerError, match="asked to fail") as raised,
    ):
        client.chat.completions.create(model="main", messages=[{"role": "user", "content": "ERROR"}], user=session)
    assert (raised.value.status_code, raised.value.code) == (502, "worker_error")
    history = pool.call("sessions.history", session=session)["messages"]
    assert [message["role"] for message in history].count("user") == 1


def test_a_model_server_that_refuses_the_key_says_where_the_key_belongs(ask: Ask) -> None:
    with pytest.raises(openai.InternalServerError, match=r"OPENAI_API_KEY in \[agents.NAME.env\]"):
        ask("STATUS=401", model="fake")


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_that_takes_too_long_is_a_gateway_timeout(pool: Pool, ask: Ask, session: str, *, stream: bool) -> None:
    begun = pool.call("agent", session=session, agent="quick", text="hello", timeout=20)["run_id"]
    assert pool.call("agent.wait", run_id=begun, session=session)["status"] == "ok", "a worker is there from now on"
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
