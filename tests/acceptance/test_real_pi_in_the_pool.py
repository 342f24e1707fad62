"""The real pi behind the pool: rebinding between conversations, kill -9 in mid-turn, nothing left behind."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.fake_openai import serving
from fixtures.pi_home import write_pi_home
from tests.acceptance.supervisor import Supervisor, gone_within, marked_processes, processes_with, running_supervisor
from tests.real_pi import RealPi

pytestmark = [pytest.mark.process, pytest.mark.real_pi]

TOKEN = "a-token-of-the-tests-0123456789"
_LIMIT = 90.0


class Place:
    """A supervisor whose agent ``pi`` is the real one with the fake model, at most one process."""

    def __init__(self, directory: Path, pi: RealPi, port: int) -> None:
        self.home = write_pi_home(directory / "home", port)
        self.settings_file = directory / "data" / "pool.toml"
        self.definition = (
            f'command = ["{pi.command}", "--mode", "rpc"]\ndialect = "pi"\n'
            f'agent_dir = "{self.home}"\nextra_args = ["--offline"]\n'
        )
        examples = pi.package / "examples" / "extensions"
        asking = [str(examples / name) for name in ("rpc-demo.ts", "confirm-destructive.ts")]
        self.settings = (
            f'[pool]\nmin = 0\nmax = 1\n[http]\nbind = "127.0.0.1:0"\ntoken = "{TOKEN}"\n[agents.pi]\n{self.definition}'
            f"[agents.asking]\n{self.definition}extensions = {json.dumps(asking)}\n"
        )
        self.supervisor: Supervisor

    def prompt(self, session: str, text: str, agent: str = "pi") -> str:
        return self.supervisor.prompt(session, text, "-a", agent)

    def spawned(self) -> int:
        return int(self.supervisor.status()["counters"]["spawned"])

    def transcript_of(self, session: str) -> Path:
        return Path(self.supervisor.call("sessions.get", session=session)["transcript"])

    def refusal(self, session: str, *flags: str) -> tuple[int, str]:
        """A prompt whose transcript nothing may change: the exit code, and what is printed."""
        transcript = self.transcript_of(session)
        before = transcript.read_bytes()
        done = self.supervisor.pool("prompt", "-s", session, *flags, "hello")
        assert transcript.read_bytes() == before
        return done.returncode, " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, real_pi: RealPi) -> Iterator[Place]:
    """One for all tests with sessions of their own."""
    with serving() as server:
        directory = tmp_path_factory.mktemp("p")
        made = Place(directory, real_pi, server.port)
        with running_supervisor(directory / "data", settings=made.settings) as made.supervisor:
            yield made


@pytest.mark.each_pi
def test_conversations_share_a_process_are_steered_aborted_compacted_resumed_and_survive_its_kill(
    place: Place, tmp_path: Path
) -> None:
    supervisor = place.supervisor
    place.prompt("alice", "remember-this")
    place.prompt("bob", "hello-bob")
    spawned = place.spawned()
    recalled = place.prompt("alice", "RECALL")
    assert ("remember-this" in recalled, "hello-bob" in recalled, place.spawned()) == (True, False, spawned)
    run = supervisor.begin("alice", f"BASH:until [ -e {tmp_path}/go-on ]; do sleep 0.1; done")
    supervisor.wait_for_turn("alice")
    while supervisor.pool("steer", "-s", "alice", "steered-in").returncode:
        assert supervisor.call("agent.wait", run_id=run, timeout_ms=0)["status"] != "ok", "its run has not begun yet"
    (tmp_path / "go-on").touch()
    assert supervisor.outcome(run)["text"].strip().endswith("echo: steered-in")
    run = supervisor.begin("alice", "HANG")
    supervisor.wait_for_turn("alice")
    assert supervisor.pool("abort", "-s", "alice").returncode == 0
    assert supervisor.outcome(run)["status"] == "error"
    assert "remember-this" in place.prompt("alice", "RECALL")
    place.prompt("alice", "/compact")
    assert "SUMMARY of" in place.prompt("alice", "RECALL")
    place.prompt("bob", "takes the only process")
    assert "SUMMARY of" in place.prompt("alice", "RECALL")
    run = supervisor.begin("bob", "HANG")
    os.kill(supervisor.wait_for_turn("bob")["pid"], signal.SIGKILL)
    outcome = supervisor.outcome(run)
    assert (outcome["status"], "killed by signal 9" in outcome["error"]["message"]) == ("error", True)
    assert "hello-bob" in place.prompt("bob", "RECALL")


def test_pi_is_given_no_transcript_that_it_would_empty(place: Place) -> None:
    place.prompt("titled", "remember-this")
    place.prompt("beside", "takes the only process")
    transcript = place.transcript_of("titled")
    transcript.write_bytes(b'{"type":"title","title":"greetings"}\n' + transcript.read_bytes())
    code, words = place.refusal("titled")
    assert (code, f"{transcript} " in words) == (1, True)


def test_no_agent_is_given_a_transcript_of_another_agent_or_dialect(place: Place) -> None:
    place.prompt("owned", "remember-this")
    spawned = place.spawned()
    code, words = place.refusal("owned", "-a", "main")
    assert (code, "session owned is a conversation with agent 'pi'" in words, place.spawned()) == (2, True, spawned)
    assert "remember-this" in place.supervisor.prompt("owned", "RECALL")
    for definition in ('model = "scripted"\n', place.definition):
        place.settings_file.write_text(f"{place.settings}[agents.changed]\n{definition}")
        assert place.supervisor.pool("reload").returncode == 0
        if definition != place.definition:
            place.prompt("native", "remember-this", "changed")
    code, words = place.refusal("native")
    assert (code, "is a transcript of the native dialect, and the agent speaks pi" in words) == (1, True)


def bytes_of_pi_alone(command: Path, home: Path, prompt: str) -> int:
    """What it writes from the prompt to the end of the answer."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    env = {**os.environ, "PI_CODING_AGENT_DIR": str(home)}
    with subprocess.Popen([command, "--mode", "rpc", "--no-session", "--offline"], env=env, **pipes) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(json.dumps({"id": "1", "type": "prompt", "message": prompt}).encode() + b"\n")
        program.stdin.flush()
        written = 0
        for line in program.stdout:
            written += len(line)
            if line.startswith(b'{"type":"agent_end"'):
                break
        program.stdin.close()
        program.stdout.read()
    return written


def follow(sock: socket.socket, request: str) -> int:
    """Bytes of the session's events, from the first to the end of the answer."""
    sock.settimeout(_LIMIT)
    received, tail = 0, b""
    with sock:
        sock.sendall(request.encode())
        while b'"type":"done"' not in tail:
            block = sock.recv(1 << 20)
            assert block, tail
            received += len(block)
            tail = (tail + block)[-len(block) - 100 :]
    return received


def test_no_piece_of_a_long_answer_leaves_the_gateway_more_than_once(place: Place, real_pi: RealPi) -> None:
    """Older releases repeat all of an answer with each piece."""
    prompt = "CHUNKS=600"
    alone = bytes_of_pi_alone(real_pi.command, place.home, prompt)
    answer = place.prompt("long", prompt)
    assert answer.split()[-1] == "word00599"
    control = socket.socket(socket.AF_UNIX)
    control.connect(str(place.supervisor.socket))
    left = {"socket": follow(control, '{"id":1,"method":"subscribe","params":{"session":"long","since":0}}\n')}
    url = place.supervisor.status()["supervisor"]["http"]["url"]
    head = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    for query in ("", "&batch=true"):
        http = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
        left[f"SSE{query}"] = follow(http, f"GET /events?session=long&since=0{query} HTTP/1.1\r\n{head}")
    repeats = real_pi.version < (0, 84)  # releases from then on say each piece once themselves
    assert (alone > 3_500_000) is repeats
    most = 0.06 * alone if repeats else alone
    assert {door: size for door, size in left.items() if not len(answer) < size <= most} == {}, (left, alone)


@pytest.mark.each_pi
def test_extensions_that_ask_before_a_new_session_are_answered_yes(place: Place) -> None:
    place.prompt("e-alice", "hello-alice", "asking")
    spawned = place.spawned()
    assert "hello-alice" not in place.prompt("e-bob", "RECALL", "asking")
    assert "hello-alice" in place.prompt("e-alice", "RECALL", "asking")
    assert place.spawned() == spawned


def test_a_killed_supervisor_takes_pi_and_its_tools_along(tmp_path: Path, place: Place) -> None:
    with running_supervisor(tmp_path, settings=place.settings) as supervisor:
        supervisor.begin("alice", "BASH:sleep 300", agent="pi")
        pi = supervisor.wait_for_turn("alice")["pid"]
        instance = supervisor.instance()
        processes = processes_with(instance, "sleep")
        os.kill(pi, signal.SIGSTOP)
        supervisor.kill()
        assert gone_within(processes, 20.0)
        assert marked_processes(instance) == []


@pytest.mark.each_pi
def test_a_conversation_goes_on_in_a_moved_data_directory_and_works_in_its_workspace(
    tmp_path: Path, real_pi: RealPi
) -> None:
    """pi refuses one whose working directory is gone, and works in the old one while that is there."""
    with serving() as server:
        place = Place(tmp_path, real_pi, server.port)
        with running_supervisor(tmp_path / "data", settings=place.settings) as place.supervisor:
            place.prompt("alice", "remember-this")
        (tmp_path / "data").rename(tmp_path / "moved")
        with running_supervisor(tmp_path / "moved", settings=place.settings) as place.supervisor:
            assert "remember-this" in place.prompt("alice", "RECALL")
            header = json.loads(place.transcript_of("alice").read_text().partition("\n")[0])
            assert header["cwd"] == str(tmp_path / "moved" / "workspaces" / "default")
