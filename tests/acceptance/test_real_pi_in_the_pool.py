"""The real pi behind the pool: rebinding between conversations, kill -9 in mid-turn, nothing left behind."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fixtures.fake_openai import serving
from fixtures.pi_home import write_pi_home
from tests.acceptance.supervisor import Supervisor, gone_within, marked_processes, processes_with, running_supervisor
from tests.real_pi import RealPi

pytestmark = [pytest.mark.process, pytest.mark.real_pi, pytest.mark.timeout(90)]


@pytest.fixture
def pi_definition(tmp_path: Path, pi_command: str) -> Iterator[str]:
    """What the settings of an agent say that is the real pi with the fake model."""
    with serving() as server:
        home = write_pi_home(tmp_path / "home", server.port)
        yield (
            f'command = ["{pi_command}", "--mode", "rpc"]\ndialect = "pi"\n'
            f'agent_dir = "{home}"\nextra_args = ["--offline"]\n'
        )


@pytest.fixture
def supervisor(tmp_path: Path, pi_definition: str) -> Iterator[Supervisor]:
    """A supervisor whose agent ``pi`` is the real one, at most one process."""
    settings = tmp_path / "pool.toml"
    settings.write_text(f"[pool]\nmin = 0\nmax = 1\n[agents.pi]\n{pi_definition}")
    with running_supervisor(tmp_path / "data", "--config", str(settings)) as running:
        yield running


def transcript_of(supervisor: Supervisor, session: str) -> Path:
    return Path(json.loads(supervisor.pool("sessions", "get", session, "--json").stdout)["transcript"])


@pytest.mark.each_pi
def test_conversations_share_one_process_and_remember(supervisor: Supervisor) -> None:
    assert "ECHO" not in supervisor.prompt("alice", "hello-alice", "-a", "pi")
    supervisor.prompt("bob", "hello-bob", "-a", "pi")
    recalled = supervisor.prompt("alice", "RECALL", "-a", "pi")
    assert "hello-alice" in recalled
    assert "hello-bob" not in recalled
    assert supervisor.status()["counters"]["spawned"] == 1


@pytest.mark.each_pi
def test_a_turn_is_steered_and_aborted_and_the_conversation_compacted_and_resumed(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    supervisor.prompt("alice", "remember-this", "-a", "pi")
    turn = supervisor.start("prompt", "-s", "alice", f"BASH:until [ -e {tmp_path}/go-on ]; do sleep 0.1; done")
    supervisor.wait_for_turn("alice")
    while supervisor.pool("steer", "-s", "alice", "steered-in").returncode:
        assert turn.poll() is None, "its run has not begun yet"
    (tmp_path / "go-on").touch()
    assert turn.communicate(timeout=20)[0].strip().endswith("echo: steered-in")
    turn = supervisor.start("prompt", "-s", "alice", "HANG")
    supervisor.wait_for_turn("alice")
    assert supervisor.pool("abort", "-s", "alice").returncode == 0
    turn.communicate(timeout=20)
    assert "remember-this | BASH" in supervisor.prompt("alice", "RECALL")
    supervisor.prompt("alice", "/compact")
    assert "SUMMARY of" in supervisor.prompt("alice", "RECALL")
    supervisor.prompt("bob", "takes the only process", "-a", "pi")
    assert "SUMMARY of" in supervisor.prompt("alice", "RECALL")


@pytest.mark.each_pi
@pytest.mark.parametrize("name", ["rpc-demo.ts", "confirm-destructive.ts"])
def test_extensions_that_ask_before_a_new_session_are_answered_yes(
    tmp_path: Path, pi_definition: str, real_pi: RealPi, name: str
) -> None:
    settings = tmp_path / "pool.toml"
    extension = f'extensions = ["{real_pi.package / "examples" / "extensions" / name}"]\n'
    settings.write_text(f"[pool]\nmin = 0\nmax = 1\n[agents.pi]\n{pi_definition}{extension}")
    with running_supervisor(tmp_path / "data", "--config", str(settings)) as supervisor:
        supervisor.prompt("alice", "hello-alice", "-a", "pi")
        assert "hello-alice" not in supervisor.prompt("bob", "RECALL", "-a", "pi")
        assert "hello-alice" in supervisor.prompt("alice", "RECALL", "-a", "pi")
        assert supervisor.status()["counters"]["spawned"] == 1


@pytest.mark.each_pi
def test_a_pi_killed_in_mid_turn_fails_that_turn_and_the_next_one_remembers(supervisor: Supervisor) -> None:
    supervisor.prompt("alice", "remember-this", "-a", "pi")
    turn = supervisor.start("prompt", "-s", "alice", "-a", "pi", "HANG")
    os.kill(supervisor.wait_for_turn("alice")["pid"], signal.SIGKILL)
    _, words = turn.communicate(timeout=20)
    assert turn.returncode == 1
    assert "killed by signal 9" in words
    assert "remember-this" in supervisor.prompt("alice", "RECALL", "-a", "pi")


def test_a_killed_supervisor_takes_pi_and_its_tools_along(supervisor: Supervisor) -> None:
    turn = supervisor.start("prompt", "-s", "alice", "-a", "pi", "BASH:sleep 300")
    pi = supervisor.wait_for_turn("alice")["pid"]
    instance = supervisor.instance()
    processes = processes_with(instance, "sleep")
    os.kill(pi, signal.SIGSTOP)
    supervisor.signal(signal.SIGKILL)
    supervisor.wait()
    turn.communicate(timeout=20)
    assert gone_within(processes, 20.0)
    assert marked_processes(instance) == []


def test_a_session_of_pi_is_refused_to_another_agent_and_goes_on(supervisor: Supervisor) -> None:
    supervisor.prompt("alice", "remember-this", "-a", "pi")
    before = transcript_of(supervisor, "alice").read_bytes()
    done = supervisor.pool("prompt", "-s", "alice", "-a", "main", "hello")
    assert done.returncode == 2
    assert "session alice is a conversation with agent 'pi'" in " ".join(done.stderr.split())
    assert transcript_of(supervisor, "alice").read_bytes() == before
    assert supervisor.status()["counters"]["spawned"] == 1
    assert "remember-this" in supervisor.prompt("alice", "RECALL")


def title_first(line: bytes, rest: bytes) -> bytes:
    return b'{"type":"title","title":"greetings"}\n' + line + rest


def without_id(line: bytes, rest: bytes) -> bytes:
    header = json.loads(line)
    del header["id"]
    return json.dumps(header).encode() + b"\n" + rest


@pytest.mark.parametrize("change", [title_first, without_id])
def test_pi_is_given_no_transcript_that_it_would_empty(
    supervisor: Supervisor, change: Callable[[bytes, bytes], bytes]
) -> None:
    supervisor.prompt("alice", "remember-this", "-a", "pi")
    supervisor.prompt("bob", "hello", "-a", "pi")
    transcript = transcript_of(supervisor, "alice")
    header, rest = transcript.read_bytes().split(b"\n", 1)
    content = change(header + b"\n", rest)
    transcript.write_bytes(content)
    done = supervisor.pool("prompt", "-s", "alice", "hello")
    assert transcript.read_bytes() == content
    assert done.returncode == 1
    assert f"{transcript} " in done.stderr


@pytest.mark.parametrize("first", ["native", "pi"])
def test_no_agent_is_given_a_transcript_of_another_dialect(tmp_path: Path, pi_definition: str, first: str) -> None:
    definitions = {"native": 'model = "scripted"\n', "pi": pi_definition}
    (second,) = definitions.keys() - {first}
    settings = tmp_path / "pool.toml"
    settings.write_text(f"[agents.helper]\n{definitions[first]}")
    with running_supervisor(tmp_path / "data", "--config", str(settings)) as supervisor:
        supervisor.prompt("alice", "remember-this", "-a", "helper")
        transcript = transcript_of(supervisor, "alice")
        before = transcript.read_bytes()
        settings.write_text(f"[agents.helper]\n{definitions[second]}")
        assert supervisor.pool("reload").returncode == 0
        done = supervisor.pool("prompt", "-s", "alice", "hello")
        assert done.returncode == 1
        assert f"is a transcript of the {first} dialect, and the agent speaks {second}" in " ".join(done.stderr.split())
        assert transcript.read_bytes() == before
