"""An agent that looks after things by itself, the whole house around it: each thing is told once, where it belongs."""

import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.acceptance.beating import (
    ALICE,
    alerts,
    beat,
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
        turn = supervisor.start("prompt", "-s", ALICE, "PIECES=2000 DELAY=10 go on")
        supervisor.wait_for_turn(ALICE)
        build.end()
        assert next(events)["type"] == "exec_exit"
        assert supervisor.pool("abort", "-s", ALICE).returncode == 0
        turn.communicate(timeout=20)
        next_alert(events)
        assert_told_once(supervisor)


def test_an_agent_whose_heartbeat_is_off_is_told_with_its_next_turn(tmp_path: Path) -> None:
    build = Build(tmp_path)
    off = "[agents.main.heartbeat]\nenabled = false"
    with beating_supervisor(tmp_path, TELL, off) as supervisor, following(supervisor, "exec_exit") as events:
        say(supervisor, build.prompt)
        build.end()
        summary = next(events)["data"]["summary"]
        assert beat(supervisor)["skipped"] == "disabled"
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
    with beating_supervisor(tmp_path, heartbeat) as supervisor:
        with following(supervisor, "exec_exit", moment) as events:
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
