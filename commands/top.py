"""Pool top loop.

``pool top``: the dashboard's picture in a terminal: workers, waiters, sessions, events, how long things take.

Single keys of a terminal: read as they are pressed, without being shown, and the terminal as it was at the end.

``pool top`` as it runs: a thread follows the events; the main one asks for the status, draws, reads the keyboard.
"""

import contextlib
import os
import select
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
from rich.console import Console
from rich.live import Live

from commands.events import Follower
from commands.top_view import Picture, draw
from doors.control.client import ControlClient, read_envelopes
from errors import PoolError, UsageError
from wire.terminal import can_style, wants_styles

_MOST = 64


@contextlib.contextmanager
def keys_of(terminal: int) -> Iterator[None]:
    """While it is entered, keys come one by one; Ctrl-C still interrupts."""
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def wait_for_key(terminal: int, seconds: float) -> str:
    """The keys that are pressed within the time; none where there was none. Raises EOFError: the terminal is gone."""
    ready, _, _ = select.select([terminal], [], [], max(0.0, seconds))
    if not ready:
        return ""
    pressed = os.read(terminal, _MOST)
    if not pressed:
        raise EOFError
    return pressed.decode(errors="replace")


_REDRAW_SECONDS = 0.5
_STATUS_SECONDS = 1.0
_BACKLOG = 300


class EventFeed:
    """Implements ``commands.events.EventsView``: shows the picture what has come, under a lock."""

    def __init__(self, picture: Picture, lock: threading.Lock) -> None:
        self._picture = picture
        self._lock = lock

    def show(self, events: msgspec.Raw) -> int:
        """See ``EventsView.show``."""
        envelopes = read_envelopes(events)
        with self._lock:
            self._picture.take_events(envelopes)
        return envelopes[-1].seq

    def note(self, text: str) -> None:
        """The head of the screen says how the connection stands."""

    def close(self) -> None:
        """Nothing is kept back."""


def run_top(client: ControlClient, *, place: str = "", env: Mapping[str, str] = os.environ) -> None:
    """Draw until q or Ctrl-C. ``place``: the options by which shown commands find the supervisor.

    Raises UsageError where there is no terminal to draw on, PoolError when the supervisor cannot be asked at all.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty() and can_style(env)):
        raise UsageError("pool top draws on a terminal, and this is none; pool status prints the same once")
    picture, lock = Picture(), threading.Lock()
    status = client.call("status")
    picture.take_status(status)
    _follow(client, EventFeed(picture, lock), since=max(0, status["gateway"]["events"]["head"] - _BACKLOG))
    console = Console(highlight=False)
    with keys_of(sys.stdin.fileno()), Live(console=console, auto_refresh=False, screen=True) as live:
        _Loop(client, picture, lock, live, is_coloured=wants_styles(env), place=place).run()


def _follow(client: ControlClient, feed: EventFeed, *, since: int) -> None:
    """In a thread that ends with the process, on a connection of its own."""
    connect = partial(ControlClient, client.path)
    source = connect()
    follower = Follower({}, feed, since=since, was_there=True)

    def follow() -> None:
        with source:
            follower.follow_always(source, connect)

    threading.Thread(target=follow, name="events", daemon=True).start()


class _Loop:
    """Draws twice a second, and after each key."""

    def __init__(
        self,
        client: ControlClient,
        picture: Picture,
        lock: threading.Lock,
        live: Live,
        *,
        is_coloured: bool,
        place: str,
    ) -> None:
        self._client: ControlClient | None = client
        self._path = client.path
        self._picture = picture
        self._lock = lock
        self._live = live
        self._looks: dict[str, Any] = {
            "is_coloured": is_coloured,
            "ascii_only": not live.console.encoding.startswith("utf"),
            "place": place,
        }
        self._held = False
        self._asked_at = -_STATUS_SECONDS

    def run(self) -> None:
        """Until q, Ctrl-C, or the terminal's end."""
        try:
            self._draw()
            while not self._wants_to_quit(wait_for_key(sys.stdin.fileno(), _REDRAW_SECONDS)):
                if not self._held:
                    self._renew()
                    self._draw()
        except (KeyboardInterrupt, EOFError):
            return

    def _wants_to_quit(self, keys: str) -> bool:
        if keys.count(" ") % 2:
            self._held = not self._held
            self._draw()
        return "q" in keys.lower()

    def _renew(self) -> None:
        if time.monotonic() - self._asked_at < _STATUS_SECONDS:
            return
        self._asked_at = time.monotonic()
        try:
            self._client = self._client or ControlClient(self._path)
            status = self._client.call("status")
        except PoolError as exc:
            self._hang_up(exc)
            return
        with self._lock:
            self._picture.take_status(status)

    def _hang_up(self, error: PoolError) -> None:
        """Say what is wrong, and connect anew with the next look: the supervisor may have been started again."""
        self._picture.trouble = f"trying again: {error.message}"
        if self._client is not None:
            self._client.close()
            self._client = None

    def _draw(self) -> None:
        width, height = self._live.console.size
        with self._lock:
            screen = draw(self._picture, width, height, now=time.time(), held=self._held, **self._looks)
        self._live.update(screen, refresh=True)
