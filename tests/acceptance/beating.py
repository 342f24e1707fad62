"""A supervisor whose agents look after things by themselves, and what it tells of that."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from doors.control.client import ControlClient
from tests.acceptance.supervisor import Supervisor, running_supervisor

SOURCE = {"channel": "signal", "chat_type": "dm", "chat_id": "7", "sender_id": "7"}
ALICE = "agent:main:signal:dm:7"
"""The session of a person who writes from there."""

_SETTINGS = """
[router]
dm_scope = "per-channel-peer"

[agents.defaults.heartbeat]
every = "1h"
retry_delay = "100ms"
"""


@contextmanager
def beating_supervisor(data_dir: Path, heartbeat: str = "", more: str = "") -> Iterator[Supervisor]:
    """``heartbeat``: further lines of its table; ``more``: other tables. It prints into the file ``out``."""
    file = data_dir / "pool.toml"
    file.write_text(f"{_SETTINGS}{heartbeat}\n{more}\n")
    into_file = ("sh", "-c", 'exec "$@" >>"$0"', str(data_dir / "out"))
    with running_supervisor(data_dir, "--config", str(file), wrapper=into_file) as supervisor:
        yield supervisor


def workspace(supervisor: Supervisor) -> Path:
    """Where the agent works."""
    place = supervisor.data_dir / "workspaces" / "default"
    place.mkdir(parents=True, exist_ok=True)
    return place


def say(supervisor: Supervisor, text: str) -> str:
    """A message of the person's, run to its end: the answer."""
    with ControlClient(supervisor.socket) as client:
        run = client.call("agent", {"text": text, "source": SOURCE})
        assert run["session"] == ALICE
        outcome = client.call("prompt", {"text": text, "session": ALICE, "run": run["run_id"]}, timeout=25)
    return str(outcome["text"])


def alerts(supervisor: Supervisor) -> list[dict[str, Any]]:
    """Every alert that the event stream has told so far, in all lives."""
    return told_so_far(supervisor, "alert")


def told_so_far(supervisor: Supervisor, kind: str) -> list[dict[str, Any]]:
    """The data of every event of this type, in all lives."""
    found: list[dict[str, Any]] = []
    with ControlClient(supervisor.socket) as client:
        subscription = client.subscribe({"since": 0, "kinds": [kind, "pool_running"]})
        client.call("pause")
        client.call("resume")  # told by an event, which comes after all that was told so far
        for events in subscription.batches():
            found += [msgspec.json.decode(event.data) for event in events if event.type == kind]
            if any(event.type == "pool_running" and event.seq > subscription.head for event in events):
                return found
    raise AssertionError(subscription.reason)


def heartbeat_of(supervisor: Supervisor, agent: str = "main") -> dict[str, Any]:
    """How the agent's heartbeat stands."""
    done = supervisor.pool("heartbeat", "status", "--json")
    assert done.returncode == 0, done.stderr
    (status,) = (status for status in msgspec.json.decode(done.stdout) if status["agent"] == agent)
    return dict(status)


def beat(supervisor: Supervisor, *arguments: str) -> dict[str, Any]:
    """``pool heartbeat run``: what came of it."""
    done = supervisor.pool("heartbeat", "run", "--json", *arguments)
    assert done.stdout, done.stderr
    return dict(msgspec.json.decode(done.stdout))


def beat_long_ago(data_dir: Path, agent: str) -> None:
    """Have the next supervisor find that the agent's last beat was long ago."""
    last = {"agent": agent, "session": f"agent:{agent}:main:main", "reason": "interval", "outcome": "silent", "at": 1.0}
    with closing(sqlite3.connect(data_dir / "pool.db")) as store, store:
        body = msgspec.json.encode({"last": last})
        store.execute("INSERT OR REPLACE INTO documents VALUES ('beat', ?, ?)", (agent, body))
