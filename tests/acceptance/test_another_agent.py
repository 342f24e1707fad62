"""A session is one agent's: every door refuses another one before anything is started, and the session goes on."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.acceptance.front_ends import gateway_socket
from tests.acceptance.supervisor import POOL, Supervisor, running_supervisor
from tests.commands.attached import AttachedProgram

pytestmark = pytest.mark.process

TOKEN = "the-token-of-an-operator-0123456789"
SETTINGS = f"""
[pool]
min = 0
max = 2
[http]
bind = "127.0.0.1:0"
token = "{TOKEN}"
[agents.pi]
command = ["pi", "--mode", "rpc"]
dialect = "pi"
[agents.pi.heartbeat]
every = "1h"
"""
Say = Callable[[Supervisor, str], str]


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    """``cron:job`` and ``alice`` are conversations of its bundled agent; its agent ``pi`` is never to be started."""
    with running_supervisor(tmp_path_factory.mktemp("p"), settings=SETTINGS) as running:
        running.prompt("alice", "the first words")
        running.prompt("cron:job", "the first words")
        yield running


def url_of(supervisor: Supervisor) -> str:
    return str(supervisor.status()["supervisor"]["http"]["url"])


def by_command(*arguments: str) -> Say:
    def say(supervisor: Supervisor, _text: str) -> str:
        done = supervisor.pool(*arguments)
        assert done.returncode != 0, done.stdout
        return " ".join(done.stderr.split())

    return say


def by_http(path: str, **request: Any) -> Say:
    def say(supervisor: Supervisor, text: str) -> str:
        body = json.loads(json.dumps(request).replace("TEXT", text))
        headers = {"authorization": f"Bearer {TOKEN}"}
        answer = httpx.post(f"{url_of(supervisor)}{path}", json=body, headers=headers, timeout=60)
        assert answer.status_code == 400, answer.text
        return str(answer.json()["error"]["message"])

    return say


def by_websocket(supervisor: Supervisor, text: str) -> str:
    with gateway_socket(url_of(supervisor), TOKEN) as socket:
        request = socket.ask("agent", message=text, sessionKey="alice", agentId="pi", idempotencyKey=text)
        with pytest.raises(AssertionError) as caught:
            socket.answer(request)
    return str(caught.value)


def by_attachment(supervisor: Supervisor, _text: str) -> str:
    command = [*POOL, "attach", "--mode", "rpc", "--session", "alice", "--agent", "pi"]
    with AttachedProgram(command, POOL_SOCKET=str(supervisor.socket)) as program:
        code, words = program.end()
    assert code != 0
    return words


def by_schedule(supervisor: Supervisor, text: str) -> str:
    added = supervisor.pool("cron", "add", "--id", "job", "--every", "1d", "--isolated", "--agent", "pi", text)
    assert added.returncode == 0, added.stderr
    assert supervisor.pool("cron", "run", "job").returncode == 0
    while not (runs := json.loads(supervisor.pool("cron", "show", "job", "--json").stdout)["history"]):
        continue
    return str(runs[0]["error"])


MESSAGE = {"session": "alice", "agent": "pi", "text": "TEXT"}
COMPLETION = {"model": "pi", "user": "alice", "messages": [{"role": "user", "content": "TEXT"}]}
DOORS: dict[str, Say] = {
    "prompt": by_command("prompt", "-s", "alice", "-a", "pi", "x"),
    "heartbeat": by_command("heartbeats", "run", "pi", "-s", "alice"),
    "schedule": by_schedule,
    "api prompt": by_http("/api/prompt", **MESSAGE),
    "api agent": by_http("/api/agent", **MESSAGE),
    "completion": by_http("/v1/chat/completions", **COMPLETION),
    "websocket": by_websocket,
    "attach": by_attachment,
}


@pytest.mark.parametrize("door", DOORS)
def test_another_agent_is_refused_before_anything_is_started(supervisor: Supervisor, door: str) -> None:
    spawned = supervisor.status()["counters"]["spawned"]
    words = DOORS[door](supervisor, f"by {door}")
    assert "conversation with" in words or "is agent main's" in words, words
    assert supervisor.status()["counters"]["spawned"] == spawned
    session = "cron:job" if door == "schedule" else "alice"
    told = supervisor.prompt(session, "RECALL")
    assert "the first words" in told
    assert f"by {door}" not in told


def test_a_session_that_was_begun_again_may_be_another_agents(supervisor: Supervisor) -> None:
    supervisor.prompt("bob", "the first words")
    assert supervisor.pool("sessions", "reset", "bob").returncode == 0
    done = supervisor.pool("prompt", "-s", "bob", "-a", "pi", "x")
    assert "conversation with" not in done.stderr
    assert json.loads(supervisor.pool("sessions", "show", "bob", "--json").stdout)["agent"] == "pi"
