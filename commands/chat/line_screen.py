"""``pool chat`` on a terminal that only prints lines (``TERM=dumb``): no editor, no status line. It decides nothing."""

import concurrent.futures
import os
import queue
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from commands.chat.effects import CallText, Effect, GiveBack, Leave, Line, Markdown, Request
from commands.chat.link import ChatLink
from commands.chat.machine import ChatMachine
from commands.chat.status import shown_lines, wrapped_parts
from errors import PoolError
from wire.call_page import page_lines
from wire.messages import EventEnvelope
from wire.terminal import clean, clean_stream

_WELCOME = "plain lines, since TERM={}: Enter sends, /help lists commands, Ctrl-C aborts the turn, Ctrl-D leaves\n"
_MIN_COLUMNS = 10
_Decide = Callable[[], list[Effect]]


class LineScreen:
    """One chat, line by line. What comes from other threads waits in a queue that the main thread works off."""

    def __init__(self, machine: ChatMachine, socket: Path, session: str) -> None:
        """``socket``: of the supervisor."""
        self._machine = machine
        self._link = ChatLink(socket, session, self)
        self._arrived: queue.SimpleQueue[tuple[_Decide, concurrent.futures.Future[None]]] = queue.SimpleQueue()
        self._code: int | None = None
        self._error: BaseException | None = None
        self._is_at_prompt = False
        self._said_wait = ""

    def run(self, client: Any) -> int:
        """Chat until it is left; the exit code. ``client``: the first connection. Raises what ended the events."""
        _write(_WELCOME.format(clean(os.environ.get("TERM", ""))))
        # the handler must not raise: an effect would be cut short
        before = signal.signal(signal.SIGINT, lambda *_: self._put(lambda: self._machine.interrupt(time.monotonic())))
        try:
            self._link.start(client)
            threading.Thread(target=self._read, daemon=True).start()
            while self._code is None:
                self._step()
        finally:
            signal.signal(signal.SIGINT, before)
        if self._error is not None:
            raise self._error
        return self._code

    def _step(self) -> None:
        wakeup = self._machine.next_wakeup()
        try:
            decide, done = self._arrived.get(timeout=None if wakeup is None else max(0.0, wakeup - time.monotonic()))
        except queue.Empty:
            self._act(self._machine.wake(time.monotonic()))
            return
        try:
            self._act(decide())
        finally:
            done.set_result(None)

    def _put(self, decide: _Decide) -> concurrent.futures.Future[None]:
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._arrived.put((decide, done))
        return done

    # --- what is typed, in a thread ---

    def _read(self) -> None:
        """Lines, until the terminal is gone or says its end: no buffer of Python's is held when the program ends."""
        pending = b""
        while piece := os.read(sys.stdin.fileno(), 65_536):
            *lines, pending = (pending + piece).split(b"\n")
            for line in lines:
                self._put(partial(self._entered, line.decode(errors="replace")))
        self._put(self._machine.leave)

    def _entered(self, text: str) -> list[Effect]:
        self._is_at_prompt = False  # the terminal has shown what was typed, and its end of line
        return self._machine.submit(text, None)

    # --- what comes from the supervisor, from other threads ---

    def on_events(self, events: list[EventEnvelope]) -> None:
        """Print them, and return when that is done."""
        self._put(lambda: self._machine.events(events)).result()

    def on_connection(self, *, is_there: bool) -> None:
        """It is there."""
        self._put(lambda: self._machine.connection(is_there=is_there))

    def on_notice(self, text: str) -> None:
        """Say it."""
        self._put(lambda: self._machine.notice(text))

    def on_answer(self, request: Request, result: Any) -> None:
        """A result, or an error."""
        if isinstance(result, PoolError):
            self._put(lambda: self._machine.failed(request, result, time.monotonic()))
        else:
            self._put(lambda: self._machine.answered(request, result, time.monotonic()))

    def on_end(self, error: BaseException) -> None:
        """Nothing will come any more: the chat ends with this error."""
        self._put(lambda: self._fail(error))

    def _fail(self, error: BaseException) -> list[Effect]:
        self._error = self._error or error
        return [Leave(1)]

    # --- effects ---

    def _act(self, effects: list[Effect]) -> None:
        self._print("".join(self._rendered(effects)))
        for effect in effects:
            match effect:
                case Request():
                    self._link.send(effect)
                case Leave(code=code):
                    self._code = code
        if self._code is None:
            self._print(self._wait_line())
            self._ask()

    def _rendered(self, effects: list[Effect]) -> Iterator[str]:
        columns = _columns()
        for effect in effects:
            match effect:
                case Line():
                    yield from (f"{line}\n" for line in shown_lines(effect, columns))
                case Markdown():
                    yield f"{clean_stream(effect.text).rstrip()}\n\n"
                case CallText():
                    yield from (f"  {part.text}\n" for part in page_lines(effect.page, columns - 2))
                case GiveBack():
                    yield f"not sent: {clean(effect.text)}\n"

    def _wait_line(self) -> str:
        """Why a message waits, when that has changed."""
        before, self._said_wait = self._said_wait, self._machine.waits_for
        return f"... waits: {clean(self._said_wait)}\n" if self._said_wait not in ("", before) else ""

    def _ask(self) -> None:
        """Where something is to be typed now, say so: the answer to a question, or a message."""
        asks = self._machine.transcript.questions.keys
        if not self._is_at_prompt and (asks or not self._machine.is_busy):
            lines = [f"{line}\n" for line in wrapped_parts(asks, _columns())] if asks else []
            _write("".join([*lines, "? " if asks else "> "]))
            self._is_at_prompt = True

    def _print(self, text: str) -> None:
        if text:
            _write(f"\n{text}" if self._is_at_prompt else text)
            self._is_at_prompt = False


def _columns() -> int:
    return max(_MIN_COLUMNS, shutil.get_terminal_size().columns - 1)


def _write(text: str) -> None:
    encoding = sys.stdout.encoding
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))  # not every terminal has every sign
    sys.stdout.flush()
