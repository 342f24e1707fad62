"""A real agent asks before it acts, and people answer from other terminals: approve, deny, too late, never."""

import getpass
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.acceptance.supervisor import Supervisor, running_supervisor

pytestmark = pytest.mark.process

WRITE = 'TOOL:exec {"command": "echo once >> made; echo did-it"} TELL'


@contextmanager
def asking_supervisor(data_dir: Path, *more: str) -> Iterator[Supervisor]:
    """Its agent asks about every call and works in ``data_dir``."""
    settings = data_dir / "pool.toml"
    agent = [f'workspace = "{data_dir}"', 'permission_mode = "approval"', *more]
    settings.write_text("\n".join(["[agents.main]", *agent, ""]))
    with running_supervisor(data_dir / "data", "--config", str(settings)) as supervisor:
        yield supervisor


def wait_for_event(supervisor: Supervisor, session: str, kind: str) -> dict[str, Any]:
    """The data of the session's first event of that kind, once there is one."""
    follower = supervisor.start("events", "follow", "--json", "-s", session, "--since", "0")
    assert follower.stdout is not None
    for line in follower.stdout:
        event = msgspec.json.decode(line)
        if event["type"] == kind:
            follower.terminate()
            follower.communicate()
            return dict(event["data"])
    raise AssertionError(f"there was no {kind}")


def wait_for_question(supervisor: Supervisor, session: str) -> str:
    """The id of the call that the session's turn asks about, once it does."""
    return str(wait_for_event(supervisor, session, "permission_required")["call"]["id"])


def said(command: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = command.communicate(timeout=20)
    return command.returncode, out, err


def command_shown(listing: str) -> list[str]:
    """What ``listing`` tells people to type, without the name of the program."""
    [line] = [line for line in listing.splitlines() if "pool approve" in line]
    return shlex.split(line)[1:]


def test_an_approved_call_runs_once_whichever_listing_told_how_to_approve_it(tmp_path: Path) -> None:
    with asking_supervisor(tmp_path) as supervisor:
        turn = supervisor.start("prompt", "-s", "alice", WRITE)
        call = wait_for_question(supervisor, "alice")
        place = ("--socket", str(supervisor.socket))
        listings = [("status", *place), ("sessions", *place), ("sessions", "get", "alice", *place)]
        shown = [command_shown(supervisor.pool(*listing).stdout) for listing in listings]
        assert shown == [["approve", *place, "-s", "alice", call]] * len(listings)
        assert supervisor.status()["gateway"]["permissions"][0]["call"]["state"] == "AWAITING_APPROVAL"
        assert "PAUSED" in supervisor.pool("sessions").stdout
        unknown = supervisor.pool("approve", "nonsense")
        assert unknown.returncode == 2
        assert f"these do: {call} (exec, session alice)" in unknown.stderr
        assert not (tmp_path / "made").exists()
        assert supervisor.pool(*shown[0]).returncode == 0
        assert said(turn)[:2] == (0, "did-it\n")
        for word in ("approve", "deny"):
            again = supervisor.pool(word, call)
            assert again.returncode == 2
            assert f"was decided already (allow by {getpass.getuser()})" in again.stderr
        assert (tmp_path / "made").read_text() == "once\n"
        assert supervisor.status()["gateway"]["permissions"] == []


def test_the_note_of_a_denial_reaches_the_model_and_nothing_runs(tmp_path: Path) -> None:
    with asking_supervisor(tmp_path) as supervisor:
        turn = supervisor.start("prompt", "-s", "alice", WRITE)
        call = wait_for_question(supervisor, "alice")
        assert supervisor.pool("deny", call, "--note", "not on a Friday").returncode == 0
        code, answer, _ = said(turn)
        assert (code, "the user does not allow it" in answer) == (0, True)
        history = supervisor.pool("sessions", "history", "alice", "--json").stdout
        assert "not on a Friday" in history
        assert not (tmp_path / "made").exists()


def test_an_aborted_question_can_be_answered_no_more_and_the_session_goes_on(tmp_path: Path) -> None:
    with asking_supervisor(tmp_path) as supervisor:
        turn = supervisor.start("prompt", "-s", "alice", WRITE)
        call = wait_for_question(supervisor, "alice")
        assert supervisor.pool("abort", "-s", "alice").returncode == 0
        assert said(turn)[0] == 1
        late = supervisor.pool("approve", call)
        assert late.returncode == 2
        assert f"the tool call '{call}' of session alice is no longer pending: its turn has ended" in late.stderr
        assert "hello" in supervisor.prompt("alice", "hello")
        assert not (tmp_path / "made").exists()


def test_a_worker_killed_while_it_asks_fails_the_run_and_the_call_is_sealed(tmp_path: Path) -> None:
    with asking_supervisor(tmp_path) as supervisor:
        turn = supervisor.start("prompt", "-s", "alice", WRITE)
        call = wait_for_question(supervisor, "alice")
        os.kill(supervisor.wait_for_turn("alice")["pid"], signal.SIGKILL)
        code, _, words = said(turn)
        assert (code, "killed by signal 9" in words, "Traceback" in words) == (1, True, False)
        assert supervisor.status()["gateway"]["permissions"] == []
        assert "its turn has ended" in supervisor.pool("approve", call).stderr
        assert "sealed automatically" in supervisor.prompt("alice", "TELL")
        assert wait_for_event(supervisor, "alice", "agent_resumed")["sealed"] == [call]
        assert not (tmp_path / "made").exists()


def test_a_question_outlives_the_front_end_whose_prompt_led_to_it(tmp_path: Path) -> None:
    with asking_supervisor(tmp_path) as supervisor:
        turn = supervisor.start("prompt", "-s", "alice", "--key", "k1", WRITE)
        call = wait_for_question(supervisor, "alice")
        turn.kill()
        turn.communicate(timeout=20)
        assert supervisor.pool("approve", call, "-s", "alice").returncode == 0
        done = supervisor.pool("wait", "k1", "--timeout", "20s")
        assert (done.returncode, done.stdout) == (0, "did-it\n")
        assert (tmp_path / "made").read_text() == "once\n"


def test_a_decision_that_comes_late_decides_no_other_sessions_call(tmp_path: Path) -> None:
    with asking_supervisor(tmp_path) as supervisor:
        first = supervisor.start("prompt", "-s", "alice", WRITE)
        call = wait_for_question(supervisor, "alice")
        assert supervisor.pool("deny", call).returncode == 0
        assert said(first)[0] == 0
        second = supervisor.start("prompt", "-s", "bob", WRITE)
        other = wait_for_question(supervisor, "bob")
        assert other != call
        late = supervisor.pool("approve", call)
        assert late.returncode == 2
        assert f"the tool call '{call}' of session alice was decided already" in late.stderr
        assert supervisor.status()["gateway"]["permissions"][0]["session"] == "bob"
        assert supervisor.pool("deny", other).returncode == 0
        assert said(second)[0] == 0
        assert not (tmp_path / "made").exists()
