"""Messages that go every way a message can go, over a whole gateway; and whether a store's file agrees with itself."""

import re
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import trio

from gateway.runs.run import RunOutcome
from store.records import RunState
from store.settings import StoreSettings
from store.store import open_store
from tests.gateway.workers import GatewayLauncher, GatewayWorker
from tests.gateway.world import World, open_world
from wire.units import Seconds

PATIENCE = Seconds(60)
"""No write is taken for a refused one, however busy the machine is."""

_WORD = re.compile(r"\bm\d+\b")

HANDED = {"m1", "m2", "m3", "m4", "m5", "m6", "m7", "m9", "m10", "m12"}
"""Those that a worker gets to see."""
LEFT = {"m12": RunState.STARTED, "m13": RunState.ACCEPTED}
"""Those that have no outcome in the end."""


class Heard(NamedTuple):
    """Something that left the supervisor, and what ``now`` said then."""

    now: int
    run_id: str


class FirstLife:
    """What was promised to callers, handed to workers and told to followers, and when by ``now``."""

    def __init__(self, world: World, now: Callable[[], int] = lambda: 0) -> None:
        self.world = world
        self.now = now
        self.promised: list[Heard] = []
        self.handed: list[Heard] = []
        self.told: list[Heard] = []
        self.outcomes: dict[str, RunOutcome] = {}
        self._steered = trio.Event()
        world.launcher.requests = _Watched(self)

    async def live(self) -> None:
        """Turns, steers, collected, interrupting, failing messages, a command; one hangs and one waits in the end."""
        await self._send("m1", "say", "alice")
        await self._send("m2", "hang", "bob")
        worker = await self._hangs("m2")
        await self._send("m3", "left", "bob", queue="steer")
        for number in (4, 5):
            await self._send(f"m{number}", "say", "bob", queue="collect")
        await self._send("m6", "say", "carol")
        with trio.fail_after(10):
            await self._steered.wait()
        worker.consume()
        worker.finish("in the end")
        await self._ends("m1", "m2", "m3", "m4", "m5", "m6")
        await self._send("m7", "hang", "alice")
        await self._hangs("m7")
        await self._send("m8", "say", "alice", queue="followup")
        await self._send("m9", "say", "alice", queue="interrupt")
        await self._send("m10", "fail", "carol")
        await self._ends("m7", "m8", "m9", "m10")
        await self.world.send("/status", "carol", run="m11")
        await self._send("m12", "hang", "carol")
        await self._hangs("m12")
        await self._send("m13", "say", "carol", queue="followup")

    async def _send(self, run_id: str, text: str, session: str, **more: Any) -> None:
        await self.world.send(f"{text} {run_id}", session, run=run_id, **more)
        self.promised.append(Heard(self.now(), run_id))
        self.world.nursery.start_soon(self._follow, run_id)

    async def _follow(self, run_id: str) -> None:
        self.outcomes[run_id] = await self.world.run(run_id).wait()
        self.told.append(Heard(self.now(), run_id))

    async def _ends(self, *run_ids: str) -> None:
        with trio.fail_after(10):
            for run_id in run_ids:
                await self.world.run(run_id).wait()

    async def _hangs(self, run_id: str) -> GatewayWorker:
        """The worker that hangs over this message, once it has said something."""
        cursor = self.world.gateway.bus.open_cursor(run_id=run_id, kinds=frozenset({"text_chunk"}), since=0)
        with trio.fail_after(10):
            await cursor.read()
        return self.world.launcher.running(f"hang {run_id}")

    def note(self, method: str, params: dict[str, Any]) -> None:
        """A worker was asked this."""
        if method in ("prompt", "steer"):
            self.handed += [Heard(self.now(), run_id) for run_id in words_in(params["text"])]
        if method == "steer":
            self._steered.set()


class _Watched(list[tuple[str, dict[str, Any]]]):
    """Where workers note what they are asked."""

    def __init__(self, life: FirstLife) -> None:
        super().__init__()
        self._life = life

    def append(self, request: tuple[str, dict[str, Any]]) -> None:
        self._life.note(*request)
        super().append(request)


class PlainWorker(GatewayWorker):
    """For the next life: answers whatever it is asked."""

    def prompt(self, request: dict[str, Any]) -> dict[str, Any]:
        self.launcher.prompts.append(request["params"]["text"])
        return {"text": "done", "stop_reason": "stop"}


@asynccontextmanager
async def next_life(
    directory: Path,
    settings: StoreSettings | None = None,
    clock: Callable[[], float] = time.time,
    *,
    last_seq: int = 0,
) -> AsyncIterator[World]:
    """A gateway of plain workers on the store that is there, which has no trouble and gives no seq out again."""
    troubles: list[str] = []
    launcher = GatewayLauncher()
    launcher.kind = PlainWorker
    settings = settings or StoreSettings(stall=PATIENCE)
    async with open_store(
        directory / "pool.db", settings, on_trouble=lambda kind, _facts: troubles.append(kind), clock=clock
    ) as store:
        assert store.loaded.first_seq > last_seq
        async with open_world(directory, store=store, launcher=launcher, clock=clock) as world:
            yield world
    assert troubles == []


def words_in(text: str) -> list[str]:
    """The messages that a text is made of."""
    return _WORD.findall(text)


def rows(directory: Path, sql: str) -> list[Any]:
    """What a stranger finds in the store's file."""
    with closing(sqlite3.connect(directory / "pool.db")) as connection:
        return connection.execute(sql).fetchall()


def torn(directory: Path) -> Iterator[str]:
    """Runs that are not as far as the events say, or farther."""
    kinds = "'run:accepted', 'run:start', 'done'"
    steps = Counter(rows(directory, f"SELECT run_id, type FROM events WHERE type IN ({kinds})"))
    for run_id, state, started_at in rows(directory, "SELECT run_id, state, started_at FROM runs"):
        expected = (1, int(started_at is not None), int(state == RunState.ENDED))
        found = tuple(steps.pop((run_id, step), 0) for step in ("run:accepted", "run:start", "done"))
        if found != expected:
            yield f"{run_id} is {state}, and has been accepted, started, done {found} times"
    yield from (f"events of unknown runs: {step}" for step in steps)
