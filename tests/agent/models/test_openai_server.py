"""A model on the other side of real HTTP, on loopback: what it says, how it fails, and how it is left."""

import json
import socket
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import trio

from agent.models.base import (
    CallPiece,
    ModelError,
    ModelRequest,
    Piece,
    TextPiece,
    ThinkingPiece,
    ToolDefinition,
    UsagePiece,
)
from agent.models.openai import OpenAIModel
from agent.models.openai_endpoint import Timeouts, read_endpoint
from agent.models.openai_stream import AnswerLimits
from fixtures.fake_openai import FakeOpenAI
from tests.agent.models.conftest import until_told
from tests.house import ROOT
from wire.entries import TextBlock, TranscriptMessage

KEY = "sk-very-secret"


Opens = Callable[..., OpenAIModel]


@pytest.fixture
async def opens(server: FakeOpenAI) -> AsyncIterator[Opens]:
    """Makes models of the server, and closes them."""
    models: list[OpenAIModel] = []

    def open_one(
        name: str = "fake-1",
        *,
        patience: Timeouts | None = None,
        limits: AnswerLimits | None = None,
        **environment: str,
    ) -> OpenAIModel:
        environment = {"OPENAI_BASE_URL": f"http://127.0.0.1:{server.port}/v1", "OPENAI_API_KEY": KEY, **environment}
        models.append(OpenAIModel(name, read_endpoint(None, environment), patience, limits))
        return models[-1]

    yield open_one
    for model in models:
        await model.aclose()


def request_of(text: str, *more: TranscriptMessage, **fields: Any) -> ModelRequest:
    return ModelRequest("r1.0", [TranscriptMessage("user", [TextBlock(text)]), *more], **fields)


async def ask(model: OpenAIModel, text: str, *more: TranscriptMessage, **fields: Any) -> list[Piece]:
    with trio.fail_after(20):
        async with aclosing(model.stream(request_of(text, *more, **fields))) as pieces:
            return [piece async for piece in pieces]


async def failure_of(model: OpenAIModel, text: str) -> ModelError:
    with pytest.raises(ModelError) as failure:
        await ask(model, text)
    return failure.value


def text_of(pieces: list[Piece]) -> str:
    return "".join(part for piece in pieces if isinstance(piece, TextPiece) for part in piece.parts)


@asynccontextmanager
async def raw_server(handle: Callable[[trio.SocketStream], Any]) -> AsyncIterator[str]:
    """A server that is anything but HTTP; its base URL."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, listeners)
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"
        nursery.cancel_scope.cancel()


async def test_an_answer_is_streamed_and_counted(server: FakeOpenAI, opens: Opens) -> None:
    pieces = await ask(opens(), "THINK hello", thinking="low", system_prompt="be brief")
    assert text_of(pieces) == "echo: THINK hello"
    assert [type(piece) for piece in pieces if not isinstance(piece, TextPiece)][-1] is UsagePiece
    assert isinstance(pieces[0], ThinkingPiece)
    seen = server.seen[-1]
    assert (seen.path, seen.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert (seen.body["model"], seen.body["reasoning_effort"]) == ("fake-1", "low")
    assert [message["role"] for message in seen.body["messages"]] == ["system", "user"]


async def test_without_a_key_none_is_sent(server: FakeOpenAI, opens: Opens) -> None:
    assert await ask(opens(OPENAI_API_KEY=""), "hello")
    assert "authorization" not in server.seen[-1].headers


@pytest.mark.parametrize("how", ["DRIP=7 COMMENTS CRLF", "NODONE", "WHOLE", "REASONING"])
async def test_an_answer_is_the_same_however_it_is_sent(how: str, opens: Opens) -> None:
    assert text_of(await ask(opens(), f"{how} hello")) == f"echo: {how} hello"


async def test_calls_share_a_connection(server: FakeOpenAI, opens: Opens) -> None:
    model = opens(patience=Timeouts(end=20))
    server.seen.clear()
    for text in ("one", "two", "STATUS=500x1 three", "STATUS=500x1 three", "WHOLE four"):
        try:
            await ask(model, text)
        except ModelError:
            assert "500" in text
    assert len(server.seen) == 5
    assert len({seen.client_port for seen in server.seen}) == 1


async def test_a_name_that_no_server_takes_finds_its_way_there_and_back(server: FakeOpenAI, opens: Opens) -> None:
    model, tool = opens(), ToolDefinition("look up.\u00fc", "", {"type": "object"})
    await ask(model, "hello", tools=[tool])
    theirs = server.seen[-1].body["tools"][0]["function"]["name"]
    assert theirs.isascii()
    text = f"SCRIPT:{json.dumps([{'call': theirs}])}"
    assert [piece.name for piece in await ask(model, text, tools=[tool]) if isinstance(piece, CallPiece)] == [tool.name]


@pytest.mark.parametrize(
    ("text", "message", "transient"),
    [
        ("STATUS=500", "answered 500: fake internal error", True),
        ("STATUS=401", "answered 401: .*OPENAI_API_KEY", False),
        ("STATUS=307", "answered 307", False),
        ("CUT", "in the middle", True),
        ("RESET", "broke off", True),
        ("STREAMERROR", "failed: the model is overloaded", True),
        ("HTML", "web page: is the base URL right", False),
    ],
)
async def test_failures_say_what_happened_and_whether_it_may_pass(
    text: str, message: str, *, transient: bool, opens: Opens
) -> None:
    with pytest.raises(ModelError, match=message) as failure:
        await ask(opens(), text)
    assert failure.value.transient == transient


@pytest.mark.parametrize(
    ("text", "patience"),
    [
        ("HANGHEAD", Timeouts(first_byte=0.2)),
        ("DRIP=1 DELAY_MS=1000", Timeouts(first_byte=0.2)),
        ("HANG", Timeouts(between_bytes=0.2)),
    ],
)
async def test_a_server_that_falls_silent_is_left(text: str, patience: Timeouts, opens: Opens) -> None:
    error = await failure_of(opens(patience=patience), text)
    assert "said nothing for too long" in str(error)
    assert error.transient


async def test_a_complete_answer_is_one_though_its_stream_never_ends(opens: Opens, server: FakeOpenAI) -> None:
    pieces = await ask(opens(patience=Timeouts(count=0.2)), "LINGER hello")
    assert text_of(pieces) == "echo: LINGER hello"
    await until_told(server.hung_up, "LINGER hello")


async def test_a_server_that_is_not_there_is_an_error_that_may_pass(opens: Opens) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        error = await failure_of(opens(OPENAI_BASE_URL=f"http://127.0.0.1:{port}/v1"), "hello")
    assert error.transient
    assert str(error).startswith(f"127.0.0.1:{port} cannot be reached")


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"])
async def test_a_server_that_speaks_something_else_is_an_error(answer: bytes, opens: Opens) -> None:
    async def handle(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some(65536)
            await stream.send_all(answer)

    async with raw_server(handle) as url:
        assert (await failure_of(opens(OPENAI_BASE_URL=url), "hello")).transient


async def test_an_error_that_does_not_end_is_told_as_far_as_it_came(opens: Opens) -> None:
    async def handle(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some(65536)
            await stream.send_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 99\r\n\r\ncome again")
            await stream.receive_some(65536)

    async with raw_server(handle) as url:
        error = await failure_of(opens(patience=Timeouts(error=0.1), OPENAI_BASE_URL=url), "hello")
    assert str(error) == "the model server answered 503: come again"


async def test_plain_http_where_tls_was_meant_stays_an_error(server: FakeOpenAI, opens: Opens) -> None:
    error = await failure_of(opens(OPENAI_BASE_URL=f"https://127.0.0.1:{server.port}/v1"), "hello")
    assert "cannot be reached" in str(error)
    assert "SSL" in str(error)
    assert not error.transient


async def test_the_key_shows_in_no_error(opens: Opens) -> None:
    async def handle(stream: trio.SocketStream) -> None:
        async with stream:
            body = f"you sent {KEY}".encode()
            await stream.receive_some(65536)
            await stream.send_all(b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    async with raw_server(handle) as url:
        error = await failure_of(opens(OPENAI_BASE_URL=url), "hello")
    assert "you sent ***" in str(error)
    assert KEY not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("text", ["HANG cancelled", "HANGHEAD cancelled"])
async def test_a_call_that_is_cancelled_closes_its_connection_and_the_model_goes_on(
    text: str, server: FakeOpenAI, opens: Opens
) -> None:
    model = opens()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, model, text)
            await until_told(server.hanging, text)
            nursery.cancel_scope.cancel()
        await until_told(server.hung_up, text)
    assert text_of(await ask(model, "hello")) == "echo: hello"
    await model.aclose()
    assert text_of(await ask(model, "again")) == "echo: again"


@pytest.mark.process
def test_a_worker_that_needs_no_server_never_loads_what_speaks_to_one() -> None:
    program = (
        "import sys; import agent.rpc, agent.text; from agent.models.catalogue import open_model\n"
        "from agent.models.scripted import ProcessFaults\n"
        "open_model(None, None, ProcessFaults(print))\n"
        "loaded = {'httpx', 'httpcore', 'ssl', 'agent.models.openai'} & set(sys.modules)\n"
        "assert 'agent.models.openai' not in loaded and 'httpx' not in loaded, loaded\n"
        "open_model('openai', 'm', ProcessFaults(print), environment={})\n"
        "assert 'httpx' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-P", "-c", program], check=True, timeout=20, cwd=ROOT)
