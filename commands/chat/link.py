"""The supervisor's side of a chat: events in a thread that reconnects, requests in order or at once in others."""

import queue
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from commands.chat.effects import Request
from commands.following import EventFollower
from doors.control.client import SLOW_ANSWER_SECONDS, ControlClient, read_envelopes
from errors import PoolError
from wire.messages import EventEnvelope


class ChatPeer(Protocol):
    """Where what comes from the supervisor goes; each method may be called from any thread."""

    def on_events(self, events: list[EventEnvelope]) -> None:
        """Events of the session; returns when they are drawn, so that a fast agent waits for a slow terminal."""
        ...

    def on_connection(self, *, is_there: bool) -> None:
        """Events are followed from now on, or the supervisor went away."""
        ...

    def on_notice(self, text: str) -> None:
        """What is to be said of it."""
        ...

    def on_answer(self, request: Request, result: Any) -> None:
        """The result of a request, or the PoolError that it failed with."""
        ...

    def on_end(self, error: BaseException) -> None:
        """Events will come no more, or requests will not be answered any more."""
        ...


class ChatLink:
    """Threads that end with the program: what they wait for may never come."""

    def __init__(self, path: Path, session: str, peer: ChatPeer) -> None:
        """``path``: the control socket."""
        self._path = path
        self._session = session
        self._peer = peer
        self._ordered: queue.SimpleQueue[Request] = queue.SimpleQueue()

    def start(self, client: ControlClient) -> None:
        """Follow the session's events, first on this connection."""
        self._run(partial(self._follow, client))
        self._run(self._send_ordered)

    def send(self, request: Request) -> None:
        """Make a request; its answer comes to the peer."""
        if request.is_ordered:
            self._ordered.put(request)
        else:
            self._run(partial(self._answer, request))

    def _send_ordered(self) -> None:
        while True:
            self._answer(self._ordered.get())

    def _answer(self, request: Request) -> None:
        try:
            with ControlClient(self._path) as client:
                result = client.call(request.method, request.params, timeout=SLOW_ANSWER_SECONDS)
        except PoolError as error:
            result = error
        self._peer.on_answer(request, result)

    def _follow(self, client: ControlClient) -> None:
        follower = EventFollower(
            {"session": self._session},
            _FollowerView(self._peer),
            since=None,
            was_there=True,
            on_connection=lambda is_there: self._peer.on_connection(is_there=is_there),
        )
        follower.follow_with_reconnect(client, partial(ControlClient, self._path))

    def _run(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - the screen raises it, in the main thread
                self._peer.on_end(error)

        threading.Thread(target=run, daemon=True).start()


class _FollowerView:
    def __init__(self, peer: ChatPeer) -> None:
        self._peer = peer

    def show(self, events: msgspec.Raw) -> int:
        envelopes = read_envelopes(events)
        self._peer.on_events(envelopes)
        return envelopes[-1].seq

    def show_notice(self, text: str) -> None:
        self._peer.on_notice(text)

    def close(self) -> None:
        """Nothing is kept back."""
