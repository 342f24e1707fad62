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

pytestmark = pytest.mark.process

PROJECT = Path(__file__).parents[2]
SLEEP = 'TOOL:exec {"command":"echo $$; exec sleep 71"}'


class Worker:
    """A real worker on blocking pipes; a watchdog kills it, so that no read waits for ever."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        # From the main thread: the worker dies with the thread that started it.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "agent", "--mode", "rpc", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **environment},
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
        line = msgspec.json.encode({"id": method, "method": method, "params": params})
        self.stdin.write(line + b"\n")
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

    def exit_code(self) -> int:
        return self.process.wait()

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
    started = Worker(*arguments, **environment)
    try:
        yield started
    finally:
        started.close()


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", "agent", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL)


def tool_pid(started: Worker) -> int:
    """Start a command that sleeps; the pid of its process."""
    started.send("prompt", text=SLEEP)
    return int(started.line("tool", phase="update")["data"]["tail"])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"


def test_with_nothing_but_path_and_home_it_answers_and_ends_with_its_stdin() -> None:
    with worker("--no-session") as started:
        ready = started.line("ready")
        assert ready["data"]["pid"] == started.process.pid
        started.send("prompt", text="hello")
        assert started.line(answer="prompt")["result"]["text"] == 'You said: "hello". (turn 1)'
        started.stdin.close()
        assert started.exit_code() == 0
        assert started.stderr.read() == b""


@pytest.mark.parametrize(("how", "code"), [("eof", 0), ("sigterm", 143), ("sigint", 130), ("shutdown", 0)])
def test_however_it_is_ended_its_tools_end_first(how: str, code: int) -> None:
    with worker("--no-session") as started:
        pid = tool_pid(started)
        match how:
            case "eof":
                started.stdin.close()
            case "shutdown":
                started.send("shutdown")
                assert started.line(answer="prompt")["result"]["stop_reason"] == "aborted"
                assert started.line(answer="shutdown")["result"] == {}
            case _:
                started.process.send_signal(signal.SIGTERM if how == "sigterm" else signal.SIGINT)
        assert started.exit_code() == code
        assert not is_alive(pid)


def test_it_ends_when_nobody_reads_its_output_any_more() -> None:
    with worker("--no-session") as started:
        pid = tool_pid(started)
        started.stdout.close()
        started.send("ping")
        assert started.exit_code() == 1
        assert not is_alive(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is of Linux")
@pytest.mark.parametrize("state", ["running", "stopped"])
def test_it_dies_with_its_supervisor_even_when_it_is_stopped(state: str) -> None:
    supervisor = (
        "import subprocess, sys\n"
        "worker = subprocess.Popen([sys.executable, '-P', '-m', 'agent', '--mode', 'rpc', '--no-session'],"
        " stdin=sys.stdin, stdout=subprocess.PIPE)\n"
        "worker.stdout.readline()\n"
        "print(worker.pid, flush=True)\n"
        "worker.wait()\n"
    )
    reading, writing = os.pipe()  # the worker's stdin stays open: it shall not die of its end
    with subprocess.Popen([sys.executable, "-c", supervisor], stdin=reading, stdout=subprocess.PIPE) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        watched = os.pidfd_open(pid)
        if state == "stopped":
            os.kill(pid, signal.SIGSTOP)
        process.kill()
        assert select.select([watched], [], [], 10)[0]
        os.close(watched)
    os.close(reading)
    os.close(writing)


def test_it_does_not_start_without_the_supervisor_it_was_started_by() -> None:
    with worker("--no-session", POOL_WORKER_PARENT="1") as started:
        assert started.exit_code() == 1
        assert b"supervisor is gone" in started.stderr.read()
    with worker("--no-session", POOL_WORKER_PARENT=str(os.getpid())) as started:
        started.line("ready")


def test_a_crash_in_mid_turn_loses_nothing_that_was_acknowledged(sessions: str) -> None:
    with worker("--session-dir", sessions) as started:
        started.send("new_session")
        path = started.line(answer="new_session")["result"]["session_file"]
        started.send("prompt", text="alpha")
        started.line(answer="prompt")
        started.send("prompt", text="beta PIECES=10 DELAY=1 CRASH=9")
        assert started.exit_code() == 9
    with worker("--session", path) as started:
        started.send("prompt", text="RECALL")
        text = started.line(answer="prompt")["result"]["text"]
        assert text == 'Earlier you said: ["alpha","beta PIECES=10 DELAY=1 CRASH=9"]'


def test_a_second_process_on_one_transcript_is_refused(sessions: str) -> None:
    with worker("--session-dir", sessions) as first:
        first.send("new_session")
        path = first.line(answer="new_session")["result"]["session_file"]
        refused = run("--mode", "rpc", "--session", path)
        assert refused.returncode == 1
        assert (
            refused.stderr
            == f"agent: cannot go on with the session: another process is writing the transcript {path}\n"
        )
        assert refused.stdout == ""
        first.process.kill()  # the lock ends with its process
        first.exit_code()
    assert run("--mode", "rpc", "--session", path).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--fly"], 2, "unknown option '--fly'"),
        (["--mode", "rpc", "--session", "/none/s.jsonl"], 1, "there is no transcript /none/s.jsonl"),
        (["--mode", "rpc", "--model", "gpt"], 1, "unknown model 'gpt'"),
        (["--mode", "rpc", "--provider", "acme"], 1, "unknown provider 'acme'"),
        (["--mode", "rpc", "--extension", "x.ts"], 1, "x.ts"),
        (["--mode", "rpc", "--skill", "none"], 1, "SKILL.md"),
    ],
)
def test_a_bad_start_is_one_clear_line_and_no_ready(arguments: list[str], code: int, complaint: str) -> None:
    ended = run(*arguments)
    assert ended.returncode == code
    assert complaint in ended.stderr
    assert ended.stderr.startswith("agent: ")
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""


def test_a_directory_that_is_gone_or_has_no_name_in_text_is_no_place_to_work() -> None:
    for make, complaint in (
        ("mkdir gone; cd gone; rmdir ../gone", "the working directory does not exist any more"),
        (r"mkdir $'caf\xe9'; cd $'caf\xe9'", r"name that is not UTF-8 text: '" + str(Path.cwd()) + r"/caf\udce9'"),
        (r"export HOME=$'/caf\xe9'", r"(XDG_STATE_HOME, HOME) has a name that is not UTF-8 text: '/caf\udce9/"),
    ):
        command = f'{make}; exec "$0" -P -m agent -p hello'
        ended = subprocess.run(
            ["/bin/bash", "-c", command, sys.executable], capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stdout) == (1, "")
        assert complaint in ended.stderr
        assert ended.stderr.startswith("agent: ")
        assert ended.stderr.count("\n") == 1


def test_help_and_version_need_no_loop() -> None:
    code = "import sys; from agent.cli import main; main(['--help']); assert 'trio' not in sys.modules"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert "PIECES=n" in shown.stdout
    assert run("--version").stdout == "agent 0.1.0\n"


def test_four_hundred_thousand_pieces_arrive_whole_and_in_order() -> None:
    with worker("--no-session") as started:
        started.send("prompt", text="PIECES=400000")
        count = last = 0
        for raw in started.stdout:
            if b'"assistant_message","data"' in raw[:40]:
                count += 1
                seq = int(raw[raw.rindex(b":") + 1 : -3])
                assert seq > last
                last = seq
            elif raw.startswith(b'{"id"'):
                break
        assert count == 400_000
