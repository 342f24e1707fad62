"""A command in the background that ends when a test says so, and the events that tell of it."""

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.acceptance.supervisor import Supervisor


class Build:
    """A command that ends when the test says so."""

    def __init__(self, folder: Path, name: str = "fifo") -> None:
        self._fifo = folder / name
        os.mkfifo(self._fifo)
        command = f"read word < {self._fifo}; echo built $word"
        call = msgspec.json.encode({"command": command, "background": True}).decode()
        self.prompt = f"TOOL:exec {call}"

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


@contextmanager
def following(supervisor: Supervisor, *kinds: str) -> Iterator[Iterator[dict[str, Any]]]:
    """All monitor events of these types from the first one on, as they are told."""
    types = [word for kind in kinds for word in ("--type", kind)]
    follower = supervisor.start("events", "follow", "--since", "0", "--no-reconnect", "--json", *types)
    assert follower.stdout is not None
    try:
        yield map(msgspec.json.decode, follower.stdout)
    finally:
        follower.send_signal(signal.SIGINT)
        follower.communicate(timeout=20)
