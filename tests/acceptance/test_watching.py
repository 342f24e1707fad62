"""Whoever runs a prompt through the pool sees what its tools do while they do it, and what is asked of a person."""

import fcntl
import json
import os
import pty
import shlex
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
    """Its agent ``asking`` asks about every call."""
    place = tmp_path_factory.mktemp("w")
    settings = f'[agents.main]\n[agents.asking]\nworkspace = "{place}/work"\npermission_mode = "approval"\n'
    (place / "work").mkdir()
    with running_supervisor(place, "--max", "1", settings=settings) as running:
        yield running


def events_of(command: "subprocess.Popen[str]", kind: str, **part: Any) -> Iterator[dict[str, Any]]:
    """The data of events of that kind that hold these parts, as they come."""
    assert command.stdout is not None
    for line in command.stdout:
        event = json.loads(line)
        if event.get("type") == kind and part.items() <= event["data"].items():
            yield event["data"]


def test_updates_of_a_command_arrive_while_it_runs(supervisor: Supervisor, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    command = supervisor.start("prompt", "-s", "updates", "--json", gate.call)
    update = next(events_of(command, "tool:update", tail="halfway\n"))
    assert update["details"]["status"] == "running"
    gate.open()  # only now it can end
    end = next(events_of(command, "tool:end"))
    assert (end["details"]["status"], end["details"]["exit_code"]) == ("completed", 0)
    assert command.stdout is not None
    *_, last = command.stdout
    assert json.loads(last)["outcome"]["status"] == "ok"


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


def test_what_to_type_about_a_call_can_be_copied(supervisor: Supervisor) -> None:
    command = supervisor.start("prompt", "-s", "it's alice", "-a", "asking", f"{tool('echo once >> made')} TELL")
    assert command.stderr is not None
    lines = iter(command.stderr)
    commands = (shlex.split(line) for line in lines if line.strip().startswith("pool "))
    approve, deny = next(commands), next(commands)
    assert [words[:2] for words in (approve, deny)] == [["pool", "approve"], ["pool", "deny"]]
    assert supervisor.pool(*deny[1:]).returncode == 0
    assert "✗ exec echo once >> made: denied" in command.communicate(timeout=20)[1]
    assert not (supervisor.data_dir / "work" / "made").exists()
    assert supervisor.pool(*approve[1:]).returncode == 2


def test_what_was_cut_short_is_told_when_the_session_goes_on(supervisor: Supervisor) -> None:
    assert supervisor.pool("prompt", "-s", "cut", tool("kill -9 $PPID")).returncode == 1
    again = supervisor.pool("prompt", "-s", "cut", "hello")
    assert (again.returncode, again.stderr) == (0, "! the session was interrupted; tool calls sealed: 1\n")
