"""``pool top`` on a real terminal: it draws, it obeys its keys, it leaves the terminal as it was."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.child import SupervisorProcess
from tests.commands.terminal import on_a_terminal

pytestmark = pytest.mark.process

TOP = (sys.executable, "-m", "cli", "top", "--socket")


def test_it_shows_what_goes_on_outlives_its_supervisor_and_obeys_its_keys(short_dir: Path) -> None:
    with SupervisorProcess(short_dir) as first, on_a_terminal([*TOP, str(first.socket)], NO_COLOR="1") as top:
        top.read_until("q quit")
        assert "\x1b[?1049h" in top.written
        os.kill(first.pid, signal.SIGKILL)
        top.read_until("trying again")
        with SupervisorProcess(short_dir) as second, second.connect() as client:
            since = len(top.written)
            client.call("agent", {"session": "watched", "text": "ECHO:seen from the terminal"})
            top.read_until("seen from the terminal", since)
            top.read_until("idle", since)
            assert not [code for code in ("\x1b[31m", "\x1b[32m", "\x1b[36m") if code in top.written]
            top.press("\r")
            top.read_until("SESSION watched", since)
            since = len(top.written)
            client.call("agent", {"session": "watched", "text": "ECHO:said while it was open"})
            top.read_until("said while it was open", since)
            top.press("\x1b")
            top.read_until("LAST LINE", since)
            top.press(" ")
            top.read_until("held")
            command = [*TOP, str(second.socket)]
            nowhere = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
            assert (nowhere.returncode, "pool status" in nowhere.stderr) == (2, True), "there is no terminal"
            top.press("q")
            assert top.process.wait(90) == 0
            top.read_until("\x1b[?1049l")
