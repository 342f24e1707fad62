"""A command that ends when a test says so, in the background unless that is said."""

import errno
import os
from pathlib import Path
from typing import Any

import msgspec

from tests.acceptance.supervisor import Supervisor, tool


class Build:
    """Its ``prompt`` has the bundled agent begin it."""

    def __init__(self, folder: Path, name: str = "fifo", *, first: str = "true", **given: Any) -> None:
        """``first``: a command that runs before it waits; ``given``: other arguments of the tool."""
        self._fifo = folder / name
        os.mkfifo(self._fifo)
        self.prompt = tool(f"{first}; read word < {self._fifo}; echo built $word", **(given or {"background": True}))

    def end(self, word: str = "well") -> None:
        """Waits until it has got as far as to wait for that."""
        self._fifo.write_text(f"{word}\n")

    @property
    def is_alive(self) -> bool:
        """Whether anybody waits there, once it has got so far."""
        try:
            os.close(os.open(self._fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as exc:
            if exc.errno != errno.ENXIO:
                raise
            return False
        return True


def pending(supervisor: Supervisor, session: str) -> list[str]:
    """The events that wait for the session's next turn."""
    done = supervisor.pool("events", "peek", "-s", session, "--json")
    assert done.returncode == 0, done.stderr
    return [event["text"] for event in msgspec.json.decode(done.stdout)["events"]]
