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
        self._lock = threading.Lock()
        """For what follows: the thread ends only where no question has come meanwhile."""
        self._open: list[str] = []
        self._is_reading = False
        self._changed, self._change = os.pipe()

    def ask(self, call_id: str) -> None:
        """A question is open; the oldest one is answered first."""
        with self._lock:
            self._open.append(call_id)
            if self._is_reading:
                return
            self._is_reading = True
        threading.Thread(target=self._read, daemon=True).start()

    def decided(self, call_id: str) -> None:
        """It is closed, by a person anywhere, or by the end of its turn."""
        with self._lock:
            if call_id not in self._open:
                return
            self._open.remove(call_id)
        os.write(self._change, b".")

    def _read(self) -> None:
        while self._oldest() is not None:
            ready, _, _ = select.select([self._terminal, self._changed], [], [])
            if self._changed in ready:
                os.read(self._changed, 1)
            elif not (line := os.read(self._terminal, 4096)):
                with self._lock:
                    self._is_reading = False
                return  # the terminal's end: others may still decide
            elif call_id := self._oldest():
                self._answer(call_id, line.decode(errors="replace").strip())
            else:
                return

    def _oldest(self) -> str | None:
        """The question that a line answers; with None the thread is to end, and the next question starts another."""
        with self._lock:
            self._is_reading = bool(self._open)
            return self._open[0] if self._open else None

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
