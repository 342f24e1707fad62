"""A worker that dies: every place that tells of it says what the worker wrote to stderr last."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.acceptance.supervisor import Supervisor, running_supervisor

pytestmark = pytest.mark.process

WORDS = "FATAL: cannot open the database"
DYING = f"""
[pool]
min = 0
[http]
bind = "127.0.0.1:0"
[agents.main]
command = ["sh", "-c", "echo first >&2; echo '{WORDS}' >&2; exit 3"]
"""


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    with running_supervisor(tmp_path_factory.mktemp("l"), settings=DYING) as running:
        assert running.pool("prompt", "-s", "a", "--key", "k1", "x").returncode == 1
        yield running


def completion(supervisor: Supervisor) -> str:
    http = supervisor.status()["supervisor"]["http"]
    headers = {"authorization": f"Bearer {Path(http['token_path']).read_text().strip()}"}
    body = {"model": "main", "messages": [{"role": "user", "content": "x"}]}
    return httpx.post(f"{http['url']}/v1/chat/completions", headers=headers, json=body, timeout=30).text


def method(supervisor: Supervisor) -> str:
    http = supervisor.status()["supervisor"]["http"]
    headers = {"authorization": f"Bearer {Path(http['token_path']).read_text().strip()}"}
    body = {"session": "a", "text": "x"}
    return httpx.post(f"{http['url']}/api/prompt", headers=headers, json=body, timeout=30).text


def event(kind: str) -> Callable[[Supervisor], Any]:
    return lambda supervisor: supervisor.told(kind)[0]


PLACES: dict[str, Callable[[Supervisor], Any]] = {
    "pool prompt": lambda supervisor: supervisor.pool("prompt", "-s", "a", "x").stderr,
    "pool wait": lambda supervisor: supervisor.pool("wait", "k1").stderr,
    "event done": event("done"),
    "event worker_exited": event("worker_exited"),
    "log of the supervisor": lambda supervisor: supervisor.logged("worker_exited")[0],
    "log of the worker": lambda supervisor: supervisor.pool("logs", "w1").stdout,
    "status": lambda supervisor: supervisor.status()["profiles"],
    "method over HTTP": method,
    "completion": completion,
}


@pytest.mark.parametrize("place", PLACES)
def test_the_last_line_of_stderr_is_in(supervisor: Supervisor, place: str) -> None:
    told = PLACES[place](supervisor)
    assert WORDS in (told if isinstance(told, str) else msgspec.json.encode(told).decode())
