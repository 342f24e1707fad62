"""The official client against a real pool: it need not know that there is one."""

import pytest
from openai import OpenAI

from tests.doors.openai.conftest import Ask, Pool

pytestmark = pytest.mark.process


def test_agents_are_the_models(client: OpenAI) -> None:
    models = client.models.list().data
    assert [model.id for model in models] == ["main", "ops", "quick", "p"]
    assert client.models.retrieve("ops").id == "ops"


def test_an_answer_comes_whole(ask: Ask) -> None:
    answer = ask("hello \u2028 you")
    [choice] = answer.choices
    assert choice.message.content == 'You said: "hello \u2028 you". (turn 1)'
    assert (choice.finish_reason, choice.message.role, answer.model) == ("stop", "assistant", "main")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0


def test_an_answer_comes_as_a_stream(ask: Ask) -> None:
    chunks = list(ask("PIECES=3 DELAY=20", stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "piece 0 piece 1 piece 2 "
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [*[None] * (len(chunks) - 1), "stop"]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len(chunks) == 4
    assert len({chunk.id for chunk in chunks}) == 1
