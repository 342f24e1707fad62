"""Answers of a form that the client asks for: JSON, a call of a tool, an end at a word; from models of both kinds."""

import json
import uuid
from typing import Any

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from fixtures.fake_openai import FakeOpenAI
from tests.doors.openai.conftest import Ask, Pool, text_of

pytestmark = pytest.mark.process


class City(BaseModel):
    city: str
    people: int


BONN = '{"city":"Bonn","people":337000}'
OBJECT: dict[str, Any] = {"type": "json_object"}
SCHEMA: dict[str, Any] = City.model_json_schema()
CITY: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}
WEATHER: dict[str, Any] = {"type": "function", "function": {"name": "weather"}}
SCAN: dict[str, Any] = {"type": "function", "function": {"name": "scan"}}


def script(*steps: Any) -> str:
    """What has the fake server answer with these."""
    return f"SCRIPT:{json.dumps(steps)}"


def text(answer: Any) -> str:
    said: str = answer.choices[0].message.content
    return said


# --- JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [OBJECT, CITY])
@pytest.mark.parametrize("said", [BONN, f"```json\n{BONN}\n```\n"])
def test_json_that_was_asked_for_comes_without_anything_around_it(ask: Ask, form: dict[str, Any], said: str) -> None:
    assert text(ask(f"ECHO:{said}", response_format=form)) == BONN
    assert text_of(ask(f"ECHO:{said}", response_format=form, stream=True)) == BONN
    assert text(ask(script(said), model="fake", response_format=form)) == BONN


def test_the_client_parses_an_answer_into_a_class(client: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": f"ECHO:{BONN}"}]
    parsed = client.chat.completions.parse(model="main", messages=messages, response_format=City)
    assert parsed.choices[0].message.parsed == City(city="Bonn", people=337000)


@pytest.mark.parametrize("form", [OBJECT, CITY])
def test_a_server_that_takes_a_form_is_passed_it_on(ask: Ask, fake: FakeOpenAI, form: dict[str, Any]) -> None:
    ask(script(BONN), model="fake", response_format=form)
    assert fake.seen[-1].body["response_format"] == form


def test_another_model_is_told_of_it_for_this_answer_only(pool: Pool) -> None:
    session, schema = f"s-{uuid.uuid4().hex}", {"schema": SCHEMA}
    told = pool.call("prompt", session=session, text="SYSTEM", answer={"json": schema})["text"]
    assert json.dumps(SCHEMA, separators=(",", ":")) in told
    assert "JSON" not in pool.call("prompt", session=session, text="SYSTEM")["text"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_whose_answer_does_not_fit_is_asked_once_more(ask: Ask, fake: FakeOpenAI, *, stream: bool) -> None:
    answer = ask(f"AGAIN:{BONN}", model="fake", response_format=CITY, stream=stream)
    assert (text_of(answer) if stream else text(answer)) == BONN
    [_, first, _, again] = fake.seen[-1].body["messages"]
    assert first["content"] == f"AGAIN:{BONN}"
    assert again["content"].startswith("That is not the JSON that was asked for: it is no JSON")
    assert fake.seen[-1].body["response_format"] == CITY


def test_both_answers_are_paid_for(ask: Ask) -> None:
    [once, twice] = [ask(said, model="fake", response_format=OBJECT) for said in (script(BONN), f"AGAIN:{BONN}")]
    assert twice.usage.completion_tokens > once.usage.completion_tokens


@pytest.mark.parametrize(
    ("said", "form", "problem"),
    [
        ("hello", OBJECT, "it is no JSON"),
        ("ECHO:[1]", OBJECT, "it is no JSON object"),
        ('ECHO:{"city": "Bonn"}', CITY, '"people" is a required property'),
        ('ECHO:{"city": "Bonn", "people": "many"}', CITY, 'at $.people: "many" is not of type "integer"'),
        ("ECHO:{" * 3, OBJECT, "it is no JSON"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_that_does_not_get_there_is_a_bad_gateway(
    pool: Pool, ask: Ask, said: str, form: dict[str, Any], problem: str, *, stream: bool
) -> None:
    session = f"s-{uuid.uuid4().hex}"
    with pytest.raises(openai.InternalServerError) as raised:
        ask(said, user=session, response_format=form, stream=stream)
    assert (raised.value.status_code, raised.value.code) == (502, "unfit_answer")
    assert raised.value.response.headers["x-should-retry"] == "false"
    history = pool.call("sessions.history", session=session)["messages"]
    users = [message["content"][0]["text"] for message in history if message["role"] == "user"]
    assert len(users) == 2, "it was asked once more and no oftener"
    assert problem in users[1]


def test_an_answer_that_was_cut_off_says_so_and_is_not_asked_for_again(ask: Ask) -> None:
    answer = ask("LENGTH hello", response_format=OBJECT).choices[0]
    assert answer.finish_reason == "length"


def test_the_same_request_under_the_same_key_is_answered_from_both_runs(ask: Ask, fake: FakeOpenAI) -> None:
    options: Any = {"model": "fake", "response_format": CITY, "extra_headers": {"Idempotency-Key": uuid.uuid4().hex}}
    first = ask(f"AGAIN:{BONN}", user="keyed", **options)
    seen = len(fake.seen)
    again = ask(f"AGAIN:{BONN}", user="keyed", **options)
    assert (first.id, text(first), len(fake.seen)) == (again.id, text(again), seen)


# --- schemas of others ------------------------------------------------------------------------------------------------

NESTED: dict[str, Any] = {}
for _ in range(200):
    NESTED = {"not": NESTED}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "thing"}, "cannot be used"),
        ({"$ref": "http://127.0.0.1:9/schema.json"}, "other documents are not followed"),
        ({"$ref": "file:///etc/passwd"}, "other documents are not followed"),
        ({"$ref": "#/$defs/nowhere"}, "does not exist"),
        ({"pattern": "("}, "regex"),
        (NESTED, "nested more than 100 levels"),
        ({"description": "x" * 300_000}, "more than 262,144"),
    ],
)
def test_a_schema_that_is_none_is_refused_before_anything_is_begun(
    ask: Ask, pool: Pool, schema: dict[str, Any], problem: str
) -> None:
    before = pool.supervisor.status()["counters"]
    with pytest.raises(openai.BadRequestError, match=problem) as raised:
        ask("hello", response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
    assert raised.value.param == "response_format"
    assert pool.supervisor.status()["counters"] == before


def bomb() -> dict[str, Any]:
    """A schema that takes 2 ** 40 steps to look at."""
    levels = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(40)}
    return {"$ref": "#/$defs/l0", "$defs": {**levels, "l40": {"type": "object"}}}


def test_a_schema_that_takes_for_ever_costs_one_process_its_life_and_nothing_else(ask: Ask) -> None:
    with pytest.raises(openai.BadRequestError, match="too much time or memory"):
        ask("ECHO:{}", response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": bomb()}})
    assert text(ask("ECHO:{}", response_format=OBJECT)) == "{}"


# --- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("required", "required"),
        ({"type": "function", "function": {"name": "weather"}}, {"type": "function", "function": {"name": "weather"}}),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]},
            },
            {"type": "function", "function": {"name": "weather"}},
        ),
    ],
)
def test_a_call_that_was_asked_for_comes(ask: Ask, fake: FakeOpenAI, choice: Any, sent: Any) -> None:
    tools, session = [WEATHER, SCAN], f"s-{uuid.uuid4().hex}"
    plain = ask('TOOL:weather {"city": "Bonn"}', tools=tools, tool_choice=choice, user=session).choices[0]
    assert (plain.finish_reason, plain.message.tool_calls[0].function.name) == ("tool_calls", "weather")
    call = {"call": "weather", "arguments": {}}
    session = f"s-{uuid.uuid4().hex}"
    passed = ask(script(call), model="fake", tools=tools, tool_choice=choice, user=session).choices[0]
    assert passed.message.tool_calls[0].function.name == "weather"
    assert fake.seen[-1].body["tool_choice"] == sent


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_that_answers_in_text_instead_is_asked_once_more(ask: Ask, pool: Pool, *, stream: bool) -> None:
    session = f"s-{uuid.uuid4().hex}"
    with pytest.raises(openai.InternalServerError, match="there is no call of weather") as raised:
        ask("hello", user=session, tools=[WEATHER], tool_choice="required", stream=stream)
    assert raised.value.code == "unfit_answer"
    history = pool.call("sessions.history", session=session)["messages"]
    assert "Make that call now" in history[-2]["content"][0]["text"]


def test_of_tools_only_those_that_are_allowed_are_offered(ask: Ask, fake: FakeOpenAI) -> None:
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [WEATHER]}}
    ask("hello", model="fake", tools=[WEATHER, SCAN], tool_choice=choice)
    names = [tool["function"]["name"] for tool in fake.seen[-1].body["tools"]]
    assert "weather" in names
    assert "scan" not in names
    assert "tool_choice" not in fake.seen[-1].body


# --- stop -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["END", ["nothing like it", "END"]])
def test_an_answer_ends_before_a_stop(ask: Ask, fake: FakeOpenAI, stop: Any) -> None:
    assert text(ask("ECHO:one two END three", stop=stop)) == "one two "
    assert text_of(ask("ECHO:one two END three", stop=stop, stream=True)) == "one two "
    assert text_of(ask("ECHO:one two three", stop=stop, stream=True)) == "one two three"
    assert text(ask(script("one END"), model="fake", stop=stop)) == "one "
    assert fake.seen[-1].body["stop"] == ([stop] if isinstance(stop, str) else stop)
