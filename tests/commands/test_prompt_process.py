"""``pool prompt`` on a real terminal: it says why it waits, and asks for approval right there."""

import sys
from pathlib import Path

import pytest

from app.child import SupervisorProcess
from tests.commands.terminal import on_a_terminal

pytestmark = pytest.mark.process

PROMPT = (sys.executable, "-m", "cli", "prompt", "--socket")
SETTINGS = '[pool]\nmax = 1\nmin = 0\n[agents.main]\npermission_mode = "approval"\n'
CALL = 'TOOL:exec {"command": "echo 4$((2*1))"}'


def test_it_says_why_it_waits_and_a_typed_line_decides(short_dir: Path) -> None:
    with SupervisorProcess(short_dir, SETTINGS) as supervisor, supervisor.connect() as client:
        client.call("agent", {"session": "hog", "text": "HANG", "run": "hog"})
        answer = short_dir / "answer.txt"
        command = ["sh", "-c", f'"$@" > {answer}', "sh"]
        command += [*PROMPT, str(supervisor.socket), "-s", "ada", f"{CALL}\nTELL"]
        with on_a_terminal(command, columns=200, NO_COLOR="1") as prompt:
            prompt.read_until_shown("… waits: the pool is full", "(place 1 in the queue)")
            client.call("abort", {"session": "hog", "run": "hog"})
            prompt.read_until_shown("y allows it, n denies it")
            prompt.press("what\n")
            prompt.read_until_shown("type y, n, or n and why not")
            prompt.press("y\n")
            prompt.read_until_shown("✓ exec echo")
            assert prompt.process.wait(90) == 0
        assert answer.read_text() == "42\n"


def test_a_decision_elsewhere_leaves_what_is_typed_to_the_shell(short_dir: Path) -> None:
    with SupervisorProcess(short_dir, SETTINGS) as supervisor, supervisor.connect() as client:
        command = ["sh", "-c", 'trap : INT; "$@"; read line; echo "the shell read $line"', "sh"]
        command += [*PROMPT, str(supervisor.socket), "-s", "ada", f"{CALL}\n{CALL}"]
        with on_a_terminal(command, columns=200, NO_COLOR="1") as prompt:
            prompt.read_until_shown("y allows it, n denies it")
            first = client.call("approvals.list")[0]["call"]["id"]
            prompt.press("n not that one\n")
            prompt.read_until_shown("not that one", "denied")
            while not (asked := [one["call"]["id"] for one in client.call("approvals.list")]) or asked == [first]:
                prompt.read_until_shown("y allows it")
            client.call("decide", {"call_id": asked[0], "decision": "allow", "session": "ada"})
            prompt.read_until_shown("allow " + asked[0])
            prompt.press("this\n")
            prompt.read_until_shown("the shell read this")
