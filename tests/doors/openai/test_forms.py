"""Answers of a form that the client asks for: JSON, calls of the client's tools, an end at a stop text."""

import json
import uuid
from typing import Any

import openai
import pytest
from openai import OpenAI

from doors.openai.answer_checks import SchemaChecker
from errors import UsageError
from fixtures.fake_openai import FakeOpenAI
from tests.doors.openai.conftest import BONN, CALL, SKY, Ask, City, Pool, text_of, wait_until_forgotten

pytestmark = pytest.mark.process


OBJECT: dict[str, Any] = {"type": "json_object"}
SCHEMA: dict[str, Any] = City.model_json_schema()
CITY: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}


def script(*steps: Any) -> str:
    """What has the fake server answer with these."""
    return f"SCRIPT:{json.dumps(steps)}"


@pytest.mark.parametrize("form", [OBJECT, CITY])
def test_json_that_was_asked_for_comes_without_anything_around_it(
    ask: Ask, fake: FakeOpenAI, form: dict[str, Any]
) -> None:
    for said in (BONN, f"```json\n{BONN}\n```\n"):
        assert text_of(ask(f"ECHO:{said}", response_format=form)) == BONN
        assert text_of(ask(f"ECHO:{said}", response_format=form, stream=True)) == BONN
        assert text_of(ask(script(said), model="fake", response_format=form)) == BONN
        assert fake.seen[-1].body["response_format"] == form, "passed on to a server that takes it"


def test_another_model_is_told_of_the_form_for_this_answer_only(pool: Pool, session: str) -> None:
    told = pool.call("prompt", session=session, text="SYSTEM", answer={"json": {"schema": SCHEMA}})["text"]
    assert json.dumps(SCHEMA, separators=(",", ":")) in told
    assert "JSON" not in pool.call("prompt", session=session, text="SYSTEM")["text"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_whose_answer_does_not_fit_is_asked_once_more(ask: Ask, fake: FakeOpenAI, *, stream: bool) -> None:
    key = {"Idempotency-Key": uuid.uuid4().hex}
    options: Any = {"model": "fake", "response_format": CITY, "extra_headers": key, "user": f"keyed-{stream}"}
    assert text_of(ask(f"AGAIN:{BONN}", stream=stream, **options)) == BONN
    [_, first, _, again] = fake.seen[-1].body["messages"]
    assert first["content"] == f"AGAIN:{BONN}"
    assert again["content"].startswith("That is not the JSON that was asked for: it is no JSON")
    assert fake.seen[-1].body["response_format"] == CITY
    seen = len(fake.seen)
    same = ask(f"AGAIN:{BONN}", **options)
    assert (text_of(same), len(fake.seen)) == (BONN, seen), "under the same key, both runs are found again"
    once = ask(script(BONN), model="fake", response_format=OBJECT)
    assert same.usage.completion_tokens > once.usage.completion_tokens, "both answers are paid for"


UNFIT = [
    *(("hello", OBJECT, "it is no JSON"), ("ECHO:[1]", OBJECT, "it is no JSON object")),
    *(('ECHO:{"city": "Bonn"}', CITY, '"people" is a required property'), ("ECHO:{" * 3, OBJECT, "it is no JSON")),
    ('ECHO:{"city": "Bonn", "people": "many"}', CITY, 'at $.people: "many" is not of type "integer"'),
]


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_that_does_not_get_there_is_a_bad_gateway(pool: Pool, ask: Ask, *, stream: bool) -> None:
    for said, form, problem in UNFIT:
        session = f"s-{uuid.uuid4().hex}"
        with pytest.raises(openai.InternalServerError) as raised:
            ask(said, user=session, response_format=form, stream=stream)
        assert (raised.value.status_code, raised.value.code) == (502, "unfit_answer")
        assert raised.value.response.headers["x-should-retry"] == "false"
        [_, again] = pool.user_texts(session)
        assert problem in again, "it was asked once more and no oftener"


def test_an_answer_that_was_cut_off_says_so_and_is_not_asked_for_again(ask: Ask) -> None:
    assert ask("LENGTH hello", response_format=OBJECT).choices[0].finish_reason == "length"


NESTED: dict[str, Any] = {}
for _ in range(200):
    NESTED = {"not": NESTED}
LEVELS: dict[str, Any] = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(40)}
BOMB: dict[str, Any] = {"$ref": "#/$defs/l0", "$defs": {**LEVELS, "l40": {"type": "object"}}}
"""It takes 2 ** 40 steps to look at."""


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "thing"}, "cannot be used"),
        ({"$ref": "http://127.0.0.1:9/schema.json"}, "other documents are not followed"),
        ({"$ref": "file:///etc/passwd"}, "other documents are not followed"),
        ({"$ref": "#/$defs/nowhere"}, "does not exist"),
        ({"pattern": "("}, "regex"),
    ],
)
async def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as raised:
        await SchemaChecker().check(schema, "response_format")
    assert raised.value.details == {"param": "response_format"}


def form_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def test_a_refused_schema_begins_nothing(ask: Ask, pool: Pool) -> None:
    before = pool.call("status")["counters"]
    long = {"description": "x" * 300_000}
    for schema, problem in (
        (NESTED, "nested more than 100 levels"),
        (long, "more than 262,144"),
        ({"type": 1}, "used"),
    ):
        with pytest.raises(openai.BadRequestError, match=problem) as raised:
            ask("hello", response_format=form_of(schema))
        assert raised.value.param == "response_format"
    assert pool.call("status")["counters"] == before


def test_a_schema_that_takes_for_ever_costs_one_process_its_life_and_nothing_else(ask: Ask) -> None:
    with pytest.raises(openai.BadRequestError, match="too much time or memory"):
        ask("ECHO:{}", response_format=form_of(BOMB))
    assert text_of(ask("ECHO:{}", response_format=OBJECT)) == "{}"


WEATHER: dict[str, Any] = {"type": "function", "function": SKY}
SCAN: dict[str, Any] = {"type": "function", "function": {"name": "scan"}}
NAMED: dict[str, Any] = {"type": "function", "function": {"name": "weather"}}
CALL_TWICE = 'TOOL:weather {"city": "Bonn"} TOOL:weather {"city": "Rom"} TELL'


def asked(text: str) -> list[dict[str, Any]]:
    return [{"role": "system", "content": "Be kind."}, {"role": "user", "content": text}]


def answered(said: list[dict[str, Any]], message: Any, *contents: str) -> list[dict[str, Any]]:
    """The conversation as a client goes on with it."""
    calls = zip(message.tool_calls, contents, strict=True)
    results = [{"role": "tool", "tool_call_id": call.id, "content": content} for call, content in calls]
    return [*said, message.model_dump(exclude_none=True), *results]


@pytest.mark.parametrize("named", [False, True])
def test_calls_go_out_and_results_come_back(ask: Ask, pool: Pool, session: str, *, named: bool) -> None:
    options: dict[str, Any] = {"tools": [WEATHER], **({"user": session} if named else {})}
    said = asked(CALL)
    first = ask(said, **options).choices[0]
    [call] = first.message.tool_calls
    assert (first.finish_reason, first.message.content) == ("tool_calls", None)
    assert (call.type, call.function.name, call.function.arguments) == ("function", "weather", '{"city":"Bonn"}')
    last = ask(answered(said, first.message, "grey over Bonn"), **options).choices[0]
    assert (last.finish_reason, last.message.content) == ("stop", "grey over Bonn")
    wait_until_forgotten(pool)


def test_calls_may_follow_each_other_or_go_out_together(ask: Ask, pool: Pool) -> None:
    said = asked(CALL_TWICE)
    for city in ("Bonn", "Rom"):
        message = ask(said, tools=[WEATHER]).choices[0].message
        assert city in message.tool_calls[0].function.arguments
        said = answered(said, message, f"grey over {city}")
    assert text_of(ask(said, tools=[WEATHER])) == "grey over Rom"
    wait_until_forgotten(pool)
    said = asked(f"{CALL_TWICE} PARALLEL")
    message = ask(said, tools=[WEATHER]).choices[0].message
    assert len({call.id for call in message.tool_calls}) == 2
    assert "blue" in text_of(ask(answered(said, message, "grey", "blue"), tools=[WEATHER]))


def test_a_stream_tells_calls_too_and_words_that_come_with_results_are_heard(client: OpenAI, ask: Ask) -> None:
    messages: Any = asked(CALL)
    tools: Any = [WEATHER]
    with client.chat.completions.stream(model="main", messages=messages, tools=tools) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.arguments == '{"city":"Bonn"}'
    said = [*answered(messages, message, "blue"), {"role": "user", "content": "and now hello"}]
    assert 'You said: "and now hello"' in text_of(ask(said, tools=tools, stream=True))


def test_results_whose_session_is_gone_are_told_with_all_the_rest(ask: Ask, pool: Pool) -> None:
    said = asked(CALL)
    message = ask(said, tools=[WEATHER]).choices[0].message
    for key in pool.sessions():
        if key.startswith("openai:"):
            pool.call("sessions.delete", session=key)
    said[1]["content"] = "How is it there?"
    assert (
        'User: How is it there?\n\nAssistant called weather with {"city":"Bonn"}\n\n'
        "Result of weather: grey over Bonn\n\nNow answer this:\n\nGo on from here"
    ) in text_of(ask(answered(said, message, "grey over Bonn")))


def test_a_result_of_no_call_is_refused(ask: Ask, session: str) -> None:
    ask("hello", user=session)
    said = [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "nobody", "content": "x"}]
    with pytest.raises(openai.BadRequestError, match="no call 'nobody' waits for a result"):
        ask(said, user=session)


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_that_takes_no_tools_says_so_at_once(ask: Ask, pool: Pool, *, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError, match="takes no tools from its client"):
        ask(CALL, model="p", tools=[WEATHER], stream=stream)
    assert not any(worker["agent"] == "p" for worker in pool.call("status")["workers"])


def test_a_tool_with_the_name_of_one_of_the_agents_own_is_the_clients(ask: Ask) -> None:
    """Coding clients bring tools of just these names."""
    for name in ("read", "edit"):
        tool = {"type": "function", "function": {"name": name, "description": "A file of the client's."}}
        said = asked(f'TOOL:{name} {{"path": "a.txt"}} TELL')
        message = ask(said, tools=[tool]).choices[0].message
        assert [call.function.name for call in message.tool_calls] == [name]
        assert text_of(ask(answered(said, message, "the client's file"), tools=[tool])) == "the client's file"


def allowed(mode: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [WEATHER]}}


@pytest.mark.parametrize(("choice", "sent"), [("required", "required"), (NAMED, NAMED), (allowed("required"), NAMED)])
def test_a_call_that_was_asked_for_comes(ask: Ask, fake: FakeOpenAI, session: str, choice: Any, sent: Any) -> None:
    options = {"tools": [WEATHER, SCAN], "tool_choice": choice}
    plain = ask('TOOL:weather {"city": "Bonn"}', user=session, **options).choices[0]
    assert (plain.finish_reason, plain.message.tool_calls[0].function.name) == ("tool_calls", "weather")
    passed = ask(script({"call": "weather", "arguments": {}}), model="fake", user=f"{session}2", **options).choices[0]
    assert passed.message.tool_calls[0].function.name == "weather"
    assert fake.seen[-1].body["tool_choice"] == sent


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_that_answers_in_text_instead_is_asked_once_more(
    ask: Ask, pool: Pool, session: str, *, stream: bool
) -> None:
    with pytest.raises(openai.InternalServerError, match="there is no call of weather") as raised:
        ask("hello", user=session, tools=[WEATHER], tool_choice="required", stream=stream)
    assert raised.value.code == "unfit_answer"
    assert "Make that call now" in pool.user_texts(session)[-1]


def test_of_tools_only_those_that_are_allowed_are_offered(ask: Ask, fake: FakeOpenAI) -> None:
    answer = ask(CALL, tools=[WEATHER], tool_choice="none").choices[0]
    assert (answer.finish_reason, answer.message.tool_calls) == ("stop", None)
    ask("hello", model="fake", tools=[WEATHER, SCAN], tool_choice=allowed("auto"))
    names = {tool["function"]["name"] for tool in fake.seen[-1].body["tools"]}
    assert ("weather" in names, "scan" in names, "tool_choice" in fake.seen[-1].body) == (True, False, False)


@pytest.mark.parametrize("stop", ["END", ["nothing like it", "END"]])
def test_an_answer_ends_before_a_stop(ask: Ask, fake: FakeOpenAI, stop: Any) -> None:
    for said, shown in (("one two END three", "one two "), ("one two three", "one two three")):
        assert text_of(ask(f"ECHO:{said}", stop=stop)) == text_of(ask(f"ECHO:{said}", stop=stop, stream=True)) == shown
    assert text_of(ask(script("one END"), model="fake", stop=stop)) == "one "
    assert fake.seen[-1].body["stop"] == ([stop] if isinstance(stop, str) else stop)
