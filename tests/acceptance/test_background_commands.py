"""A command in the background, the whole house around it: its end reaches its conversation, once, whatever happens."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.acceptance.builds import Build, following
from tests.acceptance.supervisor import Supervisor, running_supervisor

pytestmark = pytest.mark.process

NO_WAKES = "[agents.defaults.heartbeat]\nwake = false\n"
"""Events are told with the next turn, so that the test decides when."""


@contextmanager
def untroubled_supervisor(data_dir: Path, *flags: str) -> Iterator[Supervisor]:
    """A supervisor whose agents are woken by nothing."""
    settings = data_dir / "pool.toml"
    settings.write_text(NO_WAKES)
    with running_supervisor(data_dir, "--config", str(settings), *flags) as supervisor:
        yield supervisor


def begin(supervisor: Supervisor, build: Build, session: str = "alice") -> None:
    """The turn that starts the build; it is over when this returns."""
    supervisor.prompt(session, build.prompt)
    assert background(supervisor) == {session: 1}


def background(supervisor: Supervisor) -> dict[str, int]:
    workers = supervisor.status()["workers"]
    return {worker["session"]: worker["background"] for worker in workers if worker["background"]}


def pending(supervisor: Supervisor, session: str = "alice") -> list[str]:
    done = supervisor.pool("events", "peek", "-s", session, "--json")
    assert done.returncode == 0, done.stderr
    return [event["text"] for event in msgspec.json.decode(done.stdout)["events"]]


def told(supervisor: Supervisor, session: str = "alice") -> list[str]:
    """The lines that the agent was told in earlier turns, as it remembers them."""
    texts = msgspec.json.decode(supervisor.prompt(session, "RECALL").removeprefix("Earlier you said: "))
    return [line for text in texts for line in text.splitlines() if line.startswith("[SYSTEM]")]


def test_the_end_of_a_build_is_told_at_once_and_with_the_next_turn_and_with_no_other(tmp_path: Path) -> None:
    build = Build(tmp_path)
    with untroubled_supervisor(tmp_path, "--max", "2") as supervisor:
        with following(supervisor, "exec_exit") as events:
            begin(supervisor, build)
            supervisor.prompt("bob", "hello")
            build.end()
            event = next(events)
        assert (event["session"], event["channel"], event["data"]["exit_code"]) == ("alice", "monitor", 0)
        summary = event["data"]["summary"]
        assert summary.startswith("Exec completed (")
        assert summary.endswith(":: built well")
        assert (pending(supervisor), pending(supervisor, "bob")) == ([summary], [])
        assert f"[SYSTEM] {summary}" in supervisor.prompt("alice", "what now?")
        assert pending(supervisor) == []
        assert "SYSTEM" not in supervisor.prompt("alice", "ECHO:and now?")
        assert told(supervisor) == [f"[SYSTEM] {summary}"]
        assert told(supervisor, "bob") == []
        assert background(supervisor) == {}


def test_an_aborted_turn_spares_the_build(tmp_path: Path) -> None:
    build = Build(tmp_path)
    settings = tmp_path / "pool.toml"
    settings.write_text(f'{NO_WAKES}[rpc]\nabort_grace = "20s"\n')
    with running_supervisor(tmp_path, "--config", str(settings)) as supervisor:
        begin(supervisor, build)
        turn = supervisor.start("prompt", "-s", "alice", "HANG")
        supervisor.wait_for_turn("alice")
        assert supervisor.pool("abort", "-s", "alice").returncode == 0
        turn.communicate(timeout=20)
        assert background(supervisor) == {"alice": 1}
        with following(supervisor, "exec_exit") as events:
            build.end()
            assert next(events)["session"] == "alice"
        supervisor.prompt("alice", "what now?")
        assert len(told(supervisor)) == 1


def test_a_build_that_ends_within_a_turn_is_told_once_and_for_the_turn_after_it(tmp_path: Path) -> None:
    build = Build(tmp_path)
    with untroubled_supervisor(tmp_path) as supervisor, following(supervisor, "exec_exit", "done") as events:
        begin(supervisor, build)
        assert next(events)["type"] == "done"
        turn = supervisor.start("prompt", "-s", "alice", "HANG")
        supervisor.wait_for_turn("alice")
        build.end()
        assert next(events)["type"] == "exec_exit"
        assert supervisor.pool("abort", "-s", "alice").returncode == 0
        turn.communicate(timeout=20)
        supervisor.prompt("alice", "what now?")
        assert [next(events)["type"] for _ in range(2)] == ["done", "done"]
        assert len(told(supervisor)) == 1


def test_a_supervisor_that_is_killed_before_the_next_turn_has_kept_the_event(tmp_path: Path) -> None:
    build = Build(tmp_path)
    with untroubled_supervisor(tmp_path) as supervisor:
        with following(supervisor, "exec_exit") as events:
            begin(supervisor, build)
            build.end()
            summary = next(events)["data"]["summary"]
        supervisor.process.kill()
        supervisor.wait()
    with untroubled_supervisor(tmp_path) as supervisor:
        assert pending(supervisor) == [summary]
        supervisor.prompt("alice", "what now?")
        supervisor.process.kill()
        supervisor.wait()
    with untroubled_supervisor(tmp_path) as supervisor:
        assert pending(supervisor) == []
        assert told(supervisor) == [f"[SYSTEM] {summary}"]


def test_a_worker_that_is_killed_tells_that_the_build_died_with_it(tmp_path: Path) -> None:
    build = Build(tmp_path)
    with untroubled_supervisor(tmp_path) as supervisor:
        begin(supervisor, build)
        (worker,) = [worker for worker in supervisor.status()["workers"] if worker["background"]]
        with following(supervisor, "exec_lost") as events:
            os.kill(worker["pid"], signal.SIGKILL)
            assert next(events)["data"]["commands"] == 1
        assert not build.is_alive
        (text,) = pending(supervisor)
        assert ") :: ended with what it ran on: worker " in text
        supervisor.prompt("alice", "what now?")
        assert told(supervisor) == [f"[SYSTEM] {text}"]


def test_what_is_injected_from_a_terminal_is_told(tmp_path: Path) -> None:
    with untroubled_supervisor(tmp_path) as supervisor:
        done = supervisor.pool("events", "inject", "-s", "alice", "the bell rang")
        assert (done.returncode, done.stdout) == (0, "the event is queued for alice\n")
        assert "the bell rang" in supervisor.pool("events", "peek", "-s", "alice").stdout
        supervisor.prompt("alice", "hello")
        assert told(supervisor) == ["[SYSTEM] the bell rang"]


def test_the_output_of_an_ended_background_command_is_read_on_another_worker(tmp_path: Path) -> None:
    build = Build(tmp_path)
    settings = tmp_path / "pool.toml"
    other = '[agents.main]\n[agents.other]\npermission_mode = "readonly"\n'  # no worker serves both
    settings.write_text(NO_WAKES + other)
    with running_supervisor(tmp_path, "--max", "2", "--config", str(settings)) as supervisor:
        begin(supervisor, build)
        (first,) = [worker for worker in supervisor.status()["workers"] if worker["background"]]
        busy = supervisor.start("prompt", "-s", "dave", "HANG")
        supervisor.wait_for_turn("dave")
        waiter = supervisor.start("prompt", "-s", "bob", "-a", "other", "hello")
        build.end()  # which frees the worker, and the waiter has it stopped at once
        assert waiter.communicate(timeout=20)[0].startswith("You said")
        listed = supervisor.prompt("alice", 'TOOL:process {"action": "list"} TELL')
        name, _, rest = listed.partition("  ")
        assert rest.startswith("code 0  pid ")
        assert first["pid"] not in [worker["pid"] for worker in supervisor.status()["workers"]]
        for action, shown in (("log", "built well\n[lines 1 to 1 of 1]"), ("poll", "built well\n\n(Session ")):
            asked = msgspec.json.encode({"action": action, "session_id": name}).decode()
            assert supervisor.prompt("alice", f"TOOL:process {asked} TELL").startswith(shown)
        assert supervisor.pool("abort", "-s", "dave").returncode == 0
        busy.communicate(timeout=20)


def test_a_command_that_died_with_its_worker_is_listed_as_lost(tmp_path: Path) -> None:
    build = Build(tmp_path)
    with untroubled_supervisor(tmp_path) as supervisor:
        begin(supervisor, build)
        (worker,) = [worker for worker in supervisor.status()["workers"] if worker["background"]]
        os.kill(worker["pid"], signal.SIGKILL)
        supervisor.wait_for_loss(worker["pid"])
        assert "  lost with its worker  pid " in supervisor.prompt("alice", 'TOOL:process {"action": "list"} TELL')


ENDLESS = 'TOOL:exec {"command": "echo begun; sleep 600", "yield_ms": 200, "timeout": 0} TELL'


def test_a_pool_of_two_with_two_endless_background_commands_still_serves_a_third_session(tmp_path: Path) -> None:
    with untroubled_supervisor(tmp_path, "--max", "2") as supervisor:
        for session in ("alice", "bob"):
            assert "still runs in the background" in supervisor.prompt(session, ENDLESS)
        assert background(supervisor) == {"alice": 1, "bob": 1}
        assert supervisor.prompt("carol", "hello").startswith("You said")
        assert background(supervisor) == {"bob": 1}
        (text,) = pending(supervisor)
        assert text.endswith("(only background commands kept it, and another request needed a worker)")
        assert pending(supervisor, "bob") == []
        listed = supervisor.prompt("alice", 'TOOL:process {"action": "list"} TELL')
        assert "  signal SIGTERM  pid " in listed
        name = listed.partition("  ")[0]
        log = msgspec.json.encode({"action": "log", "session_id": name}).decode()
        assert supervisor.prompt("alice", f"TOOL:process {log} TELL").startswith("begun\n")


def test_a_session_is_told_that_its_build_died_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    build = Build(tmp_path)
    with untroubled_supervisor(tmp_path) as supervisor:
        begin(supervisor, build)
        supervisor.prompt("bob", "hello")
        supervisor.process.kill()
        supervisor.wait()
    with untroubled_supervisor(tmp_path) as supervisor:
        assert not build.is_alive
        (text,) = pending(supervisor)
        listed = supervisor.prompt("alice", 'TOOL:process {"action": "list"} TELL')
        name, _, rest = listed.partition("  ")
        assert rest.startswith("lost with its worker  pid ")
        assert text == (
            f"Exec failed ({name}) :: ended with what it ran on: the supervisor was killed, and its workers with it"
        )
        supervisor.prompt("alice", "what now?")
        assert told(supervisor) == [f"[SYSTEM] {text}"]
        assert told(supervisor, "bob") == []


def test_a_new_conversation_ends_no_build_in_silence(tmp_path: Path) -> None:
    build = Build(tmp_path)
    with untroubled_supervisor(tmp_path) as supervisor:
        begin(supervisor, build)
        answer = supervisor.prompt("alice", "/new")
        assert answer.startswith("Nothing is changed: ")
        refused = supervisor.pool("sessions", "reset", "alice")
        assert (refused.returncode, "--force" in refused.stderr) == (2, True)
        assert background(supervisor) == {"alice": 1}
        done = supervisor.pool("sessions", "reset", "alice", "--force")
        assert done.returncode == 0
        assert done.stdout.startswith("alice is reset; ended with it: ")
        assert pending(supervisor) == []
        assert "(turn 1)" in supervisor.prompt("alice", "hello")
