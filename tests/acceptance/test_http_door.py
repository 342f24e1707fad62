"""A real supervisor with its HTTP door open: found, used, told other tokens, and ended."""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.supervisor import Supervisor, gated, running_supervisor

pytestmark = pytest.mark.process

TOKEN = "the-token-of-an-operator-0123456789"
OTHER = "another-token-for-the-same-operator"
SETTINGS = """
[http]
bind = "127.0.0.1:0"
token_file = "token"

[http.tokens.grafana]
token = "only-for-looking-at-figures"

[agents.main]
model = "scripted"
"""


def write_token(place: Path, token: str) -> None:
    (place / "token").write_text(token)
    (place / "token").chmod(0o600)


@contextmanager
def open_door(place: Path) -> Iterator[tuple[Supervisor, httpx.Client]]:
    (place / "pool.toml").write_text(SETTINGS)
    write_token(place, TOKEN)
    with running_supervisor(place / "data", "--config", str(place / "pool.toml")) as supervisor:
        url = supervisor.status()["supervisor"]["http"]["url"]
        with httpx.Client(base_url=url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=20) as client:
            yield supervisor, client


def messages(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The data of each message of a stream, under ``event`` where it has a name."""
    name = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield {"event": name, **json.loads(value)}
        elif not line:
            name = ""


def test_the_door_is_found_and_used_and_its_token_is_nowhere_to_be_read(tmp_path: Path) -> None:
    """Nor can another supervisor take its address."""
    with open_door(tmp_path) as (supervisor, client):
        assert client.get("/ready").json() == {"status": "ready"}
        answer = client.post("/api/prompt", json={"session": "alice", "text": "ECHO:hello"}).json()
        assert (answer["status"], answer["text"]) == ("ok", "hello")
        looker = {"authorization": "Bearer only-for-looking-at-figures"}
        figures = client.get("/metrics", headers=looker).text
        assert re.search(r'^pool_turn_seconds_count\{agent="main",profile="\w{8}"\} 1.0$', figures, re.MULTILINE)
        assert client.post("/api/shutdown", headers=looker).status_code == 403
        assert client.get("/status", headers={"authorization": "Bearer of-bad-news-0123456789"}).status_code == 401
        status, config = supervisor.pool("status"), ("--config", str(tmp_path / "pool.toml"))
        assert str(client.base_url).rstrip("/") in status.stdout.replace("\n", "")
        shown = [supervisor.pool("config", "show", *config), supervisor.pool("doctor", *config)]
        assert str(tmp_path / "token") in "".join(shown[1].stdout.split())
        other = tmp_path / "other"
        other.mkdir()
        taken = f"{client.base_url.host}:{client.base_url.port}"
        (other / "pool.toml").write_text(f'[http]\nbind = "{taken}"\ntoken = "{TOKEN}"\n')
        refused = Supervisor(other, "--config", str(other / "pool.toml"))
        assert refused.wait(60) == 2
        assert f"cannot listen on {taken} (http.bind)" in refused.log_tail()
    assert supervisor.logged("http_ready")
    texts = [supervisor.log_tail(), refused.log_tail(), status.stdout, *(done.stdout for done in shown)]
    assert not [text for text in texts for token in (TOKEN, "only-for-looking") if token in text]


def test_a_stream_ends_with_its_token_and_hears_the_last_turn_and_then_the_end_itself(tmp_path: Path) -> None:
    """Another token in the file holds after a reload, unless others may read it."""
    with open_door(tmp_path) as (supervisor, client):
        with client.stream("GET", "/events") as stream:
            told = messages(stream.iter_lines())
            assert next(told)["event"] == "open"
            write_token(tmp_path, OTHER)
            assert supervisor.pool("reload").stdout == "changed: the tokens of [http]\n"
            assert supervisor.pool("reload").stdout == "changed: nothing\n"
            with pytest.raises(httpx.RemoteProtocolError):
                list(told)
        assert client.get("/status").status_code == 401
        client.headers["authorization"] = f"Bearer {OTHER}"
        assert client.get("/status").status_code == 200
        (tmp_path / "token").chmod(0o644)
        assert "chmod 600" in supervisor.pool("reload").stderr
        assert client.get("/status").status_code == 200
        with client.stream("GET", "/events") as stream:
            told = messages(stream.iter_lines())
            prompt = f"{gated(tmp_path / 'gate')} ECHO:over"
            client.post("/api/agent", json={"session": "alice", "text": prompt})
            while next(told).get("type") != "run:start":
                pass
            supervisor.signal(signal.SIGTERM)
            supervisor.wait_for_log("stopping")
            (tmp_path / "gate").touch()
            rest = list(told)
            assert [event["data"]["text"] for event in rest if event.get("type") == "done"] == ["over"]
            assert (rest[-1]["event"], rest[-1]["reason"]) == ("end", "closing")
            assert supervisor.wait() == 0
