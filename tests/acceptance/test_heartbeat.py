"""An agent that looks after things by itself, the whole house around it: each thing is told once, where it belongs."""

import base64
import hmac
import queue
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.acceptance.builds import Build, pending
from tests.acceptance.supervisor import Supervisor, running_supervisor

pytestmark = pytest.mark.process

SOURCE = {"channel": "signal", "chat_type": "dm", "chat_id": "7", "sender_id": "7"}
ALICE = "agent:main:signal:dm:7"
"""The session of a person who writes from there."""
SETTINGS = """
[router]
dm_scope = "per-channel-peer"
[agents.defaults.heartbeat]
every = "1h"
retry_delay = "100ms"
"""
TELL = 'exec_prompt = "ECHO:The build went well."\n'
SLOWLY = 'exec_prompt = "DELAY=1000 ECHO:The build went well."\n'
LOOK = """prompt = 'TOOL:read {"path": "HEARTBEAT.md"} TELL'\n"""


@contextmanager
def beating(place: Path, heartbeat: str = "", more: str = "") -> Iterator[Supervisor]:
    """``heartbeat``: further lines of its table; ``more``: other tables. It prints into the file ``out``."""
    into_file = ("sh", "-c", 'exec "$@" >>"$0"', str(place / "out"))
    with running_supervisor(place, settings=f"{SETTINGS}{heartbeat}\n{more}\n", wrapper=into_file) as supervisor:
        yield supervisor


def say(supervisor: Supervisor, text: str) -> str:
    """A message of the person's, run to its end: the answer."""
    run = supervisor.call("agent", text=text, source=SOURCE)
    assert run["session"] == ALICE
    return str(supervisor.outcome(run["run_id"])["text"])


def heartbeat_of(supervisor: Supervisor, agent: str = "main") -> dict[str, Any]:
    """How the agent's heartbeat stands."""
    document = msgspec.json.decode(supervisor.pool("heartbeats", "list", "--json").stdout)
    return dict(next(status for status in document if status["agent"] == agent))


def beat(supervisor: Supervisor) -> str:
    """``pool heartbeats run``: what came of it."""
    return str(msgspec.json.decode(supervisor.pool("heartbeats", "run", "--json").stdout)["outcome"])


def assert_told_once(supervisor: Supervisor, builds: int) -> None:
    """Each build was told where the session last spoke, and nothing is left that could tell one again."""
    alerts = [event["data"] for event in supervisor.told("alert")]
    told = [(alert["agent"], alert["to"], alert["reason"], alert["text"]) for alert in alerts]
    assert told == [("main", "signal:7", "exec", "The build went well.")] * builds
    assert pending(supervisor, ALICE) == []
    assert heartbeat_of(supervisor)["running"] == []
    assert say(supervisor, "what now?").startswith('You said: "what now?"'), "with no event before it"


def wait_for_alerts(supervisor: Supervisor, count: int) -> None:
    with supervisor.following("alert") as events:
        for _ in range(count):
            next(events)


# --- a command in the background --------------------------------------------------------------------------------------


def test_the_end_of_a_build_wakes_the_agent_and_is_told_once_where_its_session_last_spoke(tmp_path: Path) -> None:
    first, second = Build(tmp_path, "one"), Build(tmp_path, "two")
    with beating(tmp_path, TELL) as supervisor, supervisor.following("exec_exit", "alert") as events:
        say(supervisor, first.prompt)
        first.end()
        assert next(events)["type"] == "exec_exit"
        alert = next(events)
        assert (alert["type"], alert["session"], alert["channel"]) == ("alert", ALICE, "progress")
        assert_told_once(supervisor, 1)
        (report,) = [each["data"] for each in supervisor.told("heartbeat") if each["data"]["state"] == "alert"]
        assert report["to"] == "signal:7"
        # while its session is busy: after the turn
        say(supervisor, second.prompt)
        supervisor.begin(ALICE, "HANG")
        supervisor.wait_for_turn(ALICE)
        second.end()
        assert next(events)["type"] == "exec_exit"
        supervisor.call("abort", session=ALICE)
        assert next(events)["type"] == "alert"
        assert_told_once(supervisor, 2)


MOMENTS = [("run:accepted", SLOWLY), ("run:start", SLOWLY), ("done", TELL)]
"""Events of a beat: its run is accepted, in its turn, ended. A kill before each durable step is tried in memory."""


def test_a_supervisor_that_is_killed_or_stopped_during_a_beat_tells_of_each_build_once(tmp_path: Path) -> None:
    for number, (moment, how) in enumerate(MOMENTS):
        build = Build(tmp_path, f"fifo{number}")
        with beating(tmp_path, how) as supervisor:
            wait_for_alerts(supervisor, number)
            say(supervisor, build.prompt)
            with supervisor.following("exec_exit", moment, since=None) as events:
                build.end()
                assert next(events)["type"] == "exec_exit"
                while next(events)["type"] != moment:
                    continue
                supervisor.kill()
    with beating(tmp_path, SLOWLY) as supervisor:
        wait_for_alerts(supervisor, len(MOMENTS))
        build = Build(tmp_path, "last")
        say(supervisor, build.prompt)
        build.end()
        supervisor.wait_for_turn(ALICE)
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0
    with beating(tmp_path, TELL) as supervisor:
        assert_told_once(supervisor, len(MOMENTS) + 1)


# --- a heartbeat ------------------------------------------------------------------------------------------------------

SOON = "attic"
"""An agent that is due within a second of the start where its last beat was long ago: its share of the spread is 0."""


def test_an_agent_that_finds_nothing_is_silent_and_one_that_finds_something_tells_it_once(tmp_path: Path) -> None:
    with beating(tmp_path, f'{LOOK}target = "stdout"\n') as supervisor:
        supervisor.prompt("agent:main:main", "hello")
        before = supervisor.call("sessions.get", session="agent:main:main")
        todo = supervisor.data_dir / "workspaces" / "default" / "HEARTBEAT.md"
        todo.write_text("HEARTBEAT_OK\n")
        assert beat(supervisor) == "silent"
        now = supervisor.call("sessions.get", session="agent:main:main")
        assert [now[name] for name in ("updated_at", "last_run", "channel")] == [
            before[name] for name in ("updated_at", "last_run", "channel")
        ]
        todo.write_text("The disk is full.\n")
        assert [beat(supervisor), beat(supervisor)] == ["alert", "repeated"]
        (report,) = [each["data"] for each in supervisor.told("heartbeat") if each["data"]["state"] == "alert"]
        assert (report["to"], "The disk is full." in report["text"]) == ("stdout", True)
        assert heartbeat_of(supervisor)["counts"] == {"silent": 1, "alert": 1, "repeated": 1}
    printed = (tmp_path / "out").read_text()
    assert printed.count("alert main (agent:main:main:main, manual)\n    The disk is full.") == 1
    # one in its own workspace beats by the clock: a worker of its own is started while the pool has room
    last = {"agent": SOON, "session": f"agent:{SOON}:main:main", "reason": "interval", "outcome": "silent", "at": 1.0}
    with closing(sqlite3.connect(tmp_path / "pool.db")) as store, store:
        body = msgspec.json.encode({"last": last})
        store.execute("INSERT OR REPLACE INTO documents VALUES ('beat', ?, ?)", (SOON, body))
    own = f"""
[pool]
max = 4
min = 2
[agents.{SOON}]
workspace = "{tmp_path / "own"}"
[agents.{SOON}.heartbeat]
prompt = "ECHO:The attic is full."
[agents.main.heartbeat]
every = 0
"""
    with beating(tmp_path, more=own) as supervisor, supervisor.following("alert") as events:
        alert = next(event["data"] for event in events if event["data"]["agent"] == SOON)
        assert (alert["reason"], alert["text"]) == ("interval", "The attic is full.")
        assert sorted(worker["agent"] for worker in supervisor.status()["workers"]) == [SOON, "main", "main"]


# --- scheduled jobs ---------------------------------------------------------------------------------------------------


def test_what_a_scheduled_job_says_is_told_in_its_session_or_posted_with_a_signature(tmp_path: Path) -> None:
    """The post is kept over a kill; an isolated job begins a new conversation and removes its last one alone."""
    with hook(503) as (port, asked):
        url = f"http://127.0.0.1:{port}/T0/alerts"
        hooks = f'[delivery.webhooks.ops]\nurl = "{url}"\nsecret = "0123456789abcdef"\nallow_private = true\n'
        prompt = 'cron_prompt = "ECHO:The backup is done."\n'
        with beating(tmp_path, prompt, hooks) as supervisor, supervisor.following("alert") as events:

            def run(job: str, *how: str) -> None:
                assert supervisor.pool("cron", "add", "--id", job, *how).returncode == 0
                assert supervisor.pool("cron", "run", job).returncode == 0

            say(supervisor, "hello")
            run("b", "--every", "1d", "-s", ALICE, "back up")
            alert = next(events)["data"]
            told = {name: alert[name] for name in ("to", "reason", "text")}
            assert told == {"to": "signal:7", "reason": "cron", "text": "The backup is done."}
            assert "[SYSTEM] [CRON:b] back up" in say(supervisor, "RECALL")
            assert (len(supervisor.told("alert")), pending(supervisor, ALICE)) == (1, [])

            supervisor.prompt("cron:c", "the words of a person")
            kept = set((tmp_path / "sessions").rglob("*.jsonl"))
            run("c", "--every", "1d", "--isolated", "--agent", "main", "RECALL")
            found = []
            for number in range(2):
                assert "the words of a person" not in next(events)["data"]["text"]
                found.append(set((tmp_path / "sessions").rglob("*.jsonl")) - kept)
                if number == 0:
                    assert "is begun" in supervisor.pool("cron", "run", "c").stdout
            assert [len(files) for files in found] == [1, 1]
            assert found[0] != found[1]
            assert kept < set((tmp_path / "sessions").rglob("*.jsonl"))

            run("d", "--at", "1d", "--keep", "--isolated", "--to", "webhook:ops", "ECHO:All is red.")
            first = asked.get(timeout=60)
            supervisor.kill()
        with beating(tmp_path, more=hooks) as supervisor:
            second = asked.get(timeout=60)
            job = msgspec.json.decode(supervisor.pool("cron", "show", "d", "--json").stdout)
            assert [(run["status"], run["text"]) for run in job["history"]] == [("ok", "All is red.")]
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    for request in (first, second):
        assert msgspec.json.decode(request.body)["text"] == "All is red."
        signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
        signature = base64.b64encode(hmac.digest(b"0123456789abcdef", signed, "sha256")).decode()
        assert request.headers["webhook-signature"] == f"v1,{signature}"
        assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 300


class Asked(NamedTuple):
    """A request that came."""

    headers: dict[str, str]
    body: bytes


@contextmanager
def hook(*answers: int) -> Iterator[tuple[int, "queue.Queue[Asked]"]]:
    """Somebody's own server on this machine: it answers with these, then with 204."""
    asked: queue.Queue[Asked] = queue.Queue()
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(left.pop(0) if left else 204)
            self.end_headers()
            asked.put(Asked({name.lower(): value for name, value in self.headers.items()}, body))

        def log_message(self, *_args: object) -> None:
            """Its own business."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], asked
        finally:
            server.shutdown()
            thread.join()
