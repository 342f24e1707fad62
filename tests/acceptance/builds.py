"""A command in the background that ends when a test says so."""

import errno
import os
from pathlib import Path

import msgspec

from tests.acceptance.supervisor import Supervisor, tool


class Build:
    """Its ``prompt`` has the bundled agent begin it."""

    def __init__(self, folder: Path, name: str = "fifo") -> None:
        self._fifo = folder / name
        os.mkfifo(self._fifo)
        self.prompt = tool(f"read word < {self._fifo}; echo built $word", background=True)

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
