"""The house around heartbeats as they see it: what survives the supervisor, a gateway, and when it is killed."""

import copy
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import msgspec
import trio

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
MAIN = main_session_key("main")
ON = HeartbeatSettings(every=Seconds(300))
OK = "HEARTBEAT_OK"


def an_event(text: str, kind: str = "other", name: str = "e1", session: str = MAIN) -> SystemEvent:
    return SystemEvent(id=name, session=session, kind=SystemEventKind(kind), text=text, ts=EPOCH)


Serve = Callable[..., Coroutine[None, None, Heartbeat]]


class Killed(BaseException):
    """The supervisor is no more."""


class Disk:
    """What outlives the supervisor: documents, events, runs with their outcomes, alerts."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, bytes]] = {}
        self.events: dict[str, list[SystemEvent]] = {}
        self.runs: dict[str, BeatAnswer | None] = {}
        """By run id; None = started, and not ended."""
        self.alerts: dict[str, Alert] = {}


class World:
    """The ports of one supervisor after the other. ``kill_at``: dies before its so manieth step that leaves a trace."""

    def __init__(self, *, kill_at: int | None = None) -> None:
        self.disk = Disk()
        self.kill_at = kill_at
        self.steps = 0
        self.ids = count(1)
        self.started: list[BeatRequest] = []
        self.started_at: list[float] = []
        self.told: list[tuple[str, str, dict[str, Any]]] = []
        self.touched: list[str] = []
        self.busy: set[str] = set()
        self.claimed: set[str] = set()
        self.has_room_for_it = True
        self.workspace: str | None = None
        self.bad_targets: set[str] = set()
        self.answer: Callable[[BeatRequest], BeatAnswer] = lambda _request: BeatAnswer(ok=True, text=OK)
        self.run_time = 1.0
        self.wall_offset = EPOCH
        self.busy_asked = 0
        self._depth = 0

    # --- being killed -------------------------------------------------------------------------------------------------

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
            if before is not None:
                self.disk = before
            raise
        finally:
            self._depth -= 1

    def restart(self) -> None:
        """Another supervisor: what was in memory only is gone."""
        self.kill_at = None
        self.claimed.clear()
        self.busy.clear()

    # --- Documents ----------------------------------------------------------------------------------------------------

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

    # --- EventPort ----------------------------------------------------------------------------------------------------

    def inject(self, text: str, kind: str = "exec", session: str = MAIN) -> str:
        event = an_event(text, kind, f"e{next(self.ids)}", session)
        self.disk.events.setdefault(session, []).append(event)
        return event.id

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
        left = [event for event in self.disk.events.get(session, []) if event.id not in ids]
        self.disk.events[session] = left

    # --- AlertPort, bus -------------------------------------------------------------------------------------------

    def accept(self, alert: Alert) -> None:
        self.step()
        if alert.target in self.bad_targets:
            raise UsageError(f"{alert.target} is no target")
        self.disk.alerts.setdefault(alert.id, alert)

    def publish(self, session: str, type_: str, data: Any = None) -> None:
        self.told.append((type_, session, data))

    @property
    def states(self) -> list[str]:
        return [data["state"] for type_, _, data in self.told if type_ == "heartbeat"]

    # --- RunPort ------------------------------------------------------------------------------------------------------

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
        self.busy_asked += 1
        return session in self.busy

    def has_room(self, agent: str, session: str) -> bool:
        return self.has_room_for_it and bool(agent) and bool(session)

    def workspace_of(self, agent: str, session: str) -> str | None:
        return self.workspace if agent and session else None

    def mark_active(self, session: str) -> None:
        self.touched.append(session)

    # --- putting it together ------------------------------------------------------------------------------------------

    def wall(self) -> float:
        return self.wall_offset + trio.current_time()

    def ports(self) -> BeatPorts:
        return BeatPorts(runs=self, events=self, alerts=self, monitor=self, wall=self.wall, transaction=self.together)

    async def open(self, agents: dict[str, HeartbeatSettings] | None = None) -> Heartbeat:
        return await open_heartbeat(self, self.ports(), {"main": ON} if agents is None else agents)

    @property
    def alerts(self) -> list[Alert]:
        return list(self.disk.alerts.values())


class _Written:
    """What awaiting a put gives: a wait for the disk. Nobody has to."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from trio.lowlevel.checkpoint().__await__()  # noqa: ASYNC105 - it is awaited by whoever awaits this


def system_lines(request: BeatRequest) -> list[str]:
    """The events that a run was told."""
    return re.findall(r"^\[SYSTEM\] (.*)$", request.text, re.MULTILINE)


def report_all(request: BeatRequest) -> BeatAnswer:
    """An agent that tells everything it is told."""
    lines = system_lines(request)
    return BeatAnswer(ok=True, text="; ".join(lines) if lines else OK)


def fails(code: str = "worker_error") -> Callable[[BeatRequest], BeatAnswer]:
    return lambda _request: BeatAnswer(ok=False, code=code, message=f"it failed: {code}")


def wake(heartbeat: Heartbeat, world: World, text: str, reason: WakeReason = WakeReason.EXEC) -> None:
    world.inject(text, "cron" if reason is WakeReason.CRON else "exec")
    heartbeat.wake("main", reason)


def but(**changes: object) -> HeartbeatSettings:
    """Heartbeats are on, and something else is otherwise than by default."""
    return msgspec.structs.replace(ON, **changes)


def status_of(heartbeat: Heartbeat) -> HeartbeatStatus:
    """How agent main stands."""
    (status,) = [status for status in heartbeat.status() if status.agent == "main"]
    return status
