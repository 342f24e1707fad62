"""``pool top``: a thread follows the events; the main one reads keys, asks for the status, and draws."""

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

from commands.following import EventFollower
from commands.top_controls import TopControls, Wish
from commands.top_session import SessionLines
from commands.top_view import TopModel, draw
from doors.control.client import SLOW_ANSWER_SECONDS, ControlClient, read_envelopes
from errors import NoSupervisor, PoolError, UsageError
from wire.terminal import can_style, wants_styles

_MAX_KEY_BYTES = 64


@contextlib.contextmanager
def cbreak_mode(terminal: int) -> Iterator[None]:
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
    pressed = os.read(terminal, _MAX_KEY_BYTES)
    if not pressed:
        raise EOFError
    return pressed.decode(errors="replace")


_REDRAW_SECONDS = 0.5
_STATUS_SECONDS = 1.0
_BACKLOG_EVENTS = 300


class TopEventsView:
    """Implements ``commands.following.EventsView``: shows the picture what has come, under a lock."""

    def __init__(self, picture: TopModel, lock: threading.Lock) -> None:
        self._model = picture
        self._lock = lock

    def show(self, events: msgspec.Raw) -> int:
        """Implements ``EventsView.show``."""
        envelopes = read_envelopes(events)
        with self._lock:
            self._model.add_events(envelopes)
        return envelopes[-1].seq

    def show_notice(self, text: str) -> None:
        """The head of the screen says how the connection stands."""

    def show_end(self, error: PoolError) -> None:
        """No event will come any more."""
        with self._lock:
            self._model.events_error = error.message

    def close(self) -> None:
        """Nothing is kept back."""


def run_top(client: ControlClient, *, place: str = "", env: Mapping[str, str] = os.environ) -> None:
    """Draw until q or Ctrl-C. ``place``: the options by which shown commands find the supervisor.

    Raises UsageError where there is no terminal to draw on, PoolError when the supervisor cannot be asked at all.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty() and can_style(env)):
        raise UsageError("pool top draws on a terminal, and this is none; pool status prints the same once")
    picture, lock = TopModel(), threading.Lock()
    status = client.call("status")
    picture.update_status(status)
    follow_events(
        client, TopEventsView(picture, lock), since=max(0, status["gateway"]["events"]["head"] - _BACKLOG_EVENTS)
    )
    console = Console(highlight=False)
    with cbreak_mode(sys.stdin.fileno()), Live(console=console, auto_refresh=False, screen=True) as live:
        _Loop(client, picture, lock, live, is_coloured=wants_styles(env), place=place).run()


def follow_events(client: ControlClient, feed: TopEventsView, *, since: int) -> None:
    """In a thread that ends with the process, on a connection of its own."""
    connect = partial(ControlClient, client.path)
    source = connect()
    follower = EventFollower({}, feed, since=since, was_there=True)

    def follow() -> None:
        try:
            with source:
                follower.follow_with_reconnect(source, connect)
        except PoolError as exc:
            feed.show_end(exc)
        except Exception as exc:  # noqa: BLE001 - a traceback would be written over the screen
            feed.show_end(PoolError(f"a defect ended the events: {type(exc).__name__}: {exc}"))

    threading.Thread(target=follow, name="events", daemon=True).start()


class _Loop:
    """Draws twice a second, and after each key."""

    def __init__(
        self,
        client: ControlClient,
        picture: TopModel,
        lock: threading.Lock,
        live: Live,
        *,
        is_coloured: bool,
        place: str,
    ) -> None:
        self._client: ControlClient | None = client
        self._path = client.path
        self._model = picture
        self._lock = lock
        self._live = live
        self._controls = TopControls()
        self._opened = SessionLines()
        self._draw_options: dict[str, Any] = {
            "is_coloured": is_coloured,
            "ascii_only": not live.console.encoding.startswith("utf"),
            "place": place,
            "controls": self._controls,
        }
        self._polled_at = -_STATUS_SECONDS

    def run(self) -> None:
        """Until q or the terminal's end. Raises KeyboardInterrupt for Ctrl-C, as every command that is interrupted."""
        try:
            self._draw()
            while not self._handle_keys(wait_for_key(sys.stdin.fileno(), _REDRAW_SECONDS)):
                if not self._controls.held:
                    self._refresh_status()
                    self._draw()
        except EOFError:
            return

    def _handle_keys(self, keys: str) -> bool:
        """Do what they ask for; whether that is the end."""
        if not keys:
            return False
        model = self._model
        with self._lock:
            sessions, workers = model.sessions(), model.workers()
        asked = (model.status or {})["gateway"]["permissions"]
        columns = self._live.console.size.width
        for wish in self._controls.press(keys, sessions=sessions, workers=workers, asked=asked, columns=columns):
            if wish.method == "quit":
                return True
            if wish.method == "sessions.history":
                self._opened = SessionLines()
            self._fulfil(wish)
        self._draw()
        return False

    def _fulfil(self, wish: Wish) -> None:
        """Ask the supervisor; what it refuses is said in the last line."""
        with self._lock:
            seq = self._model.last_seqs.get(wish.params.get("session", ""), 0)
        try:
            self._client = self._client or ControlClient(self._path)
            patience = {"timeout": SLOW_ANSWER_SECONDS} if wish.method == "decide" else {}
            answer = self._client.call(wish.method, wish.params, **patience)
        except PoolError as exc:
            self._controls.message, answer = exc.message, None
            if isinstance(exc, NoSupervisor):
                self._disconnect(exc)
        if wish.method == "sessions.history":
            self._opened.update(answer, seq)
        elif answer is not None:
            worker = wish.params.get("worker")
            self._controls.message = f"worker {worker} will be replaced" if worker else "approved"

    def _refresh_status(self) -> None:
        if time.monotonic() - self._polled_at < _STATUS_SECONDS:
            return
        self._polled_at = time.monotonic()
        try:
            self._client = self._client or ControlClient(self._path)
            status = self._client.call("status")
        except PoolError as exc:
            self._disconnect(exc)
            return
        with self._lock:
            self._model.update_status(status)
        self._refresh_session()

    def _refresh_session(self) -> None:
        """Read the opened session again, at most as often as the status; while one reads above its end, it stays."""
        session = self._controls.opened
        if session is not None and not self._controls.scrolled:
            with self._lock:
                is_stale = self._opened.is_stale(self._model.last_seqs.get(session, 0))
            if is_stale:
                self._fulfil(Wish("sessions.history", {"session": session}))

    def _disconnect(self, error: PoolError) -> None:
        """Show the error, and reconnect with the next look: the supervisor may have restarted."""
        self._model.error = f"trying again: {error.message}"
        if self._client is not None:
            self._client.close()
            self._client = None

    def _draw(self) -> None:
        width, height = self._live.console.size
        with self._lock:
            screen = draw(self._model, width, height, opened=self._opened, now=time.time(), **self._draw_options)
        self._live.update(screen, refresh=True)
