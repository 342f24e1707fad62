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

from commands.demo import SupervisorProcess

pytestmark = pytest.mark.process

LIMIT = 90.0


class TopProcess:
    """The program, its terminal, and all that it has written there."""

    def __init__(self, socket: Path, master: int, process: "subprocess.Popen[bytes]") -> None:
        self.socket = socket
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
    process = subprocess.Popen(
        [sys.executable, "-m", "cli", "top", "--socket", str(socket)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", **env},
    )
    try:
        yield TopProcess(socket, master, process)
        assert termios.tcgetattr(slave) == before
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


def test_it_shows_what_goes_on_holds_and_quits(short_dir: Path) -> None:
    with (
        SupervisorProcess(short_dir) as supervisor,
        supervisor.connect() as client,
        running_top(supervisor.socket, NO_COLOR="1") as top,
    ):
        top.read_until("q quit")
        assert "\x1b[?1049h" in top.written
        client.call("agent", {"session": "watched", "text": "ECHO:seen from the terminal"})
        top.read_until("seen from the terminal")
        top.read_until("READY")
        assert not [code for code in ("\x1b[31m", "\x1b[32m", "\x1b[36m") if code in top.written]
        top.press(" ")
        top.read_until("held")
        top.press("q")
        assert top.process.wait(LIMIT) == 0
        top.read_until("\x1b[?1049l")


def test_it_outlives_its_supervisor_and_shows_the_next_one(short_dir: Path) -> None:
    with SupervisorProcess(short_dir) as first, running_top(first.socket) as top:
        top.read_until("q quit")
        os.kill(first.pid, signal.SIGKILL)
        top.read_until("trying again")
        with SupervisorProcess(short_dir) as second, second.connect() as client:
            since = len(top.written)
            client.call("agent", {"session": "anew", "text": "ECHO:shown again"})
            top.read_until("shown again", since)
            top.press("q")
            assert top.process.wait(LIMIT) == 0


def test_where_there_is_no_terminal_it_says_what_to_use_instead(short_dir: Path) -> None:
    with SupervisorProcess(short_dir) as supervisor:
        command = [sys.executable, "-m", "cli", "top", "--socket", str(supervisor.socket)]
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT, check=False
        )
    assert done.returncode == 2
    assert "pool status" in done.stderr
