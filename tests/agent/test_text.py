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


ALL_CALLS = "agent: the agent was not done: it has made all model calls that one run may (--max-steps)"


@pytest.mark.parametrize(
    ("prompt", "flags", "code", "complaint"),
    [
        ("LENGTH", (), 5, "agent: the answer is cut off: it has reached the model's limit"),
        ("ERROR", (), 1, "agent: the scripted model was asked to fail"),
        ("TOOL:nothing {} FOREVER", ("--max-steps", "2"), 5, ALL_CALLS),
        ("HANG", ("--timeout", "0.05"), 4, "agent: the run took longer than 0.05 s"),
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


def test_a_warning_is_told_and_what_ends_the_run_only_at_its_end() -> None:
    err = Terminal()
    told = Front(RunView(Terminal(), err, {}))
    for severity in ("warn", "error"):
        told.emit("error", {"severity": severity, "message": "trying\nagain \x1b[2J"})
    told.emit("compaction", {"phase": "end", "aborted": True})
    assert err.getvalue() == "! trying again \\x1b[2J\n! not compacted: the run was ended\n"


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


@pytest.mark.parametrize(
    ("last", "told"),
    [("more", "✓ the conversation is compacted"), ("SUMMARY_ERROR", "! could not compact the conversation: ")],
)
def test_a_compaction_is_told(capsys: pytest.CaptureFixture[str], sessions: str, last: str, told: str) -> None:
    flags = ["--no-hooks", "--session-dir", sessions, "--context-tokens", "19000", "--no-tools", "--continue"]
    for prompt in (f"{last} " + "x" * 9_000, "y", "z"):
        assert run_once(parse_options([*flags, "-p", prompt])) == 0
    err = capsys.readouterr().err.splitlines()
    assert "· the conversation is being compacted (threshold)" in err
    assert any(line.startswith(told) for line in err)


@pytest.mark.process
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
@pytest.mark.parametrize(
    ("arguments", "redirections", "code", "out", "err"),
    [
        ("-p 'ECHO:äé'", "", 0, "??\n", ""),
        ("-p 'TOOL:ls {} ECHO:hi'", "2>&-", 0, "hi\n", ""),
        ("-p 'TOOL:nothing {} ECHO:hi'", ">&-", 0, "", "? nothing\n  ? failed: there is no tool"),
        ("-p ECHO:hi", "<&-", 0, "hi\n", ""),
        ("-p PIECES=100000", "| head -c 7; exit ${PIPESTATUS[0]}", 1, "piece 0", "agent: cannot write: Broken pipe"),
        ("-p hello", ">/dev/full", 1, "", "agent: cannot write: No space left on device\n"),
        ("--help", ">/dev/full", 1, "", "agent: cannot write: No space left on device\n"),
        ("-p hello", ">/dev/full 2>&1", 1, "", ""),
        ("-p -", "<<< ECHO:there", 0, "there\n", ""),
        ("-p -", "<<< $'\\xff'", 1, "", "agent: what stdin holds is not UTF-8 text"),
        ("-p -", "<<< ' '", 1, "", "agent: the prompt is empty; say something\n"),
    ],
)
def test_whatever_the_streams_are_it_says_what_it_can(
    arguments: str, redirections: str, code: int, out: str, err: str
) -> None:
    line = f"{' '.join(AGENT)} {arguments} {redirections}"
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stdout) == (code, out)
    assert done.stderr.startswith(err)
    assert bool(done.stderr) is bool(err)
