"""The whole gateway over the real store, and a crash after each commit: what the next life makes of what is left."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest
import trio

from store.database import connect_to
from store.records import RunState
from store.writer import Writer
from tests.acceptance.crash_points import KeepingDisk, commit_each_put, kept_store
from tests.acceptance.every_way import HANDED, FirstLife, PlainWorker, rows, torn, words_in
from tests.gateway.workers import GatewayLauncher
from tests.gateway.world import open_world


async def check_next_life(place: Path, commit: int, life: FirstLife) -> None:
    """What was promised is there, what was handed over is not repeated, what was told stays as it was."""
    states = dict(rows(place, "SELECT run_id, state FROM runs"))
    complete = commit + 1
    assert {heard.run_id for heard in life.promised if heard.now <= complete} <= states.keys()
    handed = {heard.run_id for heard in life.handed if heard.now <= complete}
    assert handed <= {run_id for run_id, state in states.items() if state != RunState.ACCEPTED}
    told = {heard.run_id for heard in life.told if heard.now <= complete}
    assert told <= {run_id for run_id, state in states.items() if state == RunState.ENDED}
    outcomes = dict(rows(place, "SELECT run_id, outcome FROM runs WHERE state = 'ended'"))
    launcher = GatewayLauncher()
    launcher.kind = PlainWorker
    async with kept_store(place, connect_to) as store, open_world(place, store=store, launcher=launcher) as world:
        with trio.fail_after(10):
            ended = {run_id: await world.run(run_id).wait() for run_id in states}
    prompted = Counter(words_in(" ".join(launcher.prompts)))
    assert prompted == Counter(run_id for run_id, state in states.items() if state == RunState.ACCEPTED)
    for run_id, state in states.items():
        match state:
            case RunState.ACCEPTED:
                assert ended[run_id].status == "ok"
            case RunState.STARTED:
                assert ended[run_id].reason == "interrupted"
            case _:
                assert msgspec.json.encode(ended[run_id]) == outcomes[run_id]
    assert list(torn(place)) == []


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
            life = FirstLife(world, lambda: disk.commits)
            await life.live()
        monkeypatch.undo()
    assert Counter(heard.run_id for heard in life.handed) == Counter(HANDED)
    for commit in range(opened, disk.commits):
        place = disk.place(commit)
        assert list(torn(place)) == [], f"after commit {commit}"
        await check_next_life(place, commit, life)
