"""A command in the background, the whole house around it: its end reaches its conversation, once, whatever happens."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

from tests.acceptance.builds import Build, pending
from tests.acceptance.supervisor import Supervisor, running_supervisor, tool

pytestmark = pytest.mark.process

NO_WAKES = '[rpc]\nabort_grace = "20s"\n[agents.defaults.heartbeat]\nwake = false\n'
"""Events are told with the next turn, so that the test decides when."""
LIST = 'TOOL:process {"action": "list"} TELL'


def begin(supervisor: Supervisor, build: Build, session: str = "alice") -> int:
    """The turn that starts the build; it is over when this returns the worker's pid."""
    supervisor.prompt(session, build.prompt)
    assert background(supervisor)[session] == 1
    return int(supervisor.worker_of(session)["pid"])


def background(supervisor: Supervisor) -> dict[str, int]:
    workers = supervisor.status()["workers"]
    return {worker["session"]: worker["background"] for worker in workers if worker["background"]}


def told(supervisor: Supervisor, session: str = "alice") -> list[str]:
    """The lines that the agent was told in earlier turns, as it remembers them."""
    texts = msgspec.json.decode(supervisor.prompt(session, "RECALL").removeprefix("Earlier you said: "))
    return [line for text in texts for line in text.splitlines() if line.startswith("[SYSTEM]")]


def test_the_end_of_a_build_is_told_with_the_next_turn_of_its_session_and_with_no_other(tmp_path: Path) -> None:
    first, second, third = (Build(tmp_path, f"fifo{number}") for number in range(3))
    with running_supervisor(tmp_path, settings=NO_WAKES) as supervisor, supervisor.following("exec_exit") as events:
        begin(supervisor, first)
        supervisor.prompt("bob", "hello")
        first.end()
        event = next(events)
        assert (event["session"], event["channel"], event["data"]["exit_code"]) == ("alice", "monitor", 0)
        summary = event["data"]["summary"]
        assert summary.startswith("Exec completed (")
        assert summary.endswith(":: built well")
        assert (pending(supervisor, "alice"), pending(supervisor, "bob")) == ([summary], [])
        assert f"[SYSTEM] {summary}" in supervisor.prompt("alice", "what now?")
        assert pending(supervisor, "alice") == []
        assert "SYSTEM" not in supervisor.prompt("alice", "ECHO:and now?")
        assert (told(supervisor), told(supervisor, "bob"), background(supervisor)) == ([f"[SYSTEM] {summary}"], [], {})
        # one that ends within a turn is reported after it, and an abort of that turn spares it
        begin(supervisor, second)
        run = supervisor.begin("alice", "HANG")
        supervisor.wait_for_turn("alice")
        second.end()
        assert next(events)["session"] == "alice"
        assert supervisor.pool("abort", "-s", "alice").returncode == 0
        assert supervisor.outcome(run)["status"] == "error"
        supervisor.prompt("alice", "what now?")
        assert len(told(supervisor)) == 2
        # a new conversation ends none in silence
        begin(supervisor, third)
        assert supervisor.prompt("alice", "/new").startswith("Nothing is changed: ")
        refused = supervisor.pool("sessions", "reset", "alice")
        assert (refused.returncode, "--force" in refused.stderr) == (2, True)
        assert background(supervisor) == {"alice": 1}
        done = supervisor.pool("sessions", "reset", "alice", "--force")
        assert done.stdout.startswith("alice is reset; ended with it: ")
        assert pending(supervisor, "alice") == []
        assert "(turn 1)" in supervisor.prompt("alice", "hello")


def test_a_build_that_dies_with_its_worker_or_its_supervisor_is_told_of_and_an_end_is_kept(tmp_path: Path) -> None:
    ended, killed, lost = (Build(tmp_path, f"fifo{number}") for number in range(3))
    with running_supervisor(tmp_path, "--max", "3", settings=NO_WAKES) as supervisor:
        with supervisor.following("exec_lost", "exec_exit") as events:
            os.kill(begin(supervisor, killed, "carol"), signal.SIGKILL)
            assert next(events)["data"]["commands"] == 1
            assert not killed.is_alive
            (text,) = pending(supervisor, "carol")
            assert ") :: ended with what it ran on: worker " in text
            assert "  lost with its worker  pid " in supervisor.prompt("carol", LIST)
            begin(supervisor, ended)
            ended.end()
            summary = next(events)["data"]["summary"]
            begin(supervisor, lost, "bob")
        supervisor.kill()
    with running_supervisor(tmp_path, settings=NO_WAKES) as supervisor:
        assert not lost.is_alive
        assert pending(supervisor, "alice") == [summary]
        (text,) = pending(supervisor, "bob")
        name, _, rest = supervisor.prompt("bob", LIST).partition("  ")
        # the worker may see the end of its input, and end the build, in the moment before it is killed itself
        assert rest.startswith(("lost with its worker  pid ", "signal SIGTERM  pid "))
        why = "ended with what it ran on: the supervisor was killed, and its workers with it"
        assert text == f"Exec failed ({name}) :: {why}"
        supervisor.prompt("alice", "what now?")
        supervisor.kill()
    with running_supervisor(tmp_path, settings=NO_WAKES) as supervisor:
        assert pending(supervisor, "alice") == []
        assert told(supervisor, "alice") == [f"[SYSTEM] {summary}"]
        assert told(supervisor, "bob") == [f"[SYSTEM] {text}"]


def test_the_output_of_an_ended_background_command_is_read_on_another_worker(tmp_path: Path) -> None:
    build = Build(tmp_path)
    other = '[agents.main]\n[agents.other]\npermission_mode = "readonly"\n'  # no worker serves both
    with running_supervisor(tmp_path, "--max", "2", settings=NO_WAKES + other) as supervisor:
        first = begin(supervisor, build)
        supervisor.begin("dave", "HANG")
        supervisor.wait_for_turn("dave")
        waiter = supervisor.begin("bob", "hello", agent="other")
        build.end()  # which frees the worker, and the waiter has it stopped at once
        assert supervisor.outcome(waiter)["text"].startswith("You said")
        name, _, rest = supervisor.prompt("alice", LIST).partition("  ")
        assert rest.startswith("code 0  pid ")
        assert first not in [worker["pid"] for worker in supervisor.status()["workers"]]
        for action, shown in (("log", "built well\n[lines 1 to 1 of 1]"), ("poll", "built well\n\n(Session ")):
            asked = msgspec.json.encode({"action": action, "session_id": name}).decode()
            assert supervisor.prompt("alice", f"TOOL:process {asked} TELL").startswith(shown)
        supervisor.call("abort", session="dave")


def test_a_pool_of_two_with_two_endless_background_commands_still_serves_a_third_session(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, "--max", "2", settings=NO_WAKES) as supervisor:
        for session in ("alice", "bob"):
            endless = f"{tool('echo begun; sleep 600', yield_ms=200, timeout=0)} TELL"
            assert "still runs in the background" in supervisor.prompt(session, endless)
        assert background(supervisor) == {"alice": 1, "bob": 1}
        assert supervisor.prompt("carol", "hello").startswith("You said")
        assert background(supervisor) == {"bob": 1}
        (text,) = pending(supervisor, "alice")
        assert text.endswith("(only background commands kept it, and another request needed a worker)")
        assert pending(supervisor, "bob") == []
        listed = supervisor.prompt("alice", LIST)
        assert "  signal SIGTERM  pid " in listed
        log = msgspec.json.encode({"action": "log", "session_id": listed.partition("  ")[0]}).decode()
        assert supervisor.prompt("alice", f"TOOL:process {log} TELL").startswith("begun\n")


def test_a_person_lists_reads_feeds_and_kills_the_commands_of_all_sessions(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, settings=NO_WAKES) as supervisor, supervisor.following("exec_exit") as events:
        reader = "echo ready; while read word; do echo got $word; done"
        for session in ("alice", "bob"):
            supervisor.prompt(session, tool(reader, background=True, pty=True))
        listed = msgspec.json.decode(supervisor.pool("processes", "--json").stdout)
        assert sorted((each["session"], each["state"]) for each in listed) == [("alice", "running"), ("bob", "running")]
        alices, bobs = (next(each["id"] for each in listed if each["session"] == name) for name in ("alice", "bob"))
        assert "while read word" in supervisor.pool("processes").stdout
        wrote = supervisor.pool("processes", "write", "-s", "alice", alices, "milk")
        assert (wrote.returncode, wrote.stdout) == (0, f"wrote to {alices}\n")
        ended = supervisor.pool("processes", "write", "-s", "alice", alices, "--key", "C-d")
        assert ended.returncode == 0, ended.stderr
        assert next(events)["data"]["exit_code"] == 0
        polled = supervisor.pool("processes", "poll", "-s", "alice", alices).stdout
        assert ("got milk" in polled, f"({alices} has ended" in polled) == (True, True)
        assert "got milk" in supervisor.pool("processes", "log", "-s", "alice", alices).stdout, "it stays in the log"
        late = supervisor.pool("processes", "write", "-s", "alice", alices, "more")
        assert (late.returncode, late.stdout, "session" in late.stderr) == (1, "", False), late.stderr
        assert supervisor.pool("processes", "list", "-q").stdout == f"{bobs}\n", "of all sessions those that run"
        killed = supervisor.pool("process", "kill", bobs)
        assert (killed.returncode, killed.stdout) == (0, f"killed {bobs}\n")
        gone = supervisor.pool("processes", "kill", bobs)
        assert (gone.returncode, "no session has a running command" in gone.stderr) == (2, True)
        assert supervisor.pool("processes", "rm", "-s", "bob", bobs).returncode == 0
        assert supervisor.pool("processes", "list", "-s", "bob", "--json").stdout == "[]\n"
