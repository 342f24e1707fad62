"""The worker as a real process: how it starts, and every way in which it ends."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import pytest

from tests.agent.processes.helpers import processes_with
from tests.house import ROOT

pytestmark = pytest.mark.process

AGENT = [sys.executable, "-P", "-m", "agent"]


class Worker:
    """A real worker on blocking pipes; a watchdog kills it, so that no read waits for ever."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        # From the main thread: the worker dies with the thread that started it.
        env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **environment}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*AGENT, "--mode", "rpc", *arguments], stdin=pipe, stdout=pipe, stderr=pipe, env=env
        )
        self.watchdog = threading.Timer(20, self.process.kill)
        self.watchdog.start()
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        self.stdin: IO[bytes] = self.process.stdin
        self.stdout: IO[bytes] = self.process.stdout
        self.stderr: IO[bytes] = self.process.stderr

    def send(self, method: str, **params: Any) -> None:
        self.stdin.write(msgspec.json.encode({"id": method, "method": method, "params": params}) + b"\n")
        self.stdin.flush()

    def line(self, event: str | None = None, answer: str | None = None, **data: Any) -> dict[str, Any]:
        """Read on to this event or answer."""
        for raw in self.stdout:
            line: dict[str, Any] = msgspec.json.decode(raw)
            if answer is not None and line.get("id") == answer:
                return line
            if event is not None and line.get("event") == event and data.items() <= line["data"].items():
                return line
        raise AssertionError(f"the worker ended: {self.stderr.read().decode()}")

    def prompt(self, text: str) -> dict[str, Any]:
        self.send("prompt", text=text)
        result: dict[str, Any] = self.line(answer="prompt")["result"]
        return result

    def tool_pid(self) -> int:
        """Start a command that sleeps; the pid of its process."""
        self.send("prompt", text='TOOL:exec {"command":"echo $$; exec sleep 71"}')
        return int(self.line("tool", phase="update")["data"]["tail"])

    def close(self) -> None:
        self.watchdog.cancel()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@contextlib.contextmanager
def worker(*arguments: str, **environment: str) -> Iterator[Worker]:
    with contextlib.closing(Worker(*arguments, **environment)) as started:
        yield started


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*AGENT, *arguments], capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL
    )


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except FileNotFoundError:
        return False


def test_with_nothing_but_path_and_home_it_answers_and_ends_with_its_stdin() -> None:
    with worker("--no-session", POOL_WORKER_PARENT=str(os.getpid())) as started:
        assert started.line("ready")["data"]["pid"] == started.process.pid
        assert started.prompt("hello")["text"] == 'You said: "hello". (turn 1)'
        started.stdin.close()
        assert (started.process.wait(), started.stderr.read()) == (0, b"")


@pytest.mark.parametrize(
    ("how", "code"), [("eof", 0), ("sigterm", 143), ("sigint", 130), ("shutdown", 0), ("unread", 1)]
)
def test_however_it_is_ended_its_tools_end_first(how: str, code: int) -> None:
    with worker("--no-session") as started:
        pid = started.tool_pid()
        match how:
            case "eof":
                started.stdin.close()
            case "shutdown":
                started.send("shutdown")
                assert started.line(answer="prompt")["result"]["stop_reason"] == "aborted"
                assert started.line(answer="shutdown")["result"] == {}
            case "unread":
                started.stdout.close()
                started.send("ping")
            case _:
                started.process.send_signal(signal.SIGTERM if how == "sigterm" else signal.SIGINT)
        assert (started.process.wait(), is_alive(pid)) == (code, False)


def test_commands_that_misbehave_end_with_their_worker_whatever_they_do(workspace: Path) -> None:
    for pipe in ("first", "second"):
        os.mkfifo(workspace / pipe)
    commands = [
        "trap '' TERM; echo > first; while :; do sleep 600; done",
        "(trap '' TERM; setsid setsid sleep 600 </dev/null >/dev/null 2>&1 &); echo > second; sleep 600",
        "setsid yes & yes >&2",
        "cat",
    ]
    calls = [{"command": command, "background": True, "env": {"MARK": str(workspace)}} for command in commands]
    with worker("--no-session") as started:
        started.prompt("PARALLEL " + " ".join(f"TOOL:exec {msgspec.json.encode(call).decode()}" for call in calls))
        for pipe in ("first", "second"):
            (workspace / pipe).read_text()  # it has got as far as it is to get
        assert len(processes_with(f"MARK={workspace}")) >= 5
        started.stdin.close()
        assert started.process.wait() == 0
    assert processes_with(f"MARK={workspace}") == []


SUPERVISOR = """
import subprocess, sys
command = [sys.executable, '-P', '-m', 'agent', '--mode', 'rpc', '--no-session']
worker = subprocess.Popen(command, stdin=sys.stdin, stdout=subprocess.PIPE)
worker.stdout.readline()
print(worker.pid, flush=True)
worker.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is of Linux")
@pytest.mark.parametrize("state", ["running", "stopped"])
def test_it_dies_with_its_supervisor_even_when_it_is_stopped(state: str) -> None:
    reading, writing = os.pipe()  # the worker's stdin stays open: it shall not die of its end
    with subprocess.Popen([sys.executable, "-c", SUPERVISOR], stdin=reading, stdout=subprocess.PIPE) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        watched = os.pidfd_open(pid)
        if state == "stopped":
            os.kill(pid, signal.SIGSTOP)
        process.kill()
        assert select.select([watched], [], [], 10)[0]
    for descriptor in (watched, reading, writing):
        os.close(descriptor)


def test_it_does_not_start_without_the_supervisor_it_was_started_by() -> None:
    with worker("--no-session", POOL_WORKER_PARENT="1") as started:
        assert started.process.wait() == 1
        assert b"supervisor is gone" in started.stderr.read()


def test_a_second_process_on_one_transcript_is_refused_and_a_crash_loses_nothing_acknowledged(sessions: str) -> None:
    with worker("--session-dir", sessions) as first:
        first.send("new_session")
        path = first.line(answer="new_session")["result"]["session_file"]
        first.prompt("alpha")
        refused = run("--mode", "rpc", "--session", path)
        said = f"agent: cannot go on with the session: another process is writing the transcript {path}\n"
        assert (refused.returncode, refused.stderr, refused.stdout) == (1, said, "")
        first.send("prompt", text="beta PIECES=10 DELAY=1 CRASH=9")
        assert first.process.wait() == 9  # the lock ends with its process
    with worker("--session", path) as started:
        text = started.prompt("RECALL")["text"]
        assert text == 'Earlier you said: ["alpha","beta PIECES=10 DELAY=1 CRASH=9"]'


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        ("--fly", 2, "unknown option '--fly'"),
        ("--mode rpc --session /none/s.jsonl", 1, "there is no transcript /none/s.jsonl"),
        ("--mode rpc --model gpt", 1, "unknown model 'gpt'"),
        ("--mode rpc --extension x.ts", 1, "x.ts"),
        ("--mode rpc --skill none", 1, "SKILL.md"),
    ],
)
def test_a_bad_start_is_one_clear_line_and_no_ready(arguments: str, code: int, complaint: str) -> None:
    ended = run(*arguments.split())
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (code, "", 1)
    assert ended.stderr.startswith("agent: ")
    assert complaint in ended.stderr


def test_a_directory_that_is_gone_or_has_no_name_in_text_is_no_place_to_work() -> None:
    for make, complaint in (
        ("mkdir gone; cd gone; rmdir ../gone", "the working directory does not exist any more"),
        (r"mkdir $'caf\xe9'; cd $'caf\xe9'", r"name that is not UTF-8 text: '" + str(Path.cwd()) + r"/caf\udce9'"),
        (r"export HOME=$'/caf\xe9'", r"(XDG_STATE_HOME, HOME) has a name that is not UTF-8 text: '/caf\udce9/"),
    ):
        command = ["/bin/bash", "-c", f'{make}; exec "$0" -P -m agent -p hello', sys.executable]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
        assert ended.stderr.startswith("agent: ")
        assert complaint in ended.stderr


def test_help_and_version_need_no_loop() -> None:
    code = "import sys; from agent.cli import main; main(['--help']); assert 'trio' not in sys.modules"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "PIECES=n" in shown.stdout
    assert run("--version").stdout == "agent 0.1.0\n"


def test_a_hundred_thousand_pieces_arrive_whole_and_in_order() -> None:
    with worker("--no-session") as started:
        started.send("prompt", text="PIECES=100000")
        count = last = 0
        for raw in started.stdout:
            if b'"assistant_message","data"' in raw[:40]:
                count += 1
                seq = int(raw[raw.rindex(b":") + 1 : -3])
                assert seq > last
                last = seq
            elif raw.startswith(b'{"id"'):
                break
        assert count == 100_000
