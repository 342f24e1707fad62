"""A client of a well-kept library against a real pool."""

import itertools
import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as open_socket

from tests.acceptance.supervisor import Supervisor, running_supervisor

pytestmark = pytest.mark.process

TOKEN = "a-token-of-the-tests-0123456789"
READER = "a-token-that-may-look-0123456789"
SETTINGS = f"""
[pool]
min = 0
max = 2
[http]
bind = "127.0.0.1:0"
token = "{TOKEN}"
[http.tokens.reader]
token = "{READER}"
[agents.careful]
permission_mode = "approval"
"""


class Client:
    """As somebody would write it who knows the protocol."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.hello: dict[str, Any] = {}
        self.last_seq = 0
        self._ids = itertools.count(1)
        self._kept: list[dict[str, Any]] = []

    @classmethod
    @contextmanager
    def connect(cls, url: str, token: str = TOKEN, protocol: int = 4) -> Iterator[Self]:
        with open_socket(url, max_size=None) as socket:
            client = cls(socket)
            assert client.read()["event"] == "connect.challenge"
            params = {"minProtocol": 3, "maxProtocol": protocol, "client": {"id": "tests"}, "auth": {"token": token}}
            client.hello = client.call("connect", **params)
            yield client

    def read(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(self.socket.recv(timeout=20))
        if "seq" in frame:
            assert frame["seq"] == self.last_seq + 1, "nothing is missing"
            self.last_seq = frame["seq"]
        return frame

    def ask(self, method: str, **params: Any) -> str:
        request_id = str(next(self._ids))
        self.socket.send(json.dumps({"type": "req", "id": request_id, "method": method, "params": params}))
        return request_id

    def answer(self, request_id: str) -> dict[str, Any]:
        return self.find(type="res", id=request_id)

    def call(self, method: str, **params: Any) -> Any:
        answer = self.answer(self.ask(method, **params))
        assert answer["ok"], answer
        return answer["payload"]

    def run(self, text: str, **params: Any) -> dict[str, Any]:
        """The last answer of a run."""
        asked = self.ask("agent", message=text, **params)
        assert self.answer(asked)["payload"]["status"] == "accepted"
        payload: dict[str, Any] = self.answer(asked)["payload"]
        return payload

    def events(self, until: str, **facts: Any) -> list[dict[str, Any]]:
        """The payloads of ``agent`` and ``chat`` events up to the chat's one in that state."""
        found = []
        while True:
            frame = self.find(type="event")
            payload = frame["payload"]
            if frame["event"] in ("agent", "chat") and facts.items() <= payload.items():
                found.append(payload)
                if payload.get("state") == until:
                    return found

    def find(self, **facts: Any) -> dict[str, Any]:
        for number, frame in enumerate(self._kept):
            if facts.items() <= frame.items():
                return self._kept.pop(number)
        while not facts.items() <= (frame := self.read()).items():
            self._kept.append(frame)
        return frame


class Pool:
    """A supervisor, and where its WebSockets are."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.url = str(supervisor.status()["supervisor"]["http"]["url"]).replace("http", "ws") + "/ws"


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    directory: Path = tmp_path_factory.mktemp("websocket")
    config = directory / "pool.toml"
    config.write_text(SETTINGS)
    with running_supervisor(directory / "data", "--config", str(config)) as supervisor:
        yield Pool(supervisor)


@pytest.mark.parametrize("protocol", [3, 4])
def test_an_answer_streams_in_both_versions(pool: Pool, protocol: int) -> None:
    with Client.connect(pool.url, protocol=protocol) as client:
        assert client.hello["protocol"] == protocol
        run, whole = f"k{protocol}", "".join(f"piece {number} " for number in range(5))
        last = client.run("PIECES=5 DELAY=40", sessionKey=f"s{protocol}", idempotencyKey=run)
        assert (last["runId"], last["status"], last["result"]["payloads"]) == (run, "ok", [{"text": whole}])
        events = client.events("final", runId=run)
        texts = [each["data"] for each in events if each.get("stream") == "assistant"]
        assert "".join(text["delta"] for text in texts) == texts[-1]["text"] == whole
        assert [each["data"]["phase"] for each in events if each.get("stream") == "lifecycle"] == ["start", "end"]
        deltas = [each for each in events if each.get("state") == "delta"]
        assert all(("deltaText" in each) is (protocol == 4) for each in deltas)
        assert all(whole.startswith(each["message"]["content"][0]["text"]) for each in deltas)
        assert events[-1]["message"]["content"][0]["text"] == whole


def test_the_result_of_a_tool_call_is_sent_once_whether_it_succeeds_or_fails(pool: Pool) -> None:
    with Client.connect(pool.url) as client:
        calls = ('TOOL:exec {"command": "echo from the tool"}', False, "from the tool")
        for text, is_error, words in (calls, ('TOOL:read {"path": "missing.txt"}', True, "missing.txt")):
            sent = client.call("chat.send", sessionKey="tools", message=text)
            events = client.events("final", runId=sent["runId"])
            tools = [each["data"] for each in events if each.get("stream") == "tool"]
            (result,) = [each for each in tools if each["phase"] == "result"]
            assert (result["isError"], words in result["result"]) == (is_error, True)


def test_two_clients_and_the_command_line_agree_on_what_happened(pool: Pool) -> None:
    with Client.connect(pool.url) as asking, Client.connect(pool.url, READER) as looking:
        assert "You said" in pool.supervisor.prompt("shared", "from the terminal")
        asking.call("chat.send", sessionKey="shared", message="from a socket", idempotencyKey="b")
        for client in (asking, looking):
            assert client.events("final", sessionKey="shared")[-1]["runId"] != "b"
            assert "from a socket" in client.events("final", runId="b")[-1]["message"]["content"][0]["text"]
        history = looking.call("chat.history", sessionKey="shared")["messages"]
        assert [message["role"] for message in history] == ["user", "assistant"] * 2


def test_a_prompt_of_five_megabytes_and_every_line_end_arrive_and_figures_count_the_sockets(pool: Pool) -> None:
    with Client.connect(pool.url) as client:
        said = "one\u2028two\u2029three\x85four\r\nfive"
        assert client.run(f"ECHO:{said}", sessionKey="lines")["result"]["payloads"][0]["text"] == said
        assert client.run("x" * 5_000_000, sessionKey="large")["status"] == "ok"
        url = pool.url.replace("ws", "http", 1).replace("/ws", "/metrics")
        request = urllib.request.Request(url, headers={"authorization": f"Bearer {TOKEN}"})
        text = ""
        while "pool_http_sockets 1.0" not in text:  # those of the tests before may not be closed yet
            with urllib.request.urlopen(request, timeout=20) as answer:
                text = answer.read().decode()
    for figure in ("sockets_slow_total", "socket_events_dropped_total"):
        assert f"pool_http_{figure} 0.0" in text
