"""``pool top`` on a real terminal: it draws, it obeys its keys, it leaves the terminal as it was."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.child import SupervisorProcess

pytestmark = pytest.mark.process

LIMIT = 90.0


class TopProcess:
    """The program, its terminal, and all that it has written there."""

    def __init__(self, master: int, process: "subprocess.Popen[bytes]") -> None:
        self.master = master
        self.process = process
        self.written = ""

    def read_until(self, wanted: str, since: int = 0) -> None:
        """Read what it writes until ``wanted`` is there, behind the first ``since`` characters."""
        deadline = time.monotonic() + LIMIT
        while wanted not in self.written[since:]:
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{wanted!r} was not drawn: {self.written[-2000:]}"
            self.written += os.read(self.master, 65536).decode(errors="replace")

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())


@contextmanager
def running_top(socket: Path, **env: str) -> Iterator[TopProcess]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(slave)
    command = [sys.executable, "-m", "cli", "top", "--socket", str(socket)]
    env = {**os.environ, "TERM": "xterm-256color", **env}
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=env)
    try:
        yield TopProcess(master, process)
        assert termios.tcgetattr(slave) == before
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


def test_it_shows_what_goes_on_outlives_its_supervisor_and_obeys_its_keys(short_dir: Path) -> None:
    with SupervisorProcess(short_dir) as first, running_top(first.socket, NO_COLOR="1") as top:
        top.read_until("q quit")
        assert "\x1b[?1049h" in top.written
        os.kill(first.pid, signal.SIGKILL)
        top.read_until("trying again")
        with SupervisorProcess(short_dir) as second, second.connect() as client:
            since = len(top.written)
            client.call("agent", {"session": "watched", "text": "ECHO:seen from the terminal"})
            top.read_until("seen from the terminal", since)
            top.read_until("READY", since)
            assert not [code for code in ("\x1b[31m", "\x1b[32m", "\x1b[36m") if code in top.written]
            top.press(" ")
            top.read_until("held")
            command = [sys.executable, "-m", "cli", "top", "--socket", str(second.socket)]
            nowhere = subprocess.run(
                command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT, check=False
            )
            assert (nowhere.returncode, "pool status" in nowhere.stderr) == (2, True), "there is no terminal"
            top.press("q")
            assert top.process.wait(LIMIT) == 0
            top.read_until("\x1b[?1049l")
