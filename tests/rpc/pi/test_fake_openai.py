"""The fake model server that the tests with a real pi stand on."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from fixtures.fake_openai import FakeOpenAI
from fixtures.pi_home import write_pi_home

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def port(model_server: FakeOpenAI) -> int:
    return model_server.port


def post(port: int, *texts: str, stream: bool = False, after_tool: bool = False) -> bytes:
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": text}]} for text in texts]
    if after_tool:
        messages.append({"role": "tool", "tool_call_id": "1", "content": "output"})
    body = json.dumps({"model": "fake-1", "stream": stream, "messages": messages}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", data=body, method="POST")
    with urllib.request.urlopen(request, timeout=10) as response:
        return bytes(response.read())


def answer(port: int, *texts: str) -> str:
    message = json.loads(post(port, *texts))["choices"][0]["message"]
    return str(message["content"])


def chunks(port: int, *texts: str) -> list[dict[str, Any]]:
    lines = [line for line in post(port, *texts, stream=True).split(b"\n\n") if line]
    assert lines.pop() == b"data: [DONE]"
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


def test_a_text_is_echoed(port: int) -> None:
    assert answer(port, "hello") == "echo: hello"


def test_earlier_texts_are_recalled(port: int) -> None:
    assert answer(port, "one", "two", "RECALL") == "one | two"


def test_pieces_are_streamed_with_an_end_and_a_count(port: int) -> None:
    streamed = chunks(port, "CHUNKS=3")
    deltas = [chunk["choices"][0]["delta"].get("content") for chunk in streamed if chunk["choices"]]
    assert deltas == ["", "word00000 ", "word00001 ", "word00002 ", None]
    assert streamed[-2]["choices"][0]["finish_reason"] == "stop"
    assert streamed[-1]["usage"]["completion_tokens"] == 3


def test_a_tool_call_is_asked_for_once_and_then_answered(port: int) -> None:
    streamed = chunks(port, "BASH:echo hi; date")
    calls = [
        call for chunk in streamed if chunk["choices"] for call in chunk["choices"][0]["delta"].get("tool_calls", [])
    ]
    assert calls[0]["function"]["name"] == "bash"
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"command": "echo hi; date"}
    after = json.loads(post(port, "BASH:echo hi", after_tool=True))
    assert after["choices"][0]["message"]["content"] == "after tool: ok"


def test_a_status_is_what_was_asked_for_and_as_often(port: int) -> None:
    for _ in range(2):
        with pytest.raises(urllib.error.HTTPError) as failure:
            post(port, "STATUS=503x2 unique")
        with failure.value as response:
            assert response.code == 503
    assert answer(port, "STATUS=503x2 unique") == "echo: STATUS=503x2 unique"


@pytest.mark.process
def test_as_a_program_it_prints_its_base_url_and_stops_with_its_stdin() -> None:
    command = [sys.executable, "-P", "-m", "fixtures.fake_openai", "--port", "0"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY, env={"PYTHONPATH": str(REPOSITORY)}
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        url = server.stdout.readline().decode().strip()
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/v1")
        assert answer(int(url.split(":")[2].removesuffix("/v1")), "hello") == "echo: hello"
        server.stdin.close()
        assert server.wait(timeout=10) == 0


def test_the_agent_dir_names_the_servers_port_and_its_models(tmp_path: Path) -> None:
    home = write_pi_home(tmp_path / "agent", 1234)
    provider = json.loads((home / "models.json").read_text())["providers"]["fake"]
    assert provider["baseUrl"] == "http://127.0.0.1:1234/v1"
    settings = json.loads((home / "settings.json").read_text())
    assert settings["defaultModel"] in [model["id"] for model in provider["models"]]
