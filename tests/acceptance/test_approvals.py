"""A real agent asks before it acts, and people answer from other terminals: approve, deny, too late, never."""

import getpass
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.supervisor import Supervisor, running_supervisor, tool

pytestmark = pytest.mark.process


@contextmanager
def asking_supervisor(data_dir: Path, *more: str) -> Iterator[Supervisor]:
    """Its agent asks about every call and works in ``data_dir``."""
    agent = ["[agents.main]", f'workspace = "{data_dir}"', 'permission_mode = "approval"', *more, ""]
    settings = data_dir / "pool.toml"
    settings.write_text("\n".join(agent))
    with running_supervisor(data_dir / "data", "--config", str(settings)) as supervisor:
        yield supervisor


def wait_for_question(supervisor: Supervisor, session: str) -> str:
    """The id of the call that the session's turn asks about, once it does."""
    with supervisor.following("permission_required") as events:
        return next(str(event["data"]["call"]["id"]) for event in events if event["session"] == session)


def said(command: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = command.communicate(timeout=60)
    return command.returncode, out, err


class Terminal:
    """One supervisor, whose sessions each write into a file of their own."""

    def __init__(self, supervisor: Supervisor, workspace: Path) -> None:
        self.supervisor = supervisor
        self.workspace = workspace

    def ask(self, session: str) -> tuple[str, str]:
        """A turn that asks: the run, and the call."""
        run = self.supervisor.begin(session, f"{tool(f'echo once >> {session}; echo did-it')} TELL")
        return run, wait_for_question(self.supervisor, session)

    def made(self, session: str) -> str:
        file = self.workspace / session
        return file.read_text() if file.exists() else ""

    def pool(self, *arguments: str) -> tuple[int, str]:
        done = self.supervisor.pool(*arguments)
        return done.returncode, done.stderr


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    place = tmp_path_factory.mktemp("a")
    with asking_supervisor(place) as supervisor:
        yield Terminal(supervisor, place)


def command_shown(listing: str) -> list[str]:
    """What ``listing`` tells people to type, without the name of the program."""
    [line] = [line for line in listing.splitlines() if "pool approve" in line]
    return shlex.split(line)[1:]


def test_an_approved_call_runs_once_whichever_listing_told_how_to_approve_it(terminal: Terminal) -> None:
    supervisor = terminal.supervisor
    run, call = terminal.ask("alice")
    place = ("--socket", str(supervisor.socket))
    listings = [("status", *place), ("sessions", *place), ("sessions", "show", "alice", *place)]
    shown = [command_shown(supervisor.pool(*listing).stdout) for listing in listings]
    assert shown == [["approve", *place, "-s", "alice", call]] * len(listings)
    assert supervisor.status()["gateway"]["permissions"][0]["call"]["state"] == "AWAITING_APPROVAL"
    assert "approval" in supervisor.pool("sessions").stdout
    code, words = terminal.pool("approve", "nonsense")
    assert (code, f"these do: {call} (exec, session alice)" in words) == (2, True)
    assert terminal.made("alice") == ""
    assert supervisor.pool(*shown[0]).returncode == 0
    assert supervisor.outcome(run)["text"] == "did-it\n"
    for word in ("approve", "deny"):
        code, words = terminal.pool(word, call)
        assert (code, f"was decided already (allow by {getpass.getuser()})" in words) == (2, True)
    assert terminal.made("alice") == "once\n"
    assert supervisor.status()["gateway"]["permissions"] == []


def test_a_decision_that_comes_late_decides_no_other_sessions_call(terminal: Terminal) -> None:
    """And the note of a denial reaches the model."""
    supervisor = terminal.supervisor
    run, call = terminal.ask("carol")
    assert terminal.pool("deny", call, "--note", "not on a Friday")[0] == 0
    assert "the user does not allow it" in supervisor.outcome(run)["text"]
    assert "not on a Friday" in supervisor.pool("sessions", "history", "carol", "--json").stdout
    run, other = terminal.ask("bob")
    assert other != call
    code, words = terminal.pool("approve", call)
    assert (code, f"the tool call '{call}' of session carol was decided already" in words) == (2, True)
    assert supervisor.status()["gateway"]["permissions"][0]["session"] == "bob"
    assert terminal.pool("deny", other)[0] == 0
    assert supervisor.outcome(run)["status"] == "ok"
    assert (terminal.made("carol"), terminal.made("bob")) == ("", "")


def test_an_aborted_question_can_be_answered_no_more_and_the_session_goes_on(terminal: Terminal) -> None:
    run, call = terminal.ask("aborted")
    assert terminal.pool("abort", "-s", "aborted")[0] == 0
    assert terminal.supervisor.outcome(run)["status"] == "error"
    code, words = terminal.pool("approve", call)
    late = f"the tool call '{call}' of session aborted is no longer pending: its turn has ended"
    assert (code, late in words) == (2, True)
    assert "hello" in terminal.supervisor.prompt("aborted", "hello")
    assert terminal.made("aborted") == ""


def test_a_worker_killed_while_it_asks_fails_the_run_and_the_call_is_sealed(terminal: Terminal) -> None:
    supervisor = terminal.supervisor
    run, call = terminal.ask("killed")
    os.kill(supervisor.wait_for_turn("killed")["pid"], signal.SIGKILL)
    assert "killed by signal 9" in supervisor.outcome(run)["error"]["message"]
    assert supervisor.status()["gateway"]["permissions"] == []
    assert "its turn has ended" in terminal.pool("approve", call)[1]
    assert "sealed automatically" in supervisor.prompt("killed", "TELL")
    (resumed,) = [event["data"] for event in supervisor.told("agent_resumed") if event["session"] == "killed"]
    assert (resumed["sealed"], terminal.made("killed")) == ([call], "")


def test_a_question_outlives_the_front_end_whose_prompt_led_to_it(terminal: Terminal) -> None:
    supervisor = terminal.supervisor
    turn = supervisor.start("prompt", "-s", "left", "--key", "k1", f"{tool('echo once >> left; echo did-it')} TELL")
    call = wait_for_question(supervisor, "left")
    turn.kill()
    turn.communicate(timeout=20)
    assert terminal.pool("approve", call, "-s", "left")[0] == 0
    assert supervisor.pool("wait", "k1").stdout == "did-it\n"
    assert terminal.made("left") == "once\n"
