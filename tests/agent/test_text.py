"""``agent -p``: what a person sees, and what a script gets to know from the exit code."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.options import parse_options
from agent.text import run_once

QUIET = ("--no-session", "--no-hooks")


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
    assert err[-1] == "! commands that still ran in the background are stopped: 1"
    assert not Path(f"/proc/{Path('pid').read_text().strip()}").exists()


def test_where_nobody_can_be_asked_nothing_that_needs_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, 'TOOL:exec {"command":"touch ran"}', "--permission-mode", "approval")
    assert code == 0
    assert err[1:] == [
        "? needs approval, and nobody can be asked here: exec touch ran",
        "  ✗ denied: the user does not allow it.",
    ]
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("prompt", "flags", "code", "complaint"),
    [
        ("LENGTH", (), 0, None),
        ("ERROR", (), 1, "agent: the scripted model was asked to fail"),
        ("TOOL:nothing {} FOREVER", ("--max-steps", "2"), 4, None),
        ("HANG", ("--timeout", "0.05"), 124, "agent: the run took longer than 0.05 s"),
    ],
)
def test_the_exit_code_tells_how_it_ended(
    capsys: pytest.CaptureFixture[str], prompt: str, flags: tuple[str, ...], code: int, complaint: str | None
) -> None:
    ended, _, err = run(capsys, prompt, *flags)
    assert ended == code
    assert complaint is None or err[-1] == complaint


def test_a_conversation_in_the_terminal_can_be_continued(capsys: pytest.CaptureFixture[str], sessions: str) -> None:
    for prompt in ("one", "RECALL"):
        flags = ["--no-hooks", "--session-dir", sessions, *(["--continue"] if prompt == "RECALL" else [])]
        assert run_once(parse_options(["-p", prompt, *flags])) == 0
    assert capsys.readouterr().out.splitlines()[-1] == 'Earlier you said: ["one"]'


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_the_commands_that_it_runs(number: signal.Signals) -> None:
    os.mkfifo("pid")
    command = 'TOOL:exec {"command":"echo $$ > pid; exec sleep 60"}'
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "agent", *QUIET, "-p", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        pid = int(Path("pid").read_text())
        process.send_signal(number)
        assert process.wait(20) == 128 + number
        assert not Path(f"/proc/{pid}").exists()
