"""An agent that looks after things by itself, the whole house around it: each thing is told once, where it belongs."""

import base64
import hmac
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.acceptance.beating import (
    ALICE,
    alerts,
    beat,
    beat_long_ago,
    beating_supervisor,
    heartbeat_of,
    say,
    told_so_far,
    workspace,
)
from tests.acceptance.builds import Build, following
from tests.acceptance.supervisor import Supervisor

pytestmark = pytest.mark.process

TELL = 'exec_prompt = "ECHO:The build went well."\n'
SLOWLY = 'exec_prompt = "DELAY=1500 ECHO:The build went well."\n'
LOOK = """prompt = 'TOOL:read {"path": "HEARTBEAT.md"} TELL'\n"""

SOON = "attic"
"""An agent that is due within a second of the start where its last beat was long ago: its share of the spread is 0."""


def pending(supervisor: Supervisor, session: str = ALICE) -> list[str]:
    done = supervisor.pool("events", "peek", "-s", session, "--json")
    return [event["text"] for event in msgspec.json.decode(done.stdout)["events"]]


def assert_told_once(supervisor: Supervisor) -> None:
    """The build was told where the session last spoke, and nothing is left that could tell it again."""
    (alert,) = alerts(supervisor)
    facts = {name: alert[name] for name in ("agent", "to", "reason", "text")}
    assert facts == {"agent": "main", "to": "signal:7", "reason": "exec", "text": "The build went well."}
    assert pending(supervisor) == []
    assert heartbeat_of(supervisor)["running"] == []
    assert say(supervisor, "what now?").startswith('You said: "what now?"'), "with no event before it"


def next_alert(events: Any) -> dict[str, Any]:
    return dict(next(event for event in events if event["type"] == "alert"))


# --- a command in the background --------------------------------------------------------------------------------------


def test_the_end_of_a_build_wakes_the_agent_and_is_told_once_where_its_session_last_spoke(tmp_path: Path) -> None:
    build = Build(tmp_path)
    with beating_supervisor(tmp_path, TELL) as supervisor, following(supervisor, "exec_exit", "alert") as events:
        say(supervisor, build.prompt)
        build.end()
        assert next(events)["type"] == "exec_exit"
        alert = next_alert(events)
        assert (alert["session"], alert["channel"]) == (ALICE, "progress")
        assert_told_once(supervisor)
        (report,) = [report for report in told_so_far(supervisor, "heartbeat") if report["state"] == "alert"]
        assert report["to"] == "signal:7"


def test_a_list_with_nothing_on_it_holds_back_no_end_of_a_build(tmp_path: Path) -> None:
    build = Build(tmp_path)
    with beating_supervisor(tmp_path, TELL) as supervisor, following(supervisor, "alert") as events:
        (workspace(supervisor) / "HEARTBEAT.md").write_text("# Nothing\n\n- [ ]\n")
        assert beat(supervisor)["skipped"] == "empty-checklist"
        say(supervisor, build.prompt)
        build.end()
        next_alert(events)
        assert_told_once(supervisor)


def test_a_build_that_ends_while_its_session_is_busy_is_told_after_the_turn(tmp_path: Path) -> None:
    build = Build(tmp_path)
    types = ("exec_exit", "done", "alert")
    with beating_supervisor(tmp_path, TELL) as supervisor, following(supervisor, *types) as events:
        say(supervisor, build.prompt)
        assert next(events)["type"] == "done"
        turn = supervisor.start("prompt", "-s", ALICE, "HANG")
        supervisor.wait_for_turn(ALICE)
        build.end()
        assert next(events)["type"] == "exec_exit"
        assert supervisor.pool("abort", "-s", ALICE).returncode == 0
        turn.communicate(timeout=20)
        next_alert(events)
        assert_told_once(supervisor)


def test_an_agent_whose_heartbeat_is_off_is_told_with_its_next_turn(tmp_path: Path) -> None:
    build = Build(tmp_path)
    off = "[agents.main.heartbeat]\nevery = 0\nwake = false"
    with beating_supervisor(tmp_path, TELL, off) as supervisor, following(supervisor, "exec_exit") as events:
        say(supervisor, build.prompt)
        build.end()
        summary = next(events)["data"]["summary"]
        assert f"[SYSTEM] {summary}" in say(supervisor, "what now?")
        assert (alerts(supervisor), pending(supervisor)) == ([], [])


# --- the supervisor is killed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heartbeat", "moment"),
    [(TELL, "exec_exit"), (SLOWLY, "run:accepted"), (SLOWLY, "run:start"), (TELL, "done"), (TELL, "alert")],
)
def test_a_supervisor_that_is_killed_at_any_moment_tells_of_the_build_once(
    tmp_path: Path, heartbeat: str, moment: str
) -> None:
    """``moment``: the event of the beat at which it is killed."""
    build = Build(tmp_path)
    types = ("exec_exit", moment)
    with beating_supervisor(tmp_path, heartbeat) as supervisor, following(supervisor, *types) as events:
        say(supervisor, build.prompt)
        build.end()
        next(event for event in events if event["type"] == "exec_exit")
        if moment != "exec_exit":
            next(event for event in events if event["type"] == moment)
        supervisor.process.kill()
        supervisor.wait()
    with beating_supervisor(tmp_path, TELL) as supervisor, following(supervisor, "alert") as events:
        next_alert(events)
        assert_told_once(supervisor)


def test_a_supervisor_that_is_asked_to_stop_lets_a_beat_end(tmp_path: Path) -> None:
    build = Build(tmp_path)
    with beating_supervisor(tmp_path, SLOWLY) as supervisor:
        with following(supervisor, "exec_exit", "run:start", "alert") as events:
            say(supervisor, build.prompt)
            build.end()
            next(event for event in events if event["type"] == "exec_exit")
            next(event for event in events if event["type"] == "run:start")
            supervisor.signal(signal.SIGTERM)
            next_alert(events)
        assert supervisor.wait() == 0
    with beating_supervisor(tmp_path, TELL) as supervisor:
        assert_told_once(supervisor)


# --- a heartbeat ------------------------------------------------------------------------------------------------------


def test_an_agent_that_finds_nothing_is_silent_and_one_that_finds_something_tells_it_once(tmp_path: Path) -> None:
    with beating_supervisor(tmp_path, f'{LOOK}target = "stdout"\n') as supervisor:
        supervisor.prompt("agent:main:main", "hello")
        used = supervisor.pool("sessions", "get", "agent:main:main", "--json").stdout
        todo = workspace(supervisor) / "HEARTBEAT.md"
        todo.write_text("HEARTBEAT_OK\n")
        assert beat(supervisor)["outcome"] == "silent"
        now = supervisor.pool("sessions", "get", "agent:main:main", "--json").stdout
        for name in ("updated_at", "last_run", "channel"):
            assert msgspec.json.decode(used)[name] == msgspec.json.decode(now)[name]
        todo.write_text("The disk is full.\n")
        assert beat(supervisor)["outcome"] == "alert"
        assert beat(supervisor)["outcome"] == "repeated"
        (report,) = [report for report in told_so_far(supervisor, "heartbeat") if report["state"] == "alert"]
        assert (report["to"], "The disk is full." in report["text"]) == ("stdout", True)
        status = heartbeat_of(supervisor)
        assert status["counts"] == {"silent": 1, "alert": 1, "repeated": 1}
    printed = (tmp_path / "out").read_text()
    assert printed.count("alert main (agent:main:main:main, manual)\n    The disk is full.") == 1


def test_an_agent_in_its_own_workspace_beats_by_the_clock_while_the_pool_has_room(tmp_path: Path) -> None:
    """No worker has its profile: the beat has one started in a free slot, and the others go on."""
    own = f"""
[pool]
max = 4
min = 2

[agents.{SOON}]
workspace = "{tmp_path / "own"}"

[agents.{SOON}.heartbeat]
prompt = "ECHO:The disk is full."

[agents.main.heartbeat]
every = 0
"""
    with beating_supervisor(tmp_path, more=own) as supervisor:
        supervisor.prompt("one", "hello")
    beat_long_ago(tmp_path, SOON)
    with beating_supervisor(tmp_path, more=own) as supervisor, following(supervisor, "alert") as events:
        alert = next_alert(events)["data"]
        assert (alert["agent"], alert["reason"], alert["text"]) == (SOON, "interval", "The disk is full.")
        assert sorted(worker["agent"] for worker in supervisor.status()["workers"]) == [SOON, "main", "main"]


# --- scheduled jobs ---------------------------------------------------------------------------------------------------

HOOK = """
[delivery.webhooks.ops]
url = "http://127.0.0.1:{port}/T0/alerts"
secret = "0123456789abcdef"
allow_private = true
"""


def test_a_job_of_mode_main_speaks_in_its_session_and_is_told_there(tmp_path: Path) -> None:
    prompt = 'cron_prompt = "ECHO:The backup is done."\n'
    with beating_supervisor(tmp_path, prompt) as supervisor, following(supervisor, "alert") as events:
        say(supervisor, "hello")
        assert supervisor.pool("cron", "add", "--id", "b", "--every", "1d", "-s", ALICE, "back up").returncode == 0
        assert supervisor.pool("cron", "run", "b").returncode == 0
        alert = next_alert(events)
        told = {name: alert["data"][name] for name in ("to", "reason", "text")}
        assert told == {"to": "signal:7", "reason": "cron", "text": "The backup is done."}
        assert "[SYSTEM] [CRON:b] back up" in say(supervisor, "RECALL")
        assert (len(alerts(supervisor)), pending(supervisor)) == (1, [])


def test_what_an_isolated_job_answers_is_posted_with_a_signature_and_kept_over_a_restart(tmp_path: Path) -> None:
    add = ("cron", "add", "--id", "c", "--at", "1d", "--keep", "--isolated", "--to", "webhook:ops", "ECHO:All is red.")
    with hook(503) as (port, asked):
        with beating_supervisor(tmp_path, more=HOOK.format(port=port)) as supervisor:
            assert supervisor.pool(*add).returncode == 0
            assert supervisor.pool("cron", "run", "c").returncode == 0
            first = asked.get(timeout=20)
            supervisor.process.kill()
            supervisor.wait()
        with beating_supervisor(tmp_path, more=HOOK.format(port=port)) as supervisor:
            second = asked.get(timeout=20)
            job = msgspec.json.decode(supervisor.pool("cron", "get", "c", "--json").stdout)
            assert [(run["status"], run["text"]) for run in job["history"]] == [("ok", "All is red.")]
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    for request in (first, second):
        assert msgspec.json.decode(request.body)["text"] == "All is red."
        signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
        signature = base64.b64encode(hmac.digest(b"0123456789abcdef", signed, "sha256")).decode()
        assert request.headers["webhook-signature"] == f"v1,{signature}"
        assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 60


def test_an_isolated_job_begins_a_new_conversation_and_removes_its_last_one_alone(tmp_path: Path) -> None:
    add = ("cron", "add", "--id", "c", "--every", "1d", "--isolated", "--agent", "main", "RECALL")
    with beating_supervisor(tmp_path) as supervisor, following(supervisor, "alert") as events:
        supervisor.prompt("cron:c", "the words of a person")
        assert supervisor.pool(*add).returncode == 0
        kept = set((tmp_path / "sessions").rglob("*.jsonl"))
        found = []
        for _ in range(2):
            assert "is begun" in supervisor.pool("cron", "run", "c").stdout
            assert "the words of a person" not in next_alert(events)["data"]["text"]
            found.append(set((tmp_path / "sessions").rglob("*.jsonl")) - kept)
        assert [len(files) for files in (kept, *found)] == [1, 1, 1]
        assert found[0] != found[1]
        assert kept < set((tmp_path / "sessions").rglob("*.jsonl"))


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
