"""The house around the courier, in memory: a disk that may be pulled out, an event stream, channels that do as told."""

from collections import Counter
from collections.abc import Awaitable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import trio

from heartbeat.delivery.channel import Alert, DeliveryFailed
from wire.events import EventChannel, channel_of

WALL = 1_700_000_000.0


def an_alert(alert_id: str = "a1", **fields: Any) -> Alert:
    facts = {"agent": "main", "session": "alice", "text": "the build is red", "reason": "interval", "ts": WALL}
    return Alert(id=alert_id, **{**facts, **fields})


def wall_clock() -> float:
    """Unix time that goes with the clock of the event loop."""
    return WALL + trio.current_time()


class Disk:
    """Documents and events. What is put together is written together; after ``lives`` commits nothing is any more."""

    def __init__(self, lives: int | None = None) -> None:
        self.documents: dict[str, dict[str, bytes]] = {}
        self.events: list[tuple[str, EventChannel, str, dict[str, Any]]] = []
        self.lives = lives
        self.commits = 0
        self._group: list[Any] | None = None

    @contextmanager
    def together(self) -> Iterator[None]:
        self._group = []
        yield
        group, self._group = self._group, None
        if group:
            self._commit(group)

    def _commit(self, changes: list[Any]) -> None:
        self.commits += 1
        if self.lives is None or self.commits <= self.lives:
            for change in changes:
                change()

    def _change(self, change: Any) -> None:
        if self._group is None:
            self._commit([change])
        else:
            self._group.append(change)

    async def load(self, kind: str) -> dict[str, bytes]:
        await trio.lowlevel.checkpoint()
        return dict(self.documents.get(kind, {}))

    def put(self, kind: str, key: str, body: bytes | None) -> Awaitable[None]:
        shelf = self.documents.setdefault(kind, {})
        self._change((lambda: shelf.pop(key, None)) if body is None else (lambda: shelf.update({key: body})))
        return _Settled()

    def publish(self, session: str, type_: str, data: Any = None) -> object:
        event = (session, channel_of(type_), type_, msgspec.json.decode(msgspec.json.encode(data)))
        self._change(lambda: self.events.append(event))
        return len(self.events)

    def told(self, type_: str) -> list[dict[str, Any]]:
        return [data for _, _, kind, data in self.events if kind == type_]


class _Settled:
    def __await__(self) -> Generator[None, None, None]:
        yield from ()


class FakeChannel:
    """A channel whose peers answer with what is put for them: a failure, or seconds that they take."""

    def __init__(self, max_attempts: int = 12) -> None:
        self.plan: dict[str, list[DeliveryFailed | float]] = {}
        self.always: dict[str, DeliveryFailed | float] = {}
        self.tried: list[tuple[float, str, str, int]] = []
        self.delivered: Counter[str] = Counter()
        self.under_way: Counter[str] = Counter()
        self.most_under_way = 0
        self._max_attempts = max_attempts

    def max_attempts(self, peer: str) -> int:
        assert peer
        return self._max_attempts

    async def deliver(self, alert: Alert, peer: str, attempt: int) -> None:
        self.tried.append((trio.current_time(), peer, alert.id, attempt))
        self.under_way[peer] += 1
        self.most_under_way = max(self.most_under_way, self.under_way[peer])
        try:
            await self._behave(peer)
        finally:
            self.under_way[peer] -= 1
        self.delivered[alert.id] += 1

    async def _behave(self, peer: str) -> None:
        plan = self.plan.get(peer)
        todo = plan.pop(0) if plan else self.always.get(peer, 0.0)
        if isinstance(todo, DeliveryFailed):
            await trio.lowlevel.checkpoint()
            raise todo
        await trio.sleep(todo)


class FakeOutlet:
    def __init__(self, *failures: DeliveryFailed) -> None:
        self.shown: list[str] = []
        self.failures = list(failures)

    def show(self, alert: Alert) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.shown.append(alert.id)
