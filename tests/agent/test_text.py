"""``agent -p``: what a person sees, and what a script gets to know from the exit code."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from agent.options import parse_options
from agent.text import TerminalOutput as Front
from agent.text import run_once
from tests.wire.terminals import Terminal, screen_of
from wire.run_view import RunView

QUIET = ("--no-session", "--no-hooks")
AGENT = (sys.executable, "-P", "-m", "agent", *QUIET)


def run(capsys: pytest.CaptureFixture[str], prompt: str, *flags: str) -> tuple[int, str, list[str]]:
    code = run_once(parse_options(["-p", prompt, *QUIET, *flags]))
    shown = capsys.readouterr()
    return code, shown.out, shown.err.splitlines()


def test_an_answer_is_streamed_and_tool_calls_are_shown_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, 'TOOL:exec {"command":"echo hi"} TOOL:read {"path":"none"} ECHO:that was all')
    assert (code, out) == (0, "that was all\n")
    assert [line.split(" (")[0] for line in err] == ["· exec echo hi", "  ✓ ok, code 0", "· read none", "  ✗ failed"]
    assert err[3].endswith("cannot read none: No such file or directory")


def test_tests_that_run_in_the_background_are_picked_up_by_a_poll_and_told_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = run(capsys, "run the tests in the background and tell me")
    assert code == 0
    assert out.startswith("It has ended: completed, code 0.")
    assert out.endswith("3 passed\n")
    assert [line.split(" ")[:2] for line in err[::2]] == [["·", "exec"], ["·", "process"]]
    assert err[1].startswith("  … still running in the background as ")
    assert err[3].startswith("  ✓ ok, code 0 (")


def test_a_command_of_ones_own_is_told_of_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "Run `echo no such test; exit 3` in the background and tell me!")
    assert (code, out) == (0, "It has ended: completed, code 3. The last it said:\nno such test\n")


def test_what_still_runs_at_the_end_is_stopped_and_that_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("gate")
    background = "echo $$ > pid; echo > gate; exec sleep 60"
    prompt = f'TOOL:exec {{"command":"{background}","background":true}} TOOL:exec {{"command":"read x < gate"}}'
    code, _, err = run(capsys, prompt)
    assert code == 0
    assert err[-1] == "! stopped commands that still ran in the background: 1"
    assert not Path(f"/proc/{Path('pid').read_text().strip()}").exists()


def test_where_nobody_can_be_asked_nothing_that_needs_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, 'TOOL:exec {"command":"touch ran"}', "--permission-mode", "approval")
    assert code == 0
    assert err[1:] == [
        "? needs approval, and no one can approve it here: exec touch ran",
        "  ✗ denied: the user does not allow it.",
    ]
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("prompt", "flags", "code", "complaint"),
    [
        ("LENGTH", (), 5, "agent: the answer is cut off: it has reached the model's limit"),
        ("ERROR", (), 1, "agent: the scripted model was asked to fail"),
        (
            "TOOL:nothing {} FOREVER",
            ("--max-steps", "2"),
            4,
            "agent: the agent was not done: it has made all model calls that one run may (--max-steps)",
        ),
        ("HANG", ("--timeout", "0.05"), 124, "agent: the run took longer than 0.05 s"),
    ],
)
def test_the_exit_code_tells_how_it_ended(
    capsys: pytest.CaptureFixture[str], prompt: str, flags: tuple[str, ...], code: int, complaint: str
) -> None:
    ended, _, err = run(capsys, prompt, *flags)
    assert (ended, err[-1]) == (code, complaint)


def test_a_conversation_in_the_terminal_can_be_continued(capsys: pytest.CaptureFixture[str], sessions: str) -> None:
    for prompt in ("one", "RECALL"):
        flags = ["--no-hooks", "--session-dir", sessions, *(["--continue"] if prompt == "RECALL" else [])]
        assert run_once(parse_options(["-p", prompt, *flags])) == 0
    assert capsys.readouterr().out.splitlines()[-1] == 'Earlier you said: ["one"]'


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_the_commands_that_it_runs(number: signal.Signals) -> None:
    os.mkfifo("pid")
    command = 'TOOL:exec {"command":"echo $$ > pid; exec sleep 60","yield_ms":120000}'
    with subprocess.Popen([*AGENT, "-p", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        pid = int(Path("pid").read_text())
        process.send_signal(number)
        assert process.wait(25) == 128 + number
        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.process
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [("--no-session", "-p", "hello"), ("--help",), ("--version",)])
def test_an_answer_that_cannot_be_written_is_one_line_and_an_exit_code(
    arguments: tuple[str, ...], unbuffered: str
) -> None:
    command, env = [*AGENT, *arguments], {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    reading, left = os.pipe()
    os.close(reading)
    for output, why in ((os.open("/dev/full", os.O_WRONLY), "No space left on device"), (left, "Broken pipe")):
        done = subprocess.run(
            command, stdout=output, stderr=subprocess.PIPE, env=env, text=True, check=False, timeout=30
        )
        os.close(output)
        assert (done.returncode, done.stderr) == (1, f"agent: cannot write: {why}\n")


@pytest.mark.process
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
def test_where_nothing_can_be_said_at_all_the_exit_code_is_left() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*AGENT, *QUIET, "-p", "hello"], stdout=full, stderr=full, check=False, timeout=30)
    assert done.returncode == 1


# The agent, with all patience for a command that shall end.
PATIENT = """
import runpy
from agent.processes import tree
tree.TERM_GRACE = 1000.0
runpy.run_module("agent", run_name="__main__")
"""


@pytest.mark.process
def test_a_second_signal_does_not_wait_for_a_command_that_will_not_end() -> None:
    os.mkfifo("pid")
    command = "trap '' TERM; echo $$ > pid; while :; do read x < never; done"
    os.mkfifo("never")
    prompt = f'TOOL:exec {{"command":"{command}"}}'
    line = [sys.executable, "-P", "-c", PATIENT, *QUIET, "-p", prompt]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        pid = int(Path("pid").read_text())
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        assert any("! aborting" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        assert process.wait(25) == 130
        assert not Path(f"/proc/{pid}").exists()


def test_what_was_cut_short_is_told_when_the_session_goes_on(capsys: pytest.CaptureFixture[str], sessions: str) -> None:
    command = [sys.executable, "-P", "-m", "agent", "--no-hooks", "--session-dir", sessions]
    killed = subprocess.run(
        [*command, "-p", 'TOOL:exec {"command":"kill -9 $PPID"}'], capture_output=True, check=False, timeout=20
    )
    assert killed.returncode == -signal.SIGKILL
    assert run_once(parse_options([*command[4:], "--continue", "-p", "hello"])) == 0
    assert capsys.readouterr().err.startswith("! the session was interrupted: 1 tool call of it sealed")


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ("more", "✓ the conversation is compacted"),
        ("SUMMARY_ERROR", "! could not compact the conversation: the conversation"),
    ],
)
def test_a_compaction_is_told(capsys: pytest.CaptureFixture[str], sessions: str, last: str, told: str) -> None:
    flags = ["--no-hooks", "--session-dir", sessions, "--context-tokens", "19000", "--no-tools", "--continue"]
    for prompt in (f"{last} " + "x" * 9_000, "y", "z"):
        assert run_once(parse_options([*flags, "-p", prompt])) == 0
    err = capsys.readouterr().err.splitlines()
    assert "· the conversation is being compacted (threshold)" in err
    assert any(line.startswith(told) for line in err)


def test_a_warning_is_told_and_what_ends_the_run_only_at_its_end() -> None:
    err = Terminal()
    told = Front(RunView(Terminal(), err, {}))
    for severity in ("warn", "error"):
        told.emit("error", {"severity": severity, "message": "trying\nagain \x1b[2J"})
    assert err.getvalue() == "! trying again \\x1b[2J\n"


# --- the streams of a process -----------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize(
    ("prompt", "redirections", "code", "out", "err"),
    [
        ("ECHO:äé", "", 0, "??\n", ""),
        ("TOOL:ls {} ECHO:hi", "2>&-", 0, "hi\n", ""),
        ("TOOL:nothing {} ECHO:hi", ">&-", 0, "", "? nothing\n  ? failed: there is no tool"),
        ("ECHO:hi", "<&-", 0, "hi\n", ""),
        ("PIECES=100000", "| head -c 7; exit ${PIPESTATUS[0]}", 1, "piece 0", "agent: cannot write: Broken pipe"),
    ],
)
def test_whatever_the_streams_are_it_says_what_it_can(
    prompt: str, redirections: str, code: int, out: str, err: str
) -> None:
    line = f"{' '.join(AGENT)} -p '{prompt}' {redirections}"
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stdout) == (code, out)
    assert done.stderr.startswith(err)
    assert bool(done.stderr) is bool(err)


class Person(NamedTuple):
    """``read_until`` reads on until something is there, and returns all that was read; ``answer`` types a line."""

    read_until: Callable[[str], str]
    answer: Callable[[str], object]


@contextmanager
def on_a_terminal(*arguments: str, columns: int) -> Iterator[Person]:
    """The agent on a terminal."""
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "", "NO_COLOR": ""}
    seen = ""

    def read_until(wanted: str) -> str:
        nonlocal seen
        while wanted not in seen:
            seen += os.read(master, 65536).decode(errors="replace").replace("\r\n", "\n")
        return seen

    process = subprocess.Popen([*AGENT, *arguments], stdin=terminal, stdout=terminal, stderr=terminal, env=env)
    os.close(terminal)
    try:
        with process:
            yield Person(read_until, lambda line: os.write(master, f"{line}\n".encode()))
    finally:
        process.kill()
        os.close(master)


@pytest.mark.process
def test_on_a_terminal_a_command_is_watched_while_it_runs() -> None:
    os.mkfifo("go")
    command = json.dumps({"command": "printf 'half%s\\033[2J\\n' way; read x < go; echo all"})
    with on_a_terminal("-p", f"TOOL:exec {command} ECHO:it is done", columns=40) as (read_until, _):
        read_until("\x1b[2m  │ halfway\x1b[0m\n")  # and it runs on: it waits for us
        Path("go").write_text("now\n")
        shown = read_until("it is done\n")
    assert "\x1b[2J" not in shown
    begun, ended, answer = screen_of(shown)
    assert (len(begun), begun[-1]) == (39, "…")
    assert (ended.startswith("  ✓ ok, code 0 ("), answer) == (True, "it is done")


@pytest.mark.process
def test_on_a_terminal_a_call_that_needs_approval_is_asked_about_there() -> None:
    word = json.dumps({"command": "touch made\necho done"})
    flags = ("--require-approval", "exec", "-p", f"TOOL:exec {word} TELL")
    with on_a_terminal(*flags, columns=80) as (read_until, answer):
        shown = read_until("y(es), or n(o)")
        assert "│ touch made\n" in shown
        assert "│ echo done\n" in shown
        assert not Path("made").exists()
        answer("y")
        read_until("done\n")
    assert Path("made").exists()


@pytest.mark.process
def test_a_no_there_may_say_why_and_a_long_call_is_allowed_when_it_was_shown() -> None:
    long = json.dumps({"command": "true\n" * 100 + "touch made"})
    flags = ("--require-approval", "exec", "-p", f"TOOL:exec {long} TELL")
    with on_a_terminal(*flags, columns=80) as (read_until, answer):
        read_until("are hidden: a(ll of it), or n(o)")
        answer("y")
        read_until("is longer than what was shown of it")
        answer("")
        read_until("are hidden: a(ll of it), or n(o)")
        answer("a")
        assert "touch made" in read_until("y(es), or n(o)")
        answer("no not on a Friday")
        read_until("the user does not allow it")
    assert not Path("made").exists()


@pytest.mark.process
def test_the_prompt_may_come_from_stdin() -> None:
    done = subprocess.run([*AGENT, "-p", "-"], input="ECHO:from there\n", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "from there\n")
    odd = subprocess.run([*AGENT, "-p", "-"], input=b"\xff", capture_output=True, check=False)
    assert (odd.returncode, odd.stderr.startswith(b"agent: what stdin holds is not UTF-8 text")) == (1, True)
    empty = subprocess.run([*AGENT, "-p", "-"], input=" \n", capture_output=True, text=True, check=False)
    assert (empty.returncode, empty.stderr) == (1, "agent: the prompt is empty; say something\n")
