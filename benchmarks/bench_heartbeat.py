"""Agents that look after things by themselves: how soon an event wakes one, what ten thousand cost that have nothing.

A supervisor of its own, workers that answer at once. The hour of beats is simulated: everything of the heartbeat's own
happens, a gateway that answers at once stands for the rest.
"""

import tempfile
import time
from collections.abc import Collection, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from benchmarks.harness import Result, median, percentile, result, timed
from benchmarks.supervisor import STREAMING_AGENT, Supervisor, running
from doors.control.client import ControlClient
from heartbeat.beat import BeatPorts
from heartbeat.delivery.channel import Alert
from heartbeat.ports import BeatAnswer, BeatRequest
from heartbeat.service import open_heartbeat
from heartbeat.settings import HeartbeatSettings
from heartbeat.system_events import SystemEvent
from wire.messages import EventEnvelope
from wire.units import Seconds

_WAKES = 30
_MANY = 10_000
_IDLE_SECONDS = 4.0
_HOUR = 3600.0
_SETTINGS = f"""
[pool]
max = 2
{STREAMING_AGENT}
[agents.defaults.heartbeat]
every = "1d"
"""


def run() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="pool-bench-") as place:
        where = Path(place)
        with running(where / "a", _SETTINGS) as supervisor:
            wakes = _wakes(supervisor.socket)
            idle = _idle(supervisor)
        with running(where / "b", _SETTINGS + _much()) as supervisor:
            busy = _idle(supervisor)
    name = "ms of CPU a second without them"
    cost = result(f"idle with {_MANY:,} heartbeats and jobs", busy, "ms/s", beside=(idle, name), at_most=5)
    return [*wakes, cost, *_an_hour()]


def _much() -> str:
    agents = (f'[agents.a{number}]\nmodel = "m"\n' for number in range(_MANY))
    jobs = (f'[cron.jobs.j{number}]\ntext = "x"\ncron = "{number % 60} 0 1 1 *"\n' for number in range(_MANY))
    return "".join([*agents, *jobs])


# --- a wake -----------------------------------------------------------------------------------------------------------


def _wakes(path: Path) -> list[Result]:
    """Each in a session of its own, one after the other: the pool is idle."""
    with ControlClient(path) as client:
        client.call("prompt", {"session": "warm", "text": "hello"})
        pings = [timed(lambda: client.call("ping")) * 1e3 for _ in range(_WAKES)]
        beats = client.subscribe({"kinds": ["run:start"]}).batches()  # published once durable, just before the prompt
        times = [_wake(client, beats, f"s{number}") for number in range(_WAKES)]
    beside = (median(pings), "ms ping")
    name = "from an event to the turn that reports it"
    return [
        result(f"{name}, p50", median(times), "ms", beside=beside),
        result(f"{name}, p99", percentile(times, 0.99), "ms", beside=beside, at_most=300),
    ]


def _wake(client: ControlClient, beats: Iterator[list[EventEnvelope]], session: str) -> float:
    started = time.perf_counter()
    client.call("events.inject", {"session": session, "text": "Exec completed (x, code 0)", "kind": "exec"})
    next(events for events in beats if any(event.session == session for event in events))
    return (time.perf_counter() - started) * 1000


# --- idle -------------------------------------------------------------------------------------------------------------


def _idle(supervisor: Supervisor) -> float:
    """Milliseconds of CPU that the supervisor takes in a second of doing nothing."""
    time.sleep(1.0)  # the start comes to its end
    before = supervisor.process.cpu_times()
    time.sleep(_IDLE_SECONDS)
    after = supervisor.process.cpu_times()
    taken = after.user + after.system - before.user - before.system
    return max(round(taken, 3), 0.0) * 1000 / _IDLE_SECONDS


# --- an hour ----------------------------------------------------------------------------------------------------------


def _an_hour() -> list[Result]:
    house = _House()
    took = timed(lambda: trio.run(_simulate, house, clock=MockClock(autojump_threshold=0)))
    name = f"an hour of {_MANY:,} agents, a beat each 5 min ({house.beats:,} beats)"
    return [
        result(name, took, "s", at_most=_HOUR / 60),
        result("of it for one beat", took / max(house.beats, 1) * 1e6, "us"),
    ]


async def _simulate(house: "_House") -> None:
    ports = BeatPorts(runs=house, events=house, alerts=house, monitor=house, wall=trio.current_time)
    settings = HeartbeatSettings(every=Seconds(300))
    heartbeat = await open_heartbeat(house, ports, {f"a{number}": settings for number in range(_MANY)})
    async with trio.open_nursery() as nursery:
        await nursery.start(heartbeat.run)
        await trio.sleep(_HOUR)
        nursery.cancel_scope.cancel()


class _House:
    """The services that heartbeats use: workers are free, no events wait, and agents find nothing to do."""

    def __init__(self) -> None:
        self.beats = 0

    async def run(self, request: BeatRequest) -> BeatAnswer:  # noqa: ARG002  # the port's shape, as below
        self.beats += 1
        await trio.lowlevel.checkpoint()
        return BeatAnswer(ok=True, text="HEARTBEAT_OK")

    def agent_of(self, session: str) -> str | None:  # noqa: ARG002
        return None

    def is_busy(self, session: str) -> bool:  # noqa: ARG002
        return False

    def has_room(self, agent: str, session: str) -> bool:  # noqa: ARG002
        return True

    async def read_file(self, agent: str, session: str, name: str, limit: int) -> bytes:  # noqa: ARG002
        raise FileNotFoundError(name)

    def mark_active(self, session: str) -> None:
        """Does nothing: no status page is open."""

    def pending_sessions(self) -> Sequence[str]:
        return ()

    def unclaimed(self, session: str) -> Sequence[SystemEvent]:  # noqa: ARG002
        return ()

    def claim(self, session: str, ids: Collection[str]) -> None:
        """There are none."""

    def release(self, session: str, ids: Collection[str]) -> None:
        """There are none."""

    def acknowledge(self, session: str, ids: Collection[str]) -> None:
        """There are none."""

    def accept(self, alert: Alert) -> None:
        """There are none."""

    def publish(self, session: str, type_: str, data: Any = None) -> None:
        """Does nothing: there are no subscribers."""

    async def load(self, kind: str) -> dict[str, bytes]:  # noqa: ARG002
        await trio.lowlevel.checkpoint()
        return {}

    def put(self, kind: str, key: str, body: bytes | None) -> "_Kept":  # noqa: ARG002
        return _Kept()


class _Kept:
    """It is, at once."""

    def __await__(self) -> Generator[Any, Any, None]:
        return trio.lowlevel.checkpoint().__await__()  # noqa: ASYNC105  # the caller awaits it
