"""System events until they are told: when they are gone, what keeps them, and outcomes of tasks among them."""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from heartbeat.system_events import SystemEventKind
from store.records import RunRow
from tests.gateway.callers import RecordingCaller
from tests.gateway.telling import BUILT, end_command, inject, pending
from tests.gateway.world import WholeStore, World, open_world

# --- when it is gone --------------------------------------------------------------------------------------------------


async def _fail(world: World) -> None:
    assert (await world.ask("fail")).status == "error"


async def _refuse(world: World) -> None:
    assert (await world.ask("refuse")).status == "error"


async def _abort(world: World) -> None:
    run = await world.begin("hang")
    await world.call("abort", session="alice")
    assert (await run.wait()).status == "error"


async def _die(world: World) -> None:
    run = await world.begin("hang")
    world.launcher.running("hang").die()
    assert (await run.wait()).status == "error"


async def _time_out(world: World) -> None:
    assert (await world.ask("hang", timeout=5)).status == "error"


async def _interrupt(world: World) -> None:
    run = await world.begin("hang")
    after = await world.begin("fail", queue="interrupt")
    assert [(await each.wait()).status for each in (run, after)] == ["error", "error"]


@pytest.mark.parametrize("ending", [_fail, _refuse, _abort, _die, _time_out, _interrupt])
async def test_a_turn_that_does_not_succeed_loses_nothing(world: World, ending: Any) -> None:
    await inject(world, "the bell rang")
    await ending(world)
    assert await pending(world) == ["the bell rang"]
    await world.ask("hello")
    assert world.launcher.prompts[-1] == "[SYSTEM] the bell rang\n\nhello"
    assert await pending(world) == []


async def test_a_prompt_that_is_sent_again_tells_again(world: World) -> None:
    await inject(world, "the bell rang")
    run = await world.begin("hang", retry_safe=True)
    world.launcher.running("hang").die()
    await wait_all_tasks_blocked()
    world.launcher.running("hang").finish()
    assert (await run.wait()).status == "ok"
    assert world.launcher.prompts == ["[SYSTEM] the bell rang\n\nhang"] * 2
    assert await pending(world) == []


async def test_a_turn_that_ends_with_calls_for_its_client_has_told(world: World) -> None:
    await inject(world, "the bell rang")
    run = await world.begin("hang")
    world.launcher.running("hang").finish("", stop_reason="tool_calls")
    await run.wait()
    assert await pending(world) == []


async def test_an_event_is_gone_after_an_hour(world: World) -> None:
    store = world.store
    await inject(world, "old")
    await trio.sleep(600)
    await inject(world, "young")
    await trio.sleep(3030)
    assert world.gateway.system_events.stats().expired == 1  # nobody has looked
    assert await pending(world) == ["young"]
    await trio.sleep(600)
    assert store.documents == {}
    status = await world.call("status")
    figures = {"pending": 0, "sessions": 0, "injected": 2, "ignored": 0, "evicted": 0, "expired": 2}
    assert status["gateway"]["system_events"] == figures


async def test_a_new_conversation_is_told_nothing_that_the_old_one_has_begun(world: World) -> None:
    await world.ask("hello")
    for kind in SystemEventKind:
        await inject(world, kind, kind=kind)
    await world.ask("/new")
    assert await pending(world) == ["cron", "channel", "other"]


async def test_a_session_that_is_deleted_leaves_nothing(world: World) -> None:
    store = world.store
    await world.ask("hello")
    for kind in SystemEventKind:
        await inject(world, kind, kind=kind)
    await world.call("sessions.delete", session="alice")
    assert (await pending(world), store.documents) == ([], {})


# --- what keeps it ----------------------------------------------------------------------------------------------------


async def test_events_outlive_a_crash_and_are_told_once_by_the_next_life(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.ask("background")
        end_command(world.launcher.workers[0])
        assert len(await world.events("exec_exit")) == 1
        left = store.after_a_crash()
    async with open_world(tmp_path, store=left) as world:
        assert await pending(world) == [BUILT]
        await world.ask("what now?")
        assert world.launcher.prompts == [f"[SYSTEM] {BUILT}\n\nwhat now?"]
        again = left.after_a_crash()
    async with open_world(tmp_path, store=again) as world:
        assert await pending(world) == []


async def test_a_turn_that_a_crash_cut_off_loses_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await inject(world, "the bell rang")
        await world.hanging()
        left = store.after_a_crash()
    async with open_world(tmp_path, store=left) as world:
        assert await pending(world) == ["the bell rang"]


class _Transactions(WholeStore):
    """Knows what was put together."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions: list[list[Any]] = []
        self._depth = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if not self._depth:
            self.transactions.append([])
        self._depth += 1
        yield
        self._depth -= 1

    def _note(self, put: Any) -> None:
        if self._depth:
            self.transactions[-1].append(put)

    def put_run(self, row: RunRow) -> None:
        super().put_run(row)
        self._note(row.state.value)

    def put_document(self, kind: str, key: str, body: bytes | None) -> None:
        super().put_document(kind, key, body)
        self._note((kind, key, body is None))


async def test_that_a_turn_has_told_its_events_and_that_it_has_ended_is_written_in_one_step(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = _Transactions()
    async with open_world(tmp_path, store=store) as world:
        await inject(world, "the bell rang")
        await world.ask("hello")
        assert store.transactions[-1] == ["ended", ("system_events", "alice", True)]


async def _is_answered(world: World, answered: list[Any], request: Awaitable[Any]) -> None:
    answered.append(await request)


async def test_who_injects_is_answered_and_who_watches_is_told_when_it_is_on_the_disk(world: World) -> None:
    store = world.store
    store.hold_commits()
    answered: list[Any] = []
    world.nursery.start_soon(_is_answered, world, answered, inject(world, "the bell rang"))
    assert await world.events("system_event") == []
    assert (answered, await pending(world)) == ([], ["the bell rang"])
    store.let_commit()
    (told,) = await world.events("system_event")
    assert told["data"] == {"id": answered[0]["event"]["id"], "kind": "other", "text": "the bell rang"}


async def test_what_cannot_be_read_is_told_and_the_rest_is_there(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await inject(world, "the bell rang")
    left = store.after_a_stop()
    left.put_document("system_events", "bob", b'[{"id": 7}]')
    async with open_world(tmp_path, store=left) as world:
        assert (await pending(world), await pending(world, "bob")) == (["the bell rang"], [])
        (told,) = [row for row in left.rows if row.type == "error"]
        assert (told.session, msgspec.json.decode(told.data)["severity"]) == ("bob", "error")
        assert b"could not be read" in told.data
        assert list(left.documents) == [("system_events", "alice")]


# --- outcomes of tasks ------------------------------------------------------------------------------------------------


async def _delegate(world: World, task: str, **params: Any) -> Any:
    caller = RecordingCaller(world.nursery)
    return await world.call("delegate", caller, session="alice", agent="ops", task=task, **params)


async def test_the_outcome_of_a_task_nobody_waits_for_is_told_with_the_next_turn(world: World) -> None:
    run = (await _delegate(world, "say 42", mode="async"))["run_id"]
    await wait_all_tasks_blocked()
    (event,) = (await world.call("events.peek", session="alice"))["events"]
    assert (event["kind"], event["context"]) == ("delegate", f"delegate:{run}")
    assert event["text"] == f"Task completed (agent ops, run {run}) :: 42"
    bad = (await _delegate(world, "refuse", mode="async"))["run_id"]
    await wait_all_tasks_blocked()
    assert (await pending(world))[1].startswith(f"Task failed (agent ops, run {bad}) :: ")


async def test_who_waits_for_a_task_is_told_nothing_twice(world: World) -> None:
    assert (await _delegate(world, "say 42"))["text"] == "42"
    await wait_all_tasks_blocked()
    assert await pending(world) == []


async def test_a_very_long_outcome_is_cut(world: World) -> None:
    await _delegate(world, f"say {'4' * 10_000}", mode="async")
    await wait_all_tasks_blocked()
    (text,) = await pending(world)
    assert text.endswith(" :: " + "4" * 2_000)


@pytest.mark.parametrize("has_begun", [True, False])
async def test_the_outcome_of_a_task_that_a_crash_met_is_told_in_the_next_life(
    tmp_path: Path,
    autojump_clock: MockClock,
    has_begun: bool,  # noqa: FBT001  # by its name
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, workers=1) as world:
        if not has_begun:
            await world.begin("hang", "bob")
        run = (await _delegate(world, "hang on", mode="async"))["run_id"]
        await wait_all_tasks_blocked()
        left = store.after_a_crash()
    async with open_world(tmp_path, store=left) as world:
        await wait_all_tasks_blocked()
        if not has_begun:
            assert await pending(world) == []
            world.launcher.running("hang on").finish("at last")
            await wait_all_tasks_blocked()
        (text,) = await pending(world)
        how, end = ("failed", "in the conversation") if has_begun else ("completed", "at last")
        assert text.startswith(f"Task {how} (agent ops, run {run}) :: ")
        assert text.endswith(end)
