"""Every secret that a supervisor is given, and every place where one could be read again."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from doors.http.tokens import METHOD_SCOPES, Scope
from rpc.settings import RpcSettings
from tests.acceptance.supervisor import Supervisor, running_supervisor

pytestmark = pytest.mark.process

SECRETS = {
    "api key of an agent": "canary-api-key-0001",
    "password of an agent": "canary-db-pass-0002",
    "key of an agent that fails to start": "canary-stderr-0003",
    "key of an agent that tells why it fails": "canary-failure-0004",
    "token of the operator": "canary-operator-token-0005",
    "token of a looker": "canary-looker-token-0006",
    "path of a webhook": "canary-path-0007",
    "secret of a webhook": "canary-webhook-0008",
    "secret of a webhook in the environment": "canary-environment-0009",
    "something else in the environment": "canary-unrelated-0010",
    "marked as secret": "canary-marked-0011",
}
API, PASSWORD, STDERR, FAILURE, OPERATOR, LOOKER, PATH, HOOK, HOOK_ENV, UNRELATED, MARKED = SECRETS.values()
PASSED = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "TZ"}
TELLS = """cat <<END; sleep 5
{"event": "start_failed", "data": {"message": "no access with $KEY"}}
END
"""
SETTINGS = f"""
[pool]
breaker_failures = 1

[agents.main]
env = {{ OPENAI_API_KEY = "{API}", DB_PASSWORD = "{PASSWORD}" }}

[agents.dies]
command = ["sh", "-c", "echo no access with $KEY to $PLACE in $MODE >&2; exit 3"]
env = {{ KEY = "{STDERR}", PLACE = "{MARKED}", MODE = "production" }}
secret_env = ["PLACE"]

[agents.tells]
command = ["sh", "-c", {json.dumps(TELLS)}]
env = {{ KEY = "{FAILURE}" }}

[agents.main.heartbeat]
every = "1h"
target = "webhook:ops"

[http]
bind = "127.0.0.1:0"
token = "{OPERATOR}"

[http.tokens.looker]
token = "{LOOKER}"

[delivery.webhooks.ops]
url = "http://127.0.0.1:1/{PATH}"
secret = "{HOOK}"
allow_private = true
max_attempts = 1

[delivery.webhooks.other]
url = "http://127.0.0.1:1/"
secret_env = "HOOK_SECRET"
allow_private = true
"""


class House(NamedTuple):
    """A supervisor through which all of it has gone, what was told, and where it keeps its files."""

    supervisor: Supervisor
    told: dict[str, str]
    data: Path


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    place = tmp_path_factory.mktemp("house")
    (place / "pool.toml").write_text(SETTINGS)
    given = {"HOOK_SECRET": HOOK_ENV, "SOME_OTHER_KEY": UNRELATED}
    wrapper = ("env", *(f"{name}={value}" for name, value in given.items()))
    flags = ("--config", str(place / "pool.toml"), "--max", "2")
    with running_supervisor(place / "data", *flags, wrapper=wrapper) as supervisor:
        told = dict(_tell_all(supervisor, place / "pool.toml"))
        yield House(supervisor, told, place / "data")


def _tell_all(supervisor: Supervisor, settings: Path) -> Iterator[tuple[str, str]]:
    """By name what every way of looking says, after turns, failures, refusals and an alert that went nowhere."""
    for name, arguments in {
        "prompt": ("prompt", "-s", "a", "hello"),
        "failing to start": ("prompt", "-s", "b", "-a", "dies", "--timeout", "20s", "hello"),
        "telling why": ("prompt", "-s", "c", "-a", "tells", "--timeout", "20s", "hello"),
        "heartbeat": ("heartbeats", "run"),
        "status": ("status",),
        "status as JSON": ("status", "--json"),
        "workers": ("workers", "--json"),
        "sessions": ("sessions", "--json"),
        "explain": ("explain", "-s", "a"),
        "config": ("config", "show", "--config", str(settings)),
        "config as JSON": ("config", "show", "--json", "--config", str(settings)),
        "doctor": ("doctor", "--config", str(settings)),
    }.items():
        done = supervisor.pool(*arguments)
        yield name, done.stdout + done.stderr
    yield from _ask_over_http(supervisor.status()["supervisor"]["http"]["url"])


def _ask_over_http(url: str) -> Iterator[tuple[str, str]]:
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {OPERATOR}"}, timeout=20) as client:
        for path in ("/health", "/ready", "/status", "/metrics", "/v1/models", "/nothing", "/assets/main.js", "/"):
            yield f"GET {path}", _shown(client.get(path))
        wrong = {"authorization": f"Bearer {LOOKER}x"}
        yield "a wrong token", _shown(client.get("/status", headers=wrong))
        yield "too little a token", _shown(client.post("/api/pause", headers={"authorization": f"Bearer {LOOKER}"}))
        looking = [name for name, scope in METHOD_SCOPES.items() if scope is Scope.READ]
        for method in (*looking, "config.get", "reload", "nothing"):
            body = {"session": "a"} if method not in ("ping", "status", "reload", "config.get") else {}
            yield f"/api/{method}", _shown(client.post(f"/api/{method}", json=body))
        yield "events", _events(client)


def _shown(answer: httpx.Response) -> str:
    return f"{answer.headers!r}\n{answer.text}"


def _events(client: httpx.Client) -> str:
    """The stream from its beginning to what was the last event when it was opened."""
    lines: list[str] = []
    with client.stream("GET", "/events?since=0") as stream:
        for line in stream.iter_lines():
            lines.append(line)
            if _is_up_to_date(lines):
                break
    return "\n".join(lines)


def _is_up_to_date(lines: list[str]) -> bool:
    opened = next((line for line in lines if '"head"' in line), None)
    if opened is None or not lines[-1].startswith("id: "):
        return False
    return int(lines[-1][4:]) >= int(json.loads(opened.removeprefix("data: "))["head"])


def test_s21_no_secret_is_told_by_any_way_of_looking(house: House) -> None:
    shown = [(name, secret) for name, text in house.told.items() for secret in SECRETS.values() if secret in text]
    assert shown == []


def test_s20_no_secret_is_in_the_log_of_the_supervisor_or_in_any_file_that_it_keeps(house: House) -> None:
    files = [path for path in house.data.rglob("*") if path.is_file()]
    assert any(path.name.startswith("pool.db") for path in files)
    kept = {str(path.relative_to(house.data)): path.read_bytes() for path in files}
    kept["the log"] = "".join(house.supervisor.log).encode()
    shown = [(name, secret) for name, text in kept.items() for secret in SECRETS.values() if secret.encode() in text]
    assert shown == []


def test_what_was_looked_at_says_something(house: House) -> None:
    """Else the tests above would hold for nothing."""
    supervisor, told, data = house
    assert "no access with *** to *** in production" in told["failing to start"]
    assert "no access with ***" in told["telling why"]
    assert "no access with ***" in "".join(path.read_text() for path in (data / "logs").iterdir())
    assert b"no access with ***" in b"".join(path.read_bytes() for path in data.glob("pool.db*"))
    assert "no access with ***" in told["events"]
    assert "OPENAI_API_KEY" in told["config"]
    assert "pool_up" in told["GET /metrics"]
    assert supervisor.logged("http_ready")
    assert [name for name, text in told.items() if not text.strip()] == []


def test_s16_a_worker_is_given_what_the_settings_let_through_and_nothing_else(house: House) -> None:
    pids = [worker["pid"] for worker in house.supervisor.status()["workers"] if worker["pid"]]
    assert pids
    for pid in pids:
        environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        names = {pair.partition("=")[0] for pair in environment if pair}
        assert {"OPENAI_API_KEY", "DB_PASSWORD", "PATH"} <= names
        assert names <= {
            *PASSED,
            "OPENAI_API_KEY",
            "DB_PASSWORD",
            "POOL_WORKER_ID",
            "POOL_WORKER_PARENT",
            "POOL_WORKER_TITLE",
        }
        assert not {HOOK_ENV, UNRELATED, OPERATOR} & {pair.partition("=")[2] for pair in environment}
    assert "SOME_OTHER_KEY" not in os.environ


def test_s16_what_is_let_through_holds_no_secret_by_default() -> None:
    assert set(RpcSettings().env_passthrough) == PASSED
