"""A whole worker whose model is on the other side of HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.models.openai import OpenAIModel
from fixtures.fake_openai import FakeOpenAI
from tests.agent.inprocess import Client, worker

ARGUMENTS = ("--provider", "openai", "--model", "fake-1")


@pytest.fixture(autouse=True)
def endpoint(server: FakeOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.port}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")


@pytest.fixture
async def client(endpoint: None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A process that ends closes its connections; of a worker in this process they are closed here."""
    models: list[OpenAIModel] = []
    begin = OpenAIModel.__init__

    def begin_and_remember(self: OpenAIModel, *arguments: Any, **more: Any) -> None:
        begin(self, *arguments, **more)
        models.append(self)

    monkeypatch.setattr(OpenAIModel, "__init__", begin_and_remember)
    async with worker(*ARGUMENTS) as client:
        yield client
    for model in models:
        await model.aclose()


@pytest.mark.parametrize(
    ("text", "message", "kept"),
    [
        ("CUT", "in the middle", "partial answer "),
        ("BADJSON", "cannot be read", "echo: BADJSON"),
        ("STATUS=400", "the model server answered 400: fake internal error", ""),
    ],
)
async def test_a_broken_answer_ends_the_run_with_its_error_keeps_what_was_shown_and_the_next_prompt_works(
    text: str, message: str, kept: str, client: Client
) -> None:
    result = await client.prompt(text)
    assert (result.stop_reason, result.text) == ("error", kept)
    assert message in (result.error or "")
    told = client.events("error")
    assert (await client.prompt("and now")).text == "echo: and now"
    assert client.events("error") == told


async def test_a_conversation_of_a_large_model_goes_on_with_a_small_one(client: Client) -> None:
    for number in range(12):
        assert (await client.prompt(f"{number} " + "long " * 780)).stop_reason == "stop"
    await client.call("set_model", provider="openai", model="fake-window-16000")
    for _ in range(2):
        assert (await client.prompt("and now?")).text == "echo: and now?"
