"""What heartbeats see of the rest: a store that survives the supervisor, and a gateway."""

import copy
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, pairwise
from typing import Any

import msgspec
import trio
from trio.testing import wait_all_tasks_blocked

from errors import UsageError
from heartbeat.beat import BeatPorts
from heartbeat.delivery.channel import Alert
from heartbeat.ports import BeatAnswer, BeatRequest
from heartbeat.records import HeartbeatStatus
from heartbeat.service import Heartbeat, open_heartbeat
from heartbeat.settings import HeartbeatSettings
from heartbeat.system_events import SystemEvent, SystemEventKind
from heartbeat.wake import WakeReason
from router.keys import main_session_key
from wire.units import Seconds

EPOCH = 1_700_000_000.0
MIDNIGHT = 1_700_006_400.0  # UTC
MAIN = main_session_key("main")
ON = HeartbeatSettings(every=Seconds(300))
SELDOM = HeartbeatSettings(every=Seconds(86_400))
OK = "HEARTBEAT_OK"


def an_event(text: str, kind: str = "other", name: str = "e1", session: str = MAIN) -> SystemEvent:
    return SystemEvent(id=name, session=session, kind=SystemEventKind(kind), text=text, ts=EPOCH)


class Killed(BaseException):
    """The supervisor was killed."""


class Disk:
    """What survives the supervisor."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, bytes]] = {}
        self.events: dict[str, list[SystemEvent]] = {}
        self.runs: dict[str, BeatAnswer | None] = {}
        """By run id; None = started, and not ended."""
        self.alerts: dict[str, Alert] = {}


class World:
    """All ports of consecutive supervisors. ``kill_at``: the number of the durable step before which one is killed."""

    def __init__(self, *, kill_at: int | None = None, nursery: trio.Nursery | None = None) -> None:
        self.nursery = nursery
        self.disk = Disk()
        self.kill_at = kill_at
        self.steps = 0
        self.ids = count(1)
        self.started: list[BeatRequest] = []
        self.started_at: list[float] = []
        self.published: list[tuple[str, str, dict[str, Any]]] = []
        self.active: list[str] = []
        self.busy: set[str] = set()
        self.claimed: set[str] = set()
        self.has_a_worker = True
        self.files: dict[str, bytes] = {}
        """In the workspace."""
        self.bad_targets: set[str] = set()
        self.answer: Callable[[BeatRequest], BeatAnswer] = report_all
        self.run_time = 1.0
        self.wall_offset = EPOCH
        self._depth = 0
        self._lives: list[trio.CancelScope] = []

    async def open(self, agents: dict[str, HeartbeatSettings] | None = None) -> Heartbeat:
        ports = BeatPorts(runs=self, events=self, alerts=self, monitor=self, wall=self.wall, transaction=self.together)
        return await open_heartbeat(self, ports, {"main": ON} if agents is None else agents)

    async def serve(self, settings: HeartbeatSettings = ON, **others: HeartbeatSettings) -> Heartbeat:
        """The next supervisor, after the end of the one before it."""
        for scope in self._lives:
            scope.cancel()
        await wait_all_tasks_blocked()
        heartbeat = await self.open({"main": settings, **others})

        async def live(*, task_status: trio.TaskStatus[None]) -> None:
            with trio.CancelScope() as scope:
                self._lives.append(scope)
                await heartbeat.run(task_status=task_status)

        assert self.nursery is not None
        await self.nursery.start(live)
        return heartbeat

    def restart(self) -> None:
        """What was only in memory is gone."""
        self.kill_at = None
        self.claimed.clear()
        self.busy.clear()

    def step(self) -> None:
        if self.kill_at is not None and self.steps >= self.kill_at:
            raise Killed
        self.steps += 1

    @contextmanager
    def together(self) -> Iterator[None]:
        """All of it or nothing, as the store's."""
        before = copy.deepcopy(self.disk) if self._depth == 0 and self.kill_at is not None else None
        self._depth += 1
        try:
            yield
        except Killed:
            self.disk = before or self.disk
            raise
        finally:
            self._depth -= 1

    def wall(self) -> float:
        return self.wall_offset + trio.current_time()

    async def load(self, kind: str) -> dict[str, bytes]:
        return dict(self.disk.documents.get(kind, {}))

    def put(self, kind: str, key: str, body: bytes | None) -> Awaitable[None]:
        self.step()
        bodies = self.disk.documents.setdefault(kind, {})
        if body is None:
            bodies.pop(key, None)
        else:
            bodies[key] = body
        return _Written()

    def inject(self, text: str, kind: str = "exec", session: str = MAIN) -> None:
        event = an_event(text, kind, f"e{next(self.ids)}", session)
        self.disk.events.setdefault(session, []).append(event)

    def pending_sessions(self) -> Sequence[str]:
        return list(self.disk.events)

    def unclaimed(self, session: str) -> Sequence[SystemEvent]:
        return [event for event in self.disk.events.get(session, []) if event.id not in self.claimed]

    def claim(self, session: str, ids: Collection[str]) -> None:
        assert session
        self.claimed.update(ids)

    def release(self, session: str, ids: Collection[str]) -> None:
        assert session
        self.claimed.difference_update(ids)

    def acknowledge(self, session: str, ids: Collection[str]) -> None:
        self.step()
        self.disk.events[session] = [event for event in self.disk.events.get(session, []) if event.id not in ids]

    def accept(self, alert: Alert) -> None:
        self.step()
        if alert.target in self.bad_targets:
            raise UsageError(f"{alert.target} is no target")
        self.disk.alerts.setdefault(alert.id, alert)

    @property
    def alerts(self) -> list[str]:
        return [alert.text for alert in self.disk.alerts.values()]

    def publish(self, session: str, type_: str, data: Any = None) -> None:
        self.published.append((type_, session, data))

    @property
    def states(self) -> list[str]:
        return [data["state"] for type_, _, data in self.published if type_ == "heartbeat"]

    def agent_of(self, session: str) -> str | None:
        return session.split(":")[1]

    async def run(self, request: BeatRequest) -> BeatAnswer:
        if request.run_id in self.disk.runs:
            known = self.disk.runs[request.run_id]
            return known or BeatAnswer(ok=False, code="interrupted", message="the supervisor ended")
        self.step()
        self.disk.runs[request.run_id] = None
        self.started.append(request)
        self.started_at.append(trio.current_time())
        await trio.sleep(self.run_time)
        answer = self.answer(request)
        self.step()
        self.disk.runs[request.run_id] = answer
        return answer

    def is_busy(self, session: str) -> bool:
        return session in self.busy

    def has_room(self, agent: str, session: str) -> bool:
        return self.has_a_worker and bool(agent) and bool(session)

    async def read_file(self, agent: str, session: str, name: str, limit: int) -> bytes:
        await trio.lowlevel.checkpoint()
        assert agent
        assert session
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name][:limit]

    def mark_active(self, session: str) -> None:
        self.active.append(session)

    @property
    def lines(self) -> list[list[str]]:
        """The events in the prompt of each run."""
        return [system_lines(request) for request in self.started]

    @property
    def gaps(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.started_at)]


class _Written:
    """The result of a put: awaiting it is optional."""

    def __await__(self) -> Any:
        return trio.lowlevel.checkpoint().__await__()  # noqa: ASYNC105 - awaited by the caller


def system_lines(request: BeatRequest) -> list[str]:
    return re.findall(r"^\[SYSTEM\] (.*)$", request.text, re.MULTILINE)


def report_all(request: BeatRequest) -> BeatAnswer:
    """An agent that repeats its events."""
    return BeatAnswer(ok=True, text="; ".join(system_lines(request)) or OK)


def answers(text: str, **facts: Any) -> Callable[[BeatRequest], BeatAnswer]:
    return lambda _request: BeatAnswer(ok=True, text=text, **facts)


def fails(code: str = "worker_error") -> Callable[[BeatRequest], BeatAnswer]:
    return lambda _request: BeatAnswer(ok=False, code=code, message=f"it failed: {code}")


def wake(heartbeat: Heartbeat, world: World, text: str, reason: WakeReason = WakeReason.EXEC) -> None:
    world.inject(text, {WakeReason.CRON: "cron", WakeReason.WAKE: "other"}.get(reason, "exec"))
    heartbeat.wake("main", reason)


def but(settings: HeartbeatSettings = ON, **changes: object) -> HeartbeatSettings:
    return msgspec.structs.replace(settings, **changes)


def status_of(heartbeat: Heartbeat) -> HeartbeatStatus:
    """That of agent main."""
    return next(status for status in heartbeat.status() if status.agent == "main")
