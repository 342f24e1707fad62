"""A supervisor that is none: 64 workers and as many events a second as a test wants, behind a real HTTP door."""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import trio

from doors.http.server import HttpServer
from doors.http.settings import HttpSettings
from errors import UsageError
from gateway.caller import Caller, MethodDispatcher
from gateway.methods.operator import StatusDocument
from gateway.sessions.admin import SessionView
from tests.commands.documents import DOCUMENT, SESSION_VIEWS, worker
from tests.commands.documents import session as pool_session
from tests.doors.dashboard.site import TOKEN

_SETTINGS: dict[str, Any] = {"bind": "127.0.0.1:0", "token": TOKEN, "rate": 0}
WORKERS = 64
SESSIONS = 300
BATCHES_A_SECOND = 50

TYPES = (
    *(("progress", "text_chunk", {"delta": "some more words "}),) * 14,
    ("progress", "tool:start", {"call": {"id": "c", "name": "exec", "input_preview": '{"command": "make test"}'}}),
    ("progress", "run:start", {"worker": "w1", "turn": "t1", "leader": "r"}),
    ("progress", "done", {"reason": "completed", "text": "all of it is done", "worker": "w1"}),
    ("monitor", "state_changed", {"from": "WORKING", "to": "READY", "reason": "run completed"}),
    ("monitor", "token_usage", {"input_tokens": 100, "output_tokens": 20}),
    ("monitor", "worker_ready", {"worker": "w1"}),
)


DAY_BATCH = 500
_CALL = {"id": "c", "name": "exec", "input_preview": '{"command": "make"}'}
LIFE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("progress", "run:accepted", {"mode": "steer", "lane": "main", "priority": 5, "text": "make it " + "well " * 50}),
    ("progress", "run:start", {"worker": "w1", "turn": "t1"}),
    *(("progress", "text_chunk", {"delta": "some more words " * 4}),) * 12,
    ("progress", "tool:start", {"call": _CALL}),
    ("control", "permission_required", {"call": _CALL, "reason": "it is listed"}),
    ("control", "permission_decided", {"call_id": "c", "decision": "allow", "by": "ann"}),
    ("progress", "tool:end", {"call": _CALL}),
    ("progress", "done", {"reason": "completed", "text": "all of it is done", "worker": "w1"}),
    ("monitor", "session_deleted", {}),
)
"""The events of one session of a day."""


def a_status(seq: int, sessions: int = SESSIONS) -> dict[str, Any]:
    """All at work, each with figures that move."""
    workers = [
        worker(f"w{n}", state="leased", session=f"s{n}", turn_age=(seq / 100 + n) % 60, cpu=seq / 5000 + n, turns=n)
        for n in range(WORKERS)
    ]
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(DOCUMENT))
    document["workers"] = workers
    document["sessions"] = [pool_session(f"s{n}") for n in range(sessions)]
    document["pool"] |= {"total": WORKERS, "leased": WORKERS, "max": WORKERS}
    document["supervisor"]["uptime"] = time.monotonic()
    document["gateway"]["permissions"] = []
    document["gateway"]["events"] |= {"head": seq, "last_seq": seq}
    return document


def a_session(number: int) -> SessionView:
    known = msgspec.convert(SESSION_VIEWS[0], SessionView)
    changes = {"key": f"s{number}", "state": "WORKING", "updated_at": time.time() - number, "pending_permissions": []}
    return msgspec.structs.replace(known, **changes)


class Crowd:
    """Implements ``gateway.caller.MethodDispatcher``."""

    def __init__(self, events_a_second: int, sessions: int = SESSIONS) -> None:
        self.seq = 0
        self._sessions = sessions
        self._batch = events_a_second // BATCHES_A_SECOND

    async def call(self, method: str, _params: msgspec.Raw, caller: Caller) -> Any:
        await trio.lowlevel.checkpoint()
        match method:
            case "status":
                return msgspec.convert(a_status(self.seq, self._sessions), StatusDocument)
            case "sessions.list":
                return [a_session(number) for number in range(self._sessions)]
            case "sessions.history":
                return {"messages": []}
            case "subscribe":
                caller.start(lambda: self._tell(caller))
                return {"subscription": "1", "head": self.seq, "complete": True}
        raise UsageError(f"unknown method {method!r}")

    async def _tell(self, caller: Caller) -> None:
        """Keep to the pace whatever it costs: what is late is caught up."""
        due = trio.current_time()
        while True:
            await caller.push("events", {"subscription": "1", "events": [self._event() for _ in range(self._batch)]})
            due += 1 / BATCHES_A_SECOND
            await trio.sleep_until(due)

    def _event(self) -> dict[str, Any]:
        self.seq += 1
        channel, kind, data = TYPES[self.seq % len(TYPES)]
        facts = {
            "seq": self.seq,
            "ts": time.time(),
            "session": f"s{self.seq % self._sessions}",
            "run_id": f"r{self.seq}",
        }
        return {**facts, "channel": channel, "type": kind, "data": data}


class Day(Crowd):
    """A day in a hurry: events come as fast as they are taken, of sessions that come, ask a person, and end."""

    def __init__(self, stops: Sequence[int]) -> None:
        super().__init__(0)
        self._stops = stops
        self.go_on = threading.Semaphore(0)
        """Released once for each stop: the events up to the next one may come."""

    async def _tell(self, caller: Caller) -> None:
        for stop in self._stops:
            while self.seq < stop:
                events = [self._event() for _ in range(DAY_BATCH)]
                await caller.push("events", {"subscription": "1", "events": events})
            await trio.to_thread.run_sync(self.go_on.acquire, abandon_on_cancel=True)
        await trio.sleep_forever()

    def _event(self) -> dict[str, Any]:
        life, step = divmod(self.seq, len(LIFE))
        self.seq += 1
        channel, kind, data = LIFE[step]
        facts = {"seq": self.seq, "ts": time.time(), "session": f"day/{life}", "run_id": f"r{life}"}
        return {**facts, "channel": channel, "type": kind, "data": data}


@contextlib.contextmanager
def serving(methods: MethodDispatcher, folder: Path, **settings: Any) -> Iterator[str]:
    """The address of a real HTTP port before these methods, while it serves from a thread of its own."""
    server = HttpServer(methods, HttpSettings(**{**_SETTINGS, **settings}), folder, hide=lambda _: None, env={})
    ready, scope = threading.Event(), trio.CancelScope()
    token: list[trio.lowlevel.TrioToken] = []

    async def main() -> None:
        token.append(trio.lowlevel.current_trio_token())
        with scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(server.serve)
                ready.set()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    assert ready.wait(20)
    try:
        yield server.url
    finally:
        with contextlib.suppress(trio.RunFinishedError):  # it has failed; the thread says how
            token[0].run_sync_soon(scope.cancel)
        thread.join(10)
