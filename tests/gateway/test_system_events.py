"""System events: how they come in, which turn tells them, what keeps them until they are told."""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import UsageError
from heartbeat.system_events import SystemEventKind
from store.records import RunRow
from tests.gateway.callers import RecordingCaller
from tests.gateway.telling import BUILT, end_command, inject, pending
from tests.gateway.world import WholeStore, World, open_world

# --- ends of commands -------------------------------------------------------------------------------------------------


async def test_the_end_of_a_command_is_told_once_and_with_the_next_turn(world: World) -> None:
    await world.ask("background")
    await world.events()
    end_command(world.launcher.workers[0])
    queued, told = await world.events("exec_exit", "system_event")
    assert (told["type"], told["session"], told["channel"]) == ("exec_exit", "alice", "monitor")
    assert told["data"] == {"session_id": "calm-fox", "summary": BUILT, "worker": "w1", "exit_code": 0}
    (event,) = (await world.call("events.peek", session="alice"))["events"]
    assert (event["kind"], event["text"], event["context"]) == ("exec", BUILT, "exec:calm-fox:exit")
    assert (queued["type"], queued["data"]["id"]) == ("system_event", event["id"])
    await world.ask("what now?")
    await world.ask("and now?")
    assert world.launcher.prompts == ["background", f"[SYSTEM] {BUILT}\n\nwhat now?", "and now?"]
    assert await pending(world) == []
    worker = await world.hanging()
    end_command(worker)
    assert [event["type"] for event in await world.events() if "exec" in event["type"]] == ["exec_exit"]
    worker.finish()
    await world.ask("what now?")
    assert world.launcher.prompts[4:] == [f"[SYSTEM] {BUILT}\n\nwhat now?"]


async def test_what_a_worker_says_of_an_end_is_cut_and_without_a_word_the_command_is_named(world: World) -> None:
    await world.ask("hello")
    end_command(world.launcher.workers[0], "y" * 100_000, exit_code=None, signal="S" * 300)
    (told,) = await world.events("exec_exit")
    assert (len(told["data"]["summary"]), len(told["data"]["signal"])) == (2_000, 256)
    end_command(world.launcher.workers[0], "  ", session_id="x" * 300)
    await wait_all_tasks_blocked()
    assert await pending(world) == ["y" * 2_000, f"Exec ended ({'x' * 256})"]


async def test_the_end_of_a_command_of_a_conversation_that_is_over_is_an_event_of_no_session(world: World) -> None:
    await world.ask("hello")
    worker, old = world.launcher.workers[0], world.launcher.workers[0].file
    await world.ask("/new")
    await world.ask("hello again")
    end_command(worker, session_key=old)
    (told,) = await world.events("exec_exit")
    assert (told["session"], await pending(world)) == ("", [])


@pytest.mark.parametrize(
    ("names", "commands", "what"),
    [
        *(({}, 1, "a background command"), ({}, 2, "2 background commands")),
        ({"names": ["calm-fox", "brave-owl"]}, 2, "calm-fox, brave-owl"),
    ],
)
async def test_a_worker_that_dies_tells_of_the_commands_that_die_with_it(
    world: World, names: dict[str, list[str]], commands: int, what: str
) -> None:
    await world.ask("hello")
    worker = world.launcher.workers[0]
    worker.tell("background", running=commands, **names)
    worker.die()
    (told,) = await world.events("exec_lost")
    reason = "worker w1 killed by signal 9"
    assert (told["session"], told["data"]) == (
        *("alice", {"worker": "w1", "commands": commands, **names, "reason": reason}),
    )
    assert await pending(world) == [f"Exec failed ({what}) :: ended with what it ran on: {reason}"]


KILLED = "ended with what it ran on: the supervisor was killed, and its workers with it"


async def test_commands_that_end_with_the_supervisor_are_told_once_in_its_next_life(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.ask("hello")
        world.launcher.workers[0].tell("background", running=2, names=["calm-fox", "brave-owl"])
        await world.ask("hello", session="bob")
        killed = store.after_a_crash()
    async with open_world(tmp_path, store=store.after_a_stop()) as world:
        (text,) = await pending(world)
        assert text.endswith("worker w1 was stopped (closed)")
    async with open_world(tmp_path, store=killed) as world:
        assert await pending(world) == [f"Exec failed (calm-fox, brave-owl) :: {KILLED}"]
        assert await pending(world, "bob") == []
        await world.ask("what now?")
        again = killed.after_a_crash()
    async with open_world(tmp_path, store=again) as world:
        assert await pending(world) == []


@pytest.mark.parametrize(
    "how", ["ended", "ended, one without a name", "reset", "deleted", "worker died", "worker changed"]
)
async def test_commands_that_are_over_are_not_told_as_killed(
    tmp_path: Path, autojump_clock: MockClock, how: str
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.ask("hello")
        worker = world.launcher.workers[0]
        worker.tell("background", running=1, **({} if "without" in how else {"names": ["calm-fox"]}))
        await wait_all_tasks_blocked()
        match how:
            case "ended" | "ended, one without a name":
                worker.tell("exec_exit", session_id="calm-fox", summary="it ended", session_key=worker.file)
            case "reset":
                await world.call("sessions.reset", session="alice", force=True)
            case "deleted":
                await world.call("sessions.delete", session="alice")
            case "worker died":
                worker.die()
            case _:
                await world.ask("/new force")
                worker.tell("background", running=2, names=["calm-fox", "brave-owl"])
        await wait_all_tasks_blocked()
        await world.ask("what now?")
        killed = store.after_a_crash()
    async with open_world(tmp_path, store=killed) as world:
        assert [text for text in await pending(world) if KILLED in text] == []


# --- which turn tells it ----------------------------------------------------------------------------------------------


async def test_a_turn_tells_all_that_waits_in_its_order_and_what_comes_meanwhile_is_for_the_next_one(
    world: World,
) -> None:
    await inject(world, "the bell\nrang")
    await inject(world, "it is five", kind="cron")
    await inject(world, "for another", "bob")
    worker = await world.hanging()
    await inject(world, "meanwhile")
    assert await pending(world) == ["the bell\nrang", "it is five", "meanwhile"]
    await world.begin("left")
    assert worker.steers == ["left"]
    worker.consume()
    worker.finish()
    await wait_all_tasks_blocked()
    assert (await pending(world), await pending(world, "bob")) == (["meanwhile"], ["for another"])
    await world.ask("next")
    assert world.launcher.prompts == [
        *("[SYSTEM] the bell rang\n[SYSTEM] it is five\n\nhang", "[SYSTEM] meanwhile\n\nnext"),
    ]


@pytest.mark.parametrize(
    ("message", "prompt"),
    [
        ({"text": "/skill tidy"}, "/skill tidy"),
        ({"text": "", "tool_results": [{"tool_use_id": "t1", "content": "7"}]}, ""),
        ({"text": "", "images": [{"data": "AA=="}]}, "[SYSTEM] the bell rang"),
    ],
)
async def test_what_must_reach_the_agent_as_it_is_tells_nothing_else(
    world: World, message: dict[str, Any], prompt: str
) -> None:
    await inject(world, "the bell rang")
    assert (await world.ask(session="alice", **message)).status == "ok"
    assert world.launcher.prompts == [prompt]
    assert await pending(world) == ([] if "bell" in prompt else ["the bell rang"])


async def test_a_turn_of_a_hold_and_one_that_ends_with_calls_for_its_client_tell_too(world: World) -> None:
    hold = (await world.call("acquire", session="alice"))["hold"]
    await inject(world, "the bell rang")
    await world.call("prompt", text="hello", hold=hold)
    assert world.launcher.prompts == ["[SYSTEM] the bell rang\n\nhello"]
    assert await pending(world) == []
    await world.call("release", hold=hold)
    await inject(world, "it rang again")
    run = await world.begin("hang")
    world.launcher.running("hang").finish("", stop_reason="tool_calls")
    await run.wait()
    assert await pending(world) == []


async def _end_badly(world: World, how: str) -> None:
    if how in {"fail", "refuse"}:
        assert (await world.ask(how)).status == "error"
        return
    run = await world.begin("hang", timeout=5 if how == "time out" else 3600)
    if how == "abort":
        await world.call("abort", session="alice")
    elif how == "die":
        world.launcher.running("hang").die()
    elif how == "interrupt":
        assert (await world.ask("fail", queue="interrupt")).status == "error"
    assert (await run.wait()).status == "error"


@pytest.mark.parametrize("how", ["fail", "refuse", "abort", "die", "time out", "interrupt"])
async def test_a_turn_that_does_not_succeed_loses_nothing(world: World, how: str) -> None:
    await inject(world, "the bell rang")
    await _end_badly(world, how)
    assert await pending(world) == ["the bell rang"]
    await world.ask("hello")
    assert world.launcher.prompts[-1] == "[SYSTEM] the bell rang\n\nhello"
    assert await pending(world) == []


# --- injecting --------------------------------------------------------------------------------------------------------


async def test_an_injected_event_is_answered_with_all_that_is_known_of_it_and_its_like_is_no_event(
    world: World,
) -> None:
    event = (await inject(world, " the bell rang ", kind="channel"))["event"]
    assert event == {**event, "session": "alice", "kind": "channel", "text": "the bell rang"}
    assert (await inject(world, "the bell rang", kind="channel"))["event"] is None
    assert (await world.call("events.peek", session="alice"))["events"] == [event]
    assert len(await world.events("system_event")) == 1
    with pytest.raises(UsageError, match="the text is empty"):
        await inject(world, "  \n")
    for method, more in (("events.inject", {"text": "x"}), ("events.peek", {})):
        with pytest.raises(UsageError, match=r"session key|\*"):
            await world.call(method, session="*", **more)


async def test_the_caller_is_answered_and_watchers_see_it_when_it_is_on_the_disk(world: World) -> None:
    world.store.hold_commits()
    answered: list[Any] = []

    async def answer(request: Awaitable[Any]) -> None:
        answered.append(await request)

    world.nursery.start_soon(answer, inject(world, "the bell rang"))
    assert await world.events("system_event") == []
    assert (answered, await pending(world)) == ([], ["the bell rang"])
    world.store.let_commit()
    (told,) = await world.events("system_event")
    assert told["data"] == {"id": answered[0]["event"]["id"], "kind": "other", "text": "the bell rang"}


# --- when it is gone --------------------------------------------------------------------------------------------------


async def test_an_event_is_gone_after_an_hour(world: World) -> None:
    await inject(world, "old")
    await trio.sleep(600)
    await inject(world, "young")
    await trio.sleep(3030)
    assert world.gateway.system_events.stats().expired == 1  # without a look at it
    assert await pending(world) == ["young"]
    await trio.sleep(600)
    assert world.store.documents == {}
    status = await world.call("status")
    figures = {"pending": 0, "sessions": 0, "injected": 2, "ignored": 0, "evicted": 0, "expired": 2}
    assert status["gateway"]["system_events"] == figures


async def test_a_new_conversation_keeps_what_is_not_of_the_old_one_and_a_deleted_session_leaves_nothing(
    world: World,
) -> None:
    await world.ask("hello")
    for kind in SystemEventKind:
        await inject(world, kind, kind=kind)
    await world.ask("/new")
    assert await pending(world) == ["cron", "channel", "other"]
    await world.call("sessions.delete", session="alice")
    assert (await pending(world), world.store.documents) == ([], {})


# --- what keeps it ----------------------------------------------------------------------------------------------------


async def test_events_outlive_a_crash_and_are_told_once_by_the_next_life(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.ask("background")
        end_command(world.launcher.workers[0])
        assert len(await world.events("exec_exit")) == 1
        await world.hanging()
        left = store.after_a_crash()
    async with open_world(tmp_path, store=left) as world:
        assert await pending(world) == [BUILT]
        await world.ask("what now?")
        assert world.launcher.prompts == [f"[SYSTEM] {BUILT}\n\nwhat now?"]
        again = left.after_a_crash()
    async with open_world(tmp_path, store=again) as world:
        assert await pending(world) == []


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

    def put_run(self, row: RunRow) -> None:
        super().put_run(row)
        if self._depth:
            self.transactions[-1].append(row.state.value)

    def put_document(self, kind: str, key: str, body: bytes | None) -> None:
        super().put_document(kind, key, body)
        if self._depth:
            self.transactions[-1].append((kind, key, body is None))


async def test_that_a_turn_has_told_its_events_and_that_it_has_ended_is_written_in_one_step(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = _Transactions()
    async with open_world(tmp_path, store=store) as world:
        await inject(world, "the bell rang")
        await world.ask("hello")
        assert store.transactions[-1] == ["ended", ("system_events", "alice", True)]


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
    answer = await world.call("delegate", caller, session="alice", agent="ops", task=task, **params)
    await wait_all_tasks_blocked()
    return answer


async def test_the_outcome_of_a_task_is_told_with_the_next_turn_unless_its_giver_waits_for_it(world: World) -> None:
    assert (await _delegate(world, "say 42"))["text"] == "42"
    assert await pending(world) == []
    run = (await _delegate(world, f"say {'4' * 10_000}", mode="async"))["run_id"]
    (event,) = (await world.call("events.peek", session="alice"))["events"]
    assert (event["kind"], event["context"]) == ("delegate", f"delegate:{run}")
    assert event["text"] == f"Task completed (agent ops, run {run}) :: {'4' * 2_000}"
    bad = (await _delegate(world, "refuse", mode="async"))["run_id"]
    assert (await pending(world))[1].startswith(f"Task failed (agent ops, run {bad}) :: ")


@pytest.mark.parametrize("has_begun", [True, False])
async def test_the_outcome_of_a_task_that_a_crash_met_is_told_in_the_next_life(
    tmp_path: Path, autojump_clock: MockClock, *, has_begun: bool
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, workers=1) as world:
        if not has_begun:
            await world.begin("hang", "bob")
        run = (await _delegate(world, "hang on", mode="async"))["run_id"]
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
