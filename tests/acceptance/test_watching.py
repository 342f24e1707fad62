"""A prompt shows what its tools do while they do it, on a terminal and in the background."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.supervisor import LONGEST_YIELD_MS, POOL, Supervisor, running_supervisor, tool
from tests.wire.terminals import screen_of

pytestmark = pytest.mark.process


class Gate:
    """A command that says ``halfway``, which is not in its text, and goes on when the test lets it."""

    def __init__(self, folder: Path, **given: Any) -> None:
        self._fifo = folder / "gate"
        os.mkfifo(self._fifo)
        command = f"printf 'half%s\\n' way; read word < {self._fifo}; echo all of it"
        self.call = tool(command, **{"yield_ms": LONGEST_YIELD_MS, **given})

    def open(self) -> None:
        self._fifo.write_text("go\n")


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    with running_supervisor(tmp_path_factory.mktemp("w"), "--max", "1") as running:
        yield running


@contextmanager
def on_a_terminal(supervisor: Supervisor, *arguments: str) -> Iterator[Callable[[str], str]]:
    """A ``pool`` command on a terminal of 40 columns; the function reads on until something is there."""
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "", "NO_COLOR": "", "POOL_SOCKET": str(supervisor.socket)}
    seen = ""

    def read_until(wanted: str) -> str:
        nonlocal seen
        while wanted not in seen:
            seen += os.read(master, 65536).decode(errors="replace").replace("\r\n", "\n")
        return seen

    process = subprocess.Popen([*POOL, *arguments], stdin=terminal, stdout=terminal, stderr=terminal, env=env)
    os.close(terminal)
    try:
        with process:
            yield read_until
    finally:
        process.kill()
        os.close(master)


def test_on_a_terminal_they_are_drawn_in_place_and_gone_at_the_end(supervisor: Supervisor, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with on_a_terminal(supervisor, "prompt", "-s", "drawn", f"{gate.call} ECHO:it is done") as read_until:
        read_until("\x1b[2m  │ halfway\x1b[0m\n")
        gate.open()
        begun, ended, answer = screen_of(read_until("it is done\n"))
    assert (len(begun), begun[-1]) == (39, "…")
    assert ended.startswith("  ✓ ok, code 0 (")
    assert answer == "it is done"


def test_a_command_that_goes_to_the_background_is_named_and_its_end_told(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    gate = Gate(tmp_path, background=True)
    poll = 'TOOL:process {"action": "poll", "session_id": "$SESSION"}'
    command = supervisor.start("prompt", "-s", "named", f"{gate.call} {poll} DELAY=100000 ECHO:late")
    assert command.stderr is not None
    lines = iter(command.stderr)
    next(lines)
    named = next(lines)
    assert named.startswith("  … still running in the background as ")
    gate.open()
    told = next(line for line in lines if line.startswith("· Exec completed"))
    assert f"({named.split()[7]}, code 0)" in told
    supervisor.call("abort", session="named")
    command.communicate(timeout=20)
