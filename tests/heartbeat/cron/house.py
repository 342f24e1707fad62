"""A house around scheduled tasks: its store, gateway, courier and clock are memory, its time is virtual."""

from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, tzinfo
from typing import Any

import trio

from errors import PoolError
from heartbeat.cron.jobs import CronPorts, NameValidators
from heartbeat.cron.requests import CronJobView, CronName
from heartbeat.cron.service import CronService
from heartbeat.cron.settings import CronJobSettings, CronSettings, JobMode
from heartbeat.delivery.channel import Alert
from heartbeat.delivery.targets import target_problem
from heartbeat.ports import BeatAnswer, BeatRequest
from wire.units import Seconds

BEGIN = 1_700_000_000.0
AGENTS = ("main", "ops")


def isolated(every: float | None = 60.0, **facts: Any) -> CronJobSettings:
    """An isolated job of the settings; ``every`` so many seconds, counted from ``BEGIN``."""
    anchor = None if every is None else datetime.fromtimestamp(BEGIN, UTC)
    said = {"text": "water the plants", "mode": JobMode.ISOLATED, "anchor": anchor} | facts
    return CronJobSettings(every=None if every is None else Seconds(every), **said)


class _Kept:
    """What waits until something is durable."""

    def __init__(self, house: "House") -> None:
        self._house = house

    def __await__(self) -> Any:
        return self._house.durable().__await__()


class House:
    """Everything that scheduled tasks ask for, and what they have asked."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, bytes]] = {}
        self.puts = 0
        self.clock_offset = 0.0
        self.requests: list[tuple[float, BeatRequest]] = []
        self.in_flight: set[str] = set()
        self.spoken: list[tuple[float, str, str]] = []
        self.alerts: list[Alert] = []
        self.told: list[dict[str, Any]] = []
        self.answer: BeatAnswer | PoolError = BeatAnswer(ok=True, text="HEARTBEAT_OK")
        self.takes = 0.0
        self.deaf: PoolError | None = None
        self.paused_until: float | None = None
        self.disk = trio.Event()
        self.disk.set()

    def ports(self, local: tzinfo = UTC) -> CronPorts:
        return CronPorts(
            documents=self,
            runs=self,
            waker=self,
            alerts=self,
            monitor=self,
            names=NameValidators(
                agent_problem=lambda name: None if name in AGENTS else f"there is no agent {name!r}",
                target_problem=lambda target: target_problem(target, ["ops"]),
                default_agent=lambda: "main",
            ),
            wall=self.wall,
            local=local,
        )

    def wall(self) -> float:
        return BEGIN + trio.current_time() + self.clock_offset

    async def load(self, kind: str) -> dict[str, bytes]:
        await trio.lowlevel.checkpoint()
        return dict(self.kept.get(kind, {}))

    def put(self, kind: str, key: str, body: bytes | None) -> Awaitable[None]:
        self.puts += 1
        if body is None:
            self.kept.get(kind, {}).pop(key, None)
        else:
            self.kept.setdefault(kind, {})[key] = body
        return _Kept(self)

    async def durable(self) -> None:
        """Without waiting where there is nothing to wait for, as the store does it."""
        if not self.disk.is_set():
            await self.disk.wait()

    async def run(self, request: BeatRequest) -> BeatAnswer:
        self.requests.append((trio.current_time(), request))
        assert request.session not in self.in_flight, "a job runs beside itself"
        self.in_flight.add(request.session)
        try:
            await trio.sleep(self.takes)
        finally:
            self.in_flight.discard(request.session)
        if isinstance(self.answer, PoolError):
            raise self.answer
        return self.answer

    def inject_and_wake(self, *, agent: str, session: str, text: str, context: str) -> None:
        assert context.startswith("cron:")
        if self.deaf is not None:
            raise self.deaf
        self.spoken.append((trio.current_time(), f"{agent} {session}", text))

    def wake_problem(self, *, agent: str, session: str) -> str | None:
        assert agent in AGENTS
        assert session
        return None if self.deaf is None else self.deaf.message

    def wakes_at(self, *, agent: str, session: str) -> float | None:
        assert agent in AGENTS
        assert session
        return self.paused_until

    def publish(self, session: str, type_: str, data: Any = None) -> None:
        assert type_ == "cron"
        self.told.append({"session": session, **data})

    def accept(self, alert: Alert) -> None:
        self.alerts.append(alert)

    @property
    def begun(self) -> list[float]:
        """When isolated runs began, counted from the start."""
        return [at for at, _ in self.requests]


@asynccontextmanager
async def running(
    house: House,
    jobs: dict[str, CronJobSettings] | None = None,
    *,
    local: tzinfo = UTC,
    max_running: int = 4,
    **named: CronJobSettings,
) -> AsyncGenerator[CronService, None]:
    """The service at work until the block ends."""
    service = CronService(CronSettings(jobs={**(jobs or {}), **named}, max_running=max_running), house.ports(local))
    await service.load()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        yield service
        nursery.cancel_scope.cancel()


def look(service: CronService, name: str = "job") -> CronJobView:
    return service.get(CronName(id=name))
