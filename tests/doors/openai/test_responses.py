"""The official client at ``/v1/responses``: whole and streamed answers, conversations that go on, tools, forms."""

import base64
import uuid
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from doors.openai.session_ref import read_response_id, response_id
from fixtures.fake_openai import FakeOpenAI
from tests.doors.openai.conftest import READER, Pool, running_pool, wait_until_forgotten

pytestmark = pytest.mark.process

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "Look at the sky.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}
ASK = 'TOOL:weather {"city": "Bonn"} TELL'
PIXEL = base64.b64encode(b"pixel").decode()


class City(BaseModel):
    city: str
    people: int


BONN = '{"city":"Bonn","people":337000}'


def ask(client: OpenAI, said: Any, **options: Any) -> Any:
    return client.responses.create(**{"model": "main", "input": said, **options})


def result_of(call: Any, content: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call.call_id, "output": content}


# --- answers ----------------------------------------------------------------------------------------------------------


def test_a_text_is_answered(client: OpenAI) -> None:
    answer = ask(client, "USAGE=5/2 ECHO:hello", metadata={"a": "b"}, store=False)
    assert (answer.status, answer.output_text, answer.model) == ("completed", "hello", "main")
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens) == (5, 2, 7)
    assert (answer.metadata, answer.previous_response_id, answer.error) == ({"a": "b"}, None, None)
    [message] = answer.output
    assert (message.type, message.role, message.status) == ("message", "assistant", "completed")


def test_a_conversation_may_be_sent_as_a_whole(client: OpenAI) -> None:
    said = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "It is grey.", "annotations": []}],
        },
        {"role": "user", "content": "RECALL"},
    ]
    told = ask(client, [*said[:-1], {"role": "user", "content": "go on"}], store=False).output_text
    assert "Instructions:\n\nBe kind." in told
    assert "User: hello\n\nAssistant: It is grey.\n\nNow answer this:\n\ngo on" in told


def test_instructions_hold_for_one_answer(client: OpenAI) -> None:
    first = ask(client, "SYSTEM", instructions="Speak Dutch.")
    assert "\n\nSpeak Dutch." in first.output_text
    assert first.instructions == "Speak Dutch."
    second = ask(client, "SYSTEM", previous_response_id=first.id)
    assert "Dutch" not in second.output_text


def test_images_are_data_urls(client: OpenAI) -> None:
    def look(url: str) -> Any:
        return [
            {
                "role": "user",
                "content": [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": url}],
            }
        ]

    assert "with 1 image(s)" in ask(client, look(f"data:image/png;base64,{PIXEL}"), store=False).output_text
    with pytest.raises(openai.BadRequestError, match="an image elsewhere is not fetched") as raised:
        ask(client, look("http://127.0.0.1:9/x.png"))
    assert raised.value.param == "input[0].content[1]"


def test_an_answer_that_was_cut_off_is_incomplete(client: OpenAI) -> None:
    answer = ask(client, "LENGTH hello", store=False)
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")


# --- streams ----------------------------------------------------------------------------------------------------------


def test_a_stream_tells_each_item_from_its_beginning_to_its_end(client: OpenAI) -> None:
    events = list(ask(client, "PIECES=3 DELAY=20", stream=True, store=False))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    said = "".join(event.delta for event in events[4:-4])
    assert said == events[-4].text == events[-1].response.output_text == "piece 0 piece 1 piece 2 "
    assert events[0].response.id == events[-1].response.id


def test_the_clients_own_reader_of_streams_is_content(client: OpenAI) -> None:
    with client.responses.stream(model="main", input=f"ECHO:{BONN}", text_format=City) as stream:
        final = stream.get_final_response()
    assert final.output_parsed == City(city="Bonn", people=337000)
    with client.responses.stream(model="main", input=ASK, tools=[WEATHER]) as stream:  # type: ignore[list-item]
        kinds = [event.type for event in stream]
        [call] = stream.get_final_response().output
    assert "response.function_call_arguments.done" in kinds
    assert (call.type, call.name, call.arguments) == ("function_call", "weather", '{"city":"Bonn"}')  # type: ignore[union-attr]


def test_a_stream_that_fails_ends_with_why(client: OpenAI) -> None:
    events = list(ask(client, "PIECES=4 DELAY=20 ERROR", stream=True, store=False))
    assert events[-1].type == "response.failed"
    assert events[-1].response.status == "failed"
    assert "asked to fail" in events[-1].response.error.message
    with pytest.raises(openai.InternalServerError, match="asked to fail"):
        ask(client, "ERROR", stream=True, store=False)


# --- conversations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_goes_on_where_the_previous_response_has_ended(client: OpenAI, *, stream: bool) -> None:
    first = ask(client, "my name is Ada")
    again = ask(client, "RECALL", previous_response_id=first.id, stream=stream)
    second = list(again)[-1].response if stream else again
    assert "my name is Ada" in second.output_text
    assert second.previous_response_id == first.id
    third = ask(client, [{"role": "user", "content": "RECALL"}], previous_response_id=second.id)
    assert third.output_text.count("RECALL") == 1


def test_a_conversation_outlives_the_supervisor(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("lives")
    with running_pool(directory) as pool, pool.client() as client:
        first = ask(client, "my name is Ada")
    with running_pool(directory) as pool, pool.client() as client:
        assert "Ada" in ask(client, "RECALL", previous_response_id=first.id).output_text


def test_only_the_latest_response_can_be_continued(client: OpenAI) -> None:
    first = ask(client, "hello")
    ask(client, "on", previous_response_id=first.id)
    with pytest.raises(openai.BadRequestError, match="only the latest response") as raised:
        ask(client, "another way", previous_response_id=first.id)
    assert (raised.value.code, raised.value.param) == ("previous_response_not_found", "previous_response_id")


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ("ERROR", {}),
        (result_of(SimpleNamespace(call_id="call_of_nobody"), "x"), {}),
        ("ECHO:no form", {"text": {"format": {"type": "json_object"}}}),
        ("ERROR", {"stream": True}),
        ("DELAY=1500", {"timeout": 0.5}),
    ],
)
def test_a_response_whose_continuation_failed_can_be_continued_again(
    client: OpenAI, said: Any, options: dict[str, Any]
) -> None:
    """The client has no id of what failed, and would have lost its conversation."""
    first = ask(client, "first")
    for _ in range(2):
        with pytest.raises(openai.OpenAIError):
            ask(client, [said] if isinstance(said, dict) else said, previous_response_id=first.id, **options)
        if "timeout" in options:
            break
    again = ask(client, "RECALL", previous_response_id=first.id)
    assert again.output_text.startswith('Earlier you said: ["first"')
    with pytest.raises(openai.BadRequestError, match="continued already"):
        ask(client, "RECALL", previous_response_id=first.id)


def test_new_instructions_among_the_input_are_said(client: OpenAI) -> None:
    first = ask(client, "hello")
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "now"}]
    told = ask(client, said, previous_response_id=first.id).output_text
    assert "Instructions:\n\nBe brief.\n\nNow answer this:\n\nnow" in told


def test_a_session_that_is_named_goes_on_by_name_and_by_id(client: OpenAI, pool: Pool) -> None:
    session = f"s-{uuid.uuid4().hex}"
    first = ask(client, "my name is Ada", user=session)
    assert "my name" in ask(client, "RECALL", extra_headers={"X-Pool-Session": session}).output_text
    pool.call("prompt", session=session, text="from another door")
    assert "another door" in ask(client, "RECALL", previous_response_id=first.id).output_text
    with pytest.raises(openai.BadRequestError, match="belongs to session") as raised:
        ask(client, "hello", user="somebody-else", previous_response_id=first.id)
    assert raised.value.param == "previous_response_id"


@pytest.mark.parametrize(
    "wrong", ["resp_123", "nonsense", response_id("openai:r" + "0" * 32, "r1"), "resp_" + "x" * 5000]
)
def test_a_previous_response_that_is_not_there_is_refused_and_nothing_begins_empty(client: OpenAI, wrong: str) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        ask(client, "hello", previous_response_id=wrong)
    assert raised.value.param == "previous_response_id"


def test_a_response_that_is_not_to_be_stored_is_forgotten(client: OpenAI, pool: Pool) -> None:
    answer = ask(client, "hello", store=False)
    wait_until_forgotten(pool)
    with pytest.raises(openai.BadRequestError, match="not kept any more"):
        ask(client, "and on", previous_response_id=answer.id)


@pytest.mark.parametrize("named", [False, True])
def test_the_same_request_under_the_same_key_is_one_run(client: OpenAI, *, named: bool) -> None:
    options: Any = {"extra_headers": {"Idempotency-Key": uuid.uuid4().hex}}
    options |= {"user": f"s-{uuid.uuid4().hex}"} if named else {}
    first, again = ask(client, "RECALL", **options), ask(client, "RECALL", **options)
    assert (first.id, first.output_text) == (again.id, again.output_text)
    with pytest.raises(openai.ConflictError):
        ask(client, "something else", **options)


# --- tools ------------------------------------------------------------------------------------------------------------


def test_results_come_back_by_the_previous_response(client: OpenAI) -> None:
    first = ask(client, ASK, tools=[WEATHER])
    [call] = first.output
    assert (call.type, call.name, call.arguments) == ("function_call", "weather", '{"city":"Bonn"}')
    second = ask(client, [result_of(call, "grey over Bonn")], previous_response_id=first.id, tools=[WEATHER])
    assert second.output_text == "grey over Bonn"


def test_results_come_back_in_a_conversation_that_is_sent_as_a_whole(client: OpenAI, pool: Pool) -> None:
    said: list[Any] = [{"role": "user", "content": ASK}]
    first = ask(client, said, tools=[WEATHER], store=False)
    parts = [{"type": "input_text", "text": "grey over Bonn"}]
    said += [*first.output, result_of(first.output[0], parts)]
    assert ask(client, said, tools=[WEATHER], store=False).output_text == "grey over Bonn"
    wait_until_forgotten(pool)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "weather"}])
def test_a_call_that_was_asked_for_comes_or_the_request_fails(client: OpenAI, choice: Any) -> None:
    session = f"s-{uuid.uuid4().hex}"
    answer = ask(client, ASK, tools=[WEATHER], tool_choice=choice, user=session)
    assert answer.output[0].name == "weather"
    with pytest.raises(openai.InternalServerError, match="no call of weather"):
        ask(client, "hello", tools=[WEATHER], tool_choice=choice, user=session)


# --- forms ------------------------------------------------------------------------------------------------------------


def test_the_client_parses_an_answer_into_a_class(client: OpenAI, fake: FakeOpenAI) -> None:
    parsed = client.responses.parse(model="main", input=f"ECHO:{BONN}", text_format=City)
    assert parsed.output_parsed == City(city="Bonn", people=337000)
    passed = client.responses.parse(model="fake", input=f"AGAIN:{BONN}", text_format=City)
    assert passed.output_parsed == City(city="Bonn", people=337000)
    form = fake.seen[-1].body["response_format"]
    assert (form["type"], form["json_schema"]["name"], form["json_schema"]["strict"]) == ("json_schema", "City", True)
    assert client.responses.retrieve(passed.id).output_text == BONN, "what came when it was asked once more"


def test_an_answer_that_does_not_fit_is_a_bad_gateway(client: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError, match="it is no JSON") as raised:
        ask(client, "hello", text={"format": {"type": "json_object"}}, store=False)
    assert raised.value.code == "unfit_answer"


# --- one by one -------------------------------------------------------------------------------------------------------


def test_a_response_is_fetched_and_deleted_by_its_id(client: OpenAI, pool: Pool) -> None:
    answer = ask(client, "ECHO:hello")
    found = client.responses.retrieve(answer.id)
    assert (found.id, found.output_text, found.model, found.status) == (answer.id, "hello", "main", "completed")
    with pool.client(READER) as reader, pytest.raises(openai.PermissionDeniedError):
        reader.responses.delete(answer.id)
    client.responses.delete(answer.id)
    for gone in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError) as raised:
            gone(answer.id)
        assert raised.value.code == "response_not_found"
    named = read_response_id(answer.id)
    assert named is not None
    assert named.session not in pool.sessions()


def test_a_session_with_a_name_is_not_deleted_with_one_of_its_responses(client: OpenAI, pool: Pool) -> None:
    session = f"s-{uuid.uuid4().hex}"
    answer = ask(client, "hello", user=session)
    with pytest.raises(openai.BadRequestError, match="delete that session instead"):
        client.responses.delete(answer.id)
    assert session in pool.sessions()


def test_what_a_response_does_not_have_is_not_found(client: OpenAI) -> None:
    answer = ask(client, "hello")
    for missing in (client.responses.cancel, lambda given: list(client.responses.input_items.list(given))):
        with pytest.raises(openai.NotFoundError, match="there are: GET /v1/models"):
            missing(answer.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_nothing")


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "assistant", "content": "x"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].tool_call_id"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"user": "agent:"}, "user"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_place(client: OpenAI, wrong: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        ask(
            client, **{"said": "hello", **{"said" if name == "input" else name: given for name, given in wrong.items()}}
        )
    assert raised.value.param == param


def test_what_has_no_effect_is_told_and_not_refused(client: OpenAI) -> None:
    raw = client.responses.with_raw_response.create(
        model="main",
        input="x",
        temperature=0.1,
        max_output_tokens=5,
        include=["reasoning.encrypted_content"],
        store=False,
    )
    assert raw.headers["x-pool-ignored"] == "include, max_output_tokens, temperature"


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt-5'"):
        ask(client, "hello", model="gpt-5")


# --- ids --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", ["alice", "agent:main:telegram:dm:\u4e16", "x" * 500])
def test_an_id_says_which_session_and_run_it_is(session: str) -> None:
    given = response_id(session, "run-1")
    assert read_response_id(given) == (session, "run-1")
    assert given.isascii()


@pytest.mark.parametrize(
    "given", ["", "resp_", "resp_!", "resp_YQ", "resp_YQo", "resp_CmE", "resp_YQpiCmM", "chatcmpl-1"]
)
def test_what_was_never_an_id_is_none(given: str) -> None:
    assert read_response_id(given) is None
