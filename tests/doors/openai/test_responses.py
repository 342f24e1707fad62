"""The official client at ``/v1/responses``: whole and streamed answers, conversations that go on, tools, forms."""

import base64
import uuid
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from openai import OpenAI

from doors.openai.session_ref import read_response_id, response_id
from fixtures.fake_openai import FakeOpenAI
from tests.doors.openai.conftest import BONN, CALL, READER, SKY, Ask, City, Pool, wait_until_forgotten

pytestmark = pytest.mark.process

WEATHER: dict[str, Any] = {"type": "function", **SKY, "strict": True}
PIXEL = f"data:image/png;base64,{base64.b64encode(b'pixel').decode()}"


def result_of(call: Any, content: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call.call_id, "output": content}


def test_a_text_is_answered(respond: Ask) -> None:
    answer = respond("USAGE=5/2 ECHO:hello", metadata={"a": "b"}, store=False)
    assert (answer.status, answer.output_text, answer.model) == ("completed", "hello", "main")
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens) == (5, 2, 7)
    assert (answer.metadata, answer.previous_response_id, answer.error) == ({"a": "b"}, None, None)
    [message] = answer.output
    assert (message.type, message.role, message.status) == ("message", "assistant", "completed")
    cut = respond("LENGTH hello", store=False)
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_a_conversation_may_be_sent_as_a_whole(respond: Ask) -> None:
    grey = [{"type": "output_text", "text": "It is grey.", "annotations": []}]
    said = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": grey},
        {"role": "user", "content": "go on"},
    ]
    told = respond(said, store=False).output_text
    assert "Instructions:\n\nBe kind." in told
    assert "User: hello\n\nAssistant: It is grey.\n\nNow answer this:\n\ngo on" in told


def test_instructions_hold_for_one_answer_and_new_ones_among_the_input_are_said(respond: Ask) -> None:
    first = respond("SYSTEM", instructions="Speak Dutch.")
    assert "\n\nSpeak Dutch." in first.output_text
    assert first.instructions == "Speak Dutch."
    second = respond("SYSTEM", previous_response_id=first.id)
    assert "Dutch" not in second.output_text
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "now"}]
    told = respond(said, previous_response_id=second.id).output_text
    assert "Instructions:\n\nBe brief.\n\nNow answer this:\n\nnow" in told


def test_images_are_data_urls_and_none_is_fetched(respond: Ask) -> None:
    def look(url: str) -> Any:
        content = [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": url}]
        return [{"role": "user", "content": content}]

    assert "with 1 image(s)" in respond(look(PIXEL), store=False).output_text
    with pytest.raises(openai.BadRequestError, match="an image elsewhere is not fetched") as raised:
        respond(look("http://127.0.0.1:9/x.png"))
    assert raised.value.param == "input[0].content[1]"


def test_a_stream_tells_each_item_from_its_beginning_to_its_end(respond: Ask) -> None:
    events = list(respond("PIECES=3 DELAY=20", stream=True, store=False))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert set(kinds[4:-4]) == {"output_text.delta"}
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "completed"]
    said = "".join(event.delta for event in events[4:-4])
    assert said == events[-4].text == events[-1].response.output_text == "piece 0 piece 1 piece 2 "
    assert events[0].response.id == events[-1].response.id


def test_the_clients_own_reader_of_streams_is_content(client: OpenAI) -> None:
    with client.responses.stream(model="main", input=f"ECHO:{BONN}", text_format=City) as stream:
        final = stream.get_final_response()
    assert final.output_parsed == City(city="Bonn", people=337000)
    with client.responses.stream(model="main", input=CALL, tools=[WEATHER]) as stream:  # type: ignore[list-item]
        kinds = [event.type for event in stream]
        [call] = stream.get_final_response().output
    assert "response.function_call_arguments.done" in kinds
    assert (call.type, call.name, call.arguments) == ("function_call", "weather", '{"city":"Bonn"}')  # type: ignore[union-attr]


def test_a_stream_that_fails_ends_with_why(respond: Ask) -> None:
    last = list(respond("PIECES=4 DELAY=20 ERROR", stream=True, store=False))[-1]
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert "asked to fail" in last.response.error.message
    with pytest.raises(openai.InternalServerError, match="asked to fail"):
        respond("ERROR", stream=True, store=False)


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_goes_on_where_the_latest_response_has_ended(respond: Ask, *, stream: bool) -> None:
    first = respond("my name is Ada")
    again = respond("RECALL", previous_response_id=first.id, stream=stream)
    second = list(again)[-1].response if stream else again
    assert "my name is Ada" in second.output_text
    assert second.previous_response_id == first.id
    third = respond([{"role": "user", "content": "RECALL"}], previous_response_id=second.id)
    assert third.output_text.count("RECALL") == 1
    with pytest.raises(openai.BadRequestError, match="only the latest response") as raised:
        respond("another way", previous_response_id=first.id)
    assert (raised.value.code, raised.value.param) == ("previous_response_not_found", "previous_response_id")


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ("ERROR", {}),
        ([result_of(SimpleNamespace(call_id="call_of_nobody"), "x")], {}),
        ("ECHO:no form", {"text": {"format": {"type": "json_object"}}}),
        ("ERROR", {"stream": True}),
        ("DELAY=500", {"timeout": 0.2}),
    ],
    ids=["fails", "refused", "unfit", "streamed", "left"],
)
def test_a_response_whose_continuation_failed_can_be_continued_again(
    respond: Ask, said: Any, options: dict[str, Any]
) -> None:
    """The client has no id of what failed, and would have lost its conversation."""
    first = respond("first")
    for _ in range(1 if "timeout" in options else 2):
        with pytest.raises(openai.OpenAIError):
            respond(said, previous_response_id=first.id, **options)
    again = respond("RECALL", previous_response_id=first.id)
    assert again.output_text.startswith('Earlier you said: ["first"')
    with pytest.raises(openai.BadRequestError, match="continued already"):
        respond("RECALL", previous_response_id=first.id)


def test_a_session_that_is_named_goes_on_by_name_and_by_id(
    client: OpenAI, respond: Ask, pool: Pool, session: str
) -> None:
    first = respond("my name is Ada", user=session)
    assert "my name" in respond("RECALL", extra_headers={"X-Pool-Session": session}).output_text
    pool.call("prompt", session=session, text="from another door")
    assert "another door" in respond("RECALL", previous_response_id=first.id).output_text
    with pytest.raises(openai.BadRequestError, match="belongs to session") as raised:
        respond("hello", user="somebody-else", previous_response_id=first.id)
    assert raised.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError, match="delete that session instead"):
        client.responses.delete(first.id)
    assert session in pool.sessions()


def test_a_previous_response_that_is_not_there_is_refused_and_nothing_begins_empty(respond: Ask, pool: Pool) -> None:
    for wrong in ("resp_123", "nonsense", response_id("openai:r" + "0" * 32, "r1"), "resp_" + "x" * 5000):
        with pytest.raises(openai.BadRequestError) as raised:
            respond("hello", previous_response_id=wrong)
        assert raised.value.param == "previous_response_id"
    answer = respond("hello", store=False)
    wait_until_forgotten(pool)
    with pytest.raises(openai.BadRequestError, match="not kept any more"):
        respond("and on", previous_response_id=answer.id)


def test_the_same_request_under_the_same_key_is_one_run(respond: Ask) -> None:
    options: Any = {"extra_headers": {"Idempotency-Key": uuid.uuid4().hex}}
    first, again = respond("RECALL", **options), respond("RECALL", **options)
    assert (first.id, first.output_text) == (again.id, again.output_text)
    with pytest.raises(openai.ConflictError):
        respond("something else", **options)


def test_results_come_back_by_the_previous_response_or_in_a_whole_conversation(respond: Ask, pool: Pool) -> None:
    first = respond(CALL, tools=[WEATHER])
    [call] = first.output
    assert (call.type, call.name, call.arguments) == ("function_call", "weather", '{"city":"Bonn"}')
    second = respond([result_of(call, "grey over Bonn")], previous_response_id=first.id, tools=[WEATHER])
    assert second.output_text == "grey over Bonn"
    said: list[Any] = [{"role": "user", "content": CALL}]
    first = respond(said, tools=[WEATHER], store=False)
    said += [*first.output, result_of(first.output[0], [{"type": "input_text", "text": "grey over Bonn"}])]
    assert respond(said, tools=[WEATHER], store=False).output_text == "grey over Bonn"
    wait_until_forgotten(pool)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "weather"}])
def test_a_call_that_was_asked_for_comes_or_the_request_fails(respond: Ask, session: str, choice: Any) -> None:
    options = {"tools": [WEATHER], "tool_choice": choice, "user": session}
    assert respond(CALL, **options).output[0].name == "weather"
    with pytest.raises(openai.InternalServerError, match="no call of weather"):
        respond("hello", **options)


def test_the_client_parses_an_answer_into_a_class_and_one_that_does_not_fit_is_a_bad_gateway(
    client: OpenAI, fake: FakeOpenAI, respond: Ask
) -> None:
    parsed = client.responses.parse(model="fake", input=f"AGAIN:{BONN}", text_format=City)
    assert parsed.output_parsed == City(city="Bonn", people=337000)
    form = fake.seen[-1].body["response_format"]
    assert (form["type"], form["json_schema"]["name"], form["json_schema"]["strict"]) == ("json_schema", "City", True)
    assert client.responses.retrieve(parsed.id).output_text == BONN, "what came when it was asked once more"
    with pytest.raises(openai.InternalServerError, match="it is no JSON") as raised:
        respond("hello", text={"format": {"type": "json_object"}}, store=False)
    assert raised.value.code == "unfit_answer"


def test_a_response_is_fetched_and_deleted_by_its_id_and_has_nothing_else(
    client: OpenAI, respond: Ask, pool: Pool
) -> None:
    answer = respond("ECHO:hello")
    found = client.responses.retrieve(answer.id)
    assert (found.id, found.output_text, found.model, found.status) == (answer.id, "hello", "main", "completed")
    for missing in (client.responses.cancel, lambda given: list(client.responses.input_items.list(given))):
        with pytest.raises(openai.NotFoundError, match="there are: GET /v1/models"):
            missing(answer.id)
    with pool.client(READER) as reader, pytest.raises(openai.PermissionDeniedError):
        reader.responses.delete(answer.id)
    client.responses.delete(answer.id)
    for gone in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError) as raised:
            gone(answer.id)
        assert raised.value.code == "response_not_found"
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_nothing")
    named = read_response_id(answer.id)
    assert named is not None
    assert named.session not in pool.sessions()


WRONG: list[tuple[dict[str, Any], str]] = [
    *(({"background": True}, "background"), ({"conversation": "conv_1"}, "conversation"), ({"user": "agent:"}, "user")),
    *(({"prompt": {"id": "pmpt_1"}}, "prompt"), ({"tools": [{"type": "web_search"}]}, "tools[0].type")),
    *(({"tools": [{"type": "function"}]}, "tools[0].name"), ({"tool_choice": "required"}, "tool_choice")),
    *(({"input": []}, "input"), ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type")),
    *(({"input": [{"content": "x"}]}, "input[0].role"), ({"input": [{"role": "assistant", "content": "x"}]}, "input")),
    ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]}, "input[0].content[0]"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].tool_call_id"),
    *(({"text": {"format": {"type": "grammar"}}}, "text.format"), ({"model": "gpt-5"}, "model")),
]


@pytest.mark.parametrize(("wrong", "param"), WRONG)
def test_what_cannot_be_done_is_refused_with_its_place(respond: Ask, wrong: dict[str, Any], param: str) -> None:
    kind = openai.NotFoundError if param == "model" else openai.BadRequestError
    with pytest.raises(kind) as raised:
        respond("hello", **wrong)
    assert raised.value.param == param
