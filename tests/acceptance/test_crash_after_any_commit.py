"""The whole gateway over the real store, and a crash after each commit: what the next life makes of what is left."""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import trio

from store.database import connect_to
from store.records import RunState
from store.writer import Writer
from tests.acceptance.crash_points import KeepingDisk, commit_each_put, kept_store
from tests.gateway.workers import GatewayLauncher, GatewayWorker
from tests.gateway.world import World, open_world

_WORD = re.compile(r"\bm\d+\b")


HANDED = (1, 2, 3, 4, 5, 6, 7, 9, 10, 12)
"""Of the messages of ``live``, those that a worker gets to see."""


class Heard(NamedTuple):
    """Something that left the supervisor while so many commits were complete."""

    commits: int
    run_id: str


class FirstLife:
    """What was promised to callers, handed to workers and told to followers, each with the commits there were."""

    def __init__(self, disk: KeepingDisk, world: World) -> None:
        self.disk = disk
        self.world = world
        self.promised: list[Heard] = []
        self.handed: list[Heard] = []
        self.told: list[Heard] = []
        world.launcher.requests = _Watched(self)

    async def send(self, run_id: str, text: str, session: str, **more: Any) -> None:
        await self.world.send(f"{text} {run_id}", session, run=run_id, **more)
        self.promised.append(Heard(self.disk.commits, run_id))
        self.world.nursery.start_soon(self._follow, run_id)

    async def _follow(self, run_id: str) -> None:
        await self.world.run(run_id).wait()
        self.told.append(Heard(self.disk.commits, run_id))

    async def ends(self, *run_ids: str) -> None:
        with trio.fail_after(10):
            for run_id in run_ids:
                await self.world.run(run_id).wait()

    async def runs(self, run_id: str) -> GatewayWorker:
        """The worker that hangs over this message, once it has said something."""
        cursor = self.world.gateway.bus.open_cursor(run_id=run_id, kinds=frozenset({"text_chunk"}), since=0)
        with trio.fail_after(10):
            await cursor.take()
        return self.world.launcher.running(f"hang {run_id}")


class _Watched(list[tuple[str, dict[str, Any]]]):
    """Notes each message that a worker is given."""

    def __init__(self, life: FirstLife) -> None:
        super().__init__()
        self._life = life

    def append(self, request: tuple[str, dict[str, Any]]) -> None:
        method, params = request
        if method in ("prompt", "steer"):
            self._life.handed += [Heard(self._life.disk.commits, word) for word in _WORD.findall(params["text"])]
        super().append(request)


async def live(life: FirstLife) -> None:
    """Every way a message can go."""
    await life.send("m1", "say", "alice")
    await life.send("m2", "hang", "bob")
    worker = await life.runs("m2")
    await life.send("m3", "left", "bob", queue="steer")
    for number in (4, 5):
        await life.send(f"m{number}", "say", "bob", queue="collect")
    await life.send("m6", "say", "carol")
    worker.consume()
    worker.finish("in the end")
    await life.ends("m1", "m2", "m3", "m4", "m5", "m6")
    await life.send("m7", "hang", "alice")
    await life.runs("m7")
    await life.send("m8", "say", "alice", queue="followup")
    await life.send("m9", "say", "alice", queue="interrupt")
    await life.send("m10", "fail", "carol")
    await life.ends("m7", "m8", "m9", "m10")
    await life.world.send("/status", "carol", run="m11")
    await life.send("m12", "hang", "carol")
    await life.runs("m12")
    await life.send("m13", "say", "carol", queue="followup")


def rows(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path / "pool.db")) as connection:
        return connection.execute(sql).fetchall()


def steps_of(path: Path) -> Counter[tuple[str, str]]:
    """How often each run's steps are among the events."""
    steps = "'run:accepted', 'run:start', 'done'"
    return Counter(rows(path, f"SELECT run_id, type FROM events WHERE type IN ({steps})"))


def torn(path: Path) -> Iterator[str]:
    """Runs that are not as far as the events say, or farther."""
    steps = steps_of(path)
    for run_id, state, started_at in rows(path, "SELECT run_id, state, started_at FROM runs"):
        expected = (1, int(started_at is not None), int(state == RunState.ENDED))
        found = tuple(steps.pop((run_id, step), 0) for step in ("run:accepted", "run:start", "done"))
        if found != expected:
            yield f"{run_id} is {state}, and has been accepted, started, done {found} times"
    yield from (f"events of unknown runs: {step}" for step in steps)


async def check_next_life(path: Path, commit: int, life: FirstLife) -> None:
    """What was promised is there, what was handed over is not repeated, what was told stays as it was."""
    states = dict(rows(path, "SELECT run_id, state FROM runs"))
    durable = commit + 1
    assert {run_id for commits, run_id in life.promised if commits <= durable} <= states.keys()
    handed = {run_id for commits, run_id in life.handed if commits <= durable}
    assert handed <= {run_id for run_id, state in states.items() if state != RunState.ACCEPTED}
    told = {run_id for commits, run_id in life.told if commits <= durable}
    assert told <= {run_id for run_id, state in states.items() if state == RunState.ENDED}
    outcomes = dict(rows(path, "SELECT run_id, outcome FROM runs WHERE state = 'ended'"))
    launcher = GatewayLauncher()
    launcher.kind = PlainWorker
    async with kept_store(path, connect_to) as store, open_world(path, store=store, launcher=launcher) as world:
        with trio.fail_after(10):
            ended = {run_id: await world.run(run_id).wait() for run_id in states}
    prompted = Counter(_WORD.findall(" ".join(launcher.prompts)))
    assert prompted == Counter(run_id for run_id, state in states.items() if state == RunState.ACCEPTED)
    for run_id, state in states.items():
        if state == RunState.STARTED:
            assert ended[run_id].error is not None, run_id
            assert ended[run_id].reason == "interrupted"
        elif state == RunState.ENDED:
            assert msgspec.json.encode(ended[run_id]) == outcomes[run_id]
        else:
            assert ended[run_id].status == "ok"
    assert list(torn(path)) == []


class PlainWorker(GatewayWorker):
    """Answers whatever it is asked."""

    def prompt(self, request: dict[str, Any]) -> dict[str, Any]:
        self.launcher.prompts.append(request["params"]["text"])
        return {"text": "done", "stop_reason": "stop"}


@pytest.mark.parametrize("is_stepwise", [True, False])
async def test_after_a_crash_at_any_commit_promises_are_kept_and_nothing_is_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_stepwise: bool
) -> None:
    disk = KeepingDisk(tmp_path)
    async with kept_store(tmp_path, disk.connect) as store:
        opened = disk.commits
        if is_stepwise:
            monkeypatch.setattr(Writer, "put", commit_each_put(disk))
        async with open_world(tmp_path, store=store, queue={"debounce": 0.001}) as world:
            life = FirstLife(disk, world)
            await live(life)
        monkeypatch.undo()
    assert sorted(heard.run_id for heard in life.handed) == sorted(f"m{number}" for number in HANDED)
    for commit in range(opened, disk.commits):
        path = disk.place(commit)
        assert list(torn(path)) == [], f"after commit {commit}"
        await check_next_life(path, commit, life)
