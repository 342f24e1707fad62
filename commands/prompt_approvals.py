"""Approvals in ``pool prompt`` on a terminal: a line typed below the question decides, while events go on."""

import os
import select
import threading
from collections.abc import Callable

from errors import PoolError

HINT = "y allows it, n denies it, n and a text says why; then Enter. Or from elsewhere:"
Decide = Callable[[str, str, str | None], None]
"""Takes the id of a call, ``allow`` or ``deny``, and a note. Raises PoolError where the decision is not taken."""


class LineApprovals:
    """Reads from the terminal only while a question is open, so that what is typed otherwise is the shell's.

    A thread waits for the line: the events of the run come on a connection that blocks.
    """

    def __init__(self, terminal: int, decide: Decide, say: Callable[[str], None]) -> None:
        """``terminal``: its descriptor, in line mode. ``say``: print a line about an answer; from that thread too."""
        self._terminal = terminal
        self._decide = decide
        self._say = say
        self._open: list[str] = []
        self._changed, self._change = os.pipe()
        self._thread: threading.Thread | None = None

    def ask(self, call_id: str) -> None:
        """A question is open; the oldest one is answered first."""
        self._open.append(call_id)
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()

    def decided(self, call_id: str) -> None:
        """It is closed, by a person anywhere, or by the end of its turn."""
        if call_id in self._open:
            self._open.remove(call_id)
            os.write(self._change, b".")

    def _read(self) -> None:
        while self._open:
            ready, _, _ = select.select([self._terminal, self._changed], [], [])
            if self._changed in ready:
                os.read(self._changed, 1)
            elif not (line := os.read(self._terminal, 4096)):
                return  # the terminal's end: others may still decide
            elif self._open:
                self._answer(self._open[0], line.decode(errors="replace").strip())

    def _answer(self, call_id: str, line: str) -> None:
        word, _, note = line.partition(" ")
        decision = {"y": "allow", "yes": "allow", "n": "deny", "no": "deny"}.get(word.lower())
        if decision is None or (note and decision == "allow"):
            self._say("type y, n, or n and why not")
            return
        try:
            self._decide(call_id, decision, note or None)
        except PoolError as error:
            self._say(error.message)
