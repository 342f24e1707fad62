"""What a session is told with its next turn: how it comes in, which turn tells it, when it is gone, what keeps it."""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import UsageError
from heartbeat.system_events import EventKind
from store.records import RunRow
from tests.gateway.callers import RecordingCaller
from tests.gateway.workers import GatewayWorker
from tests.gateway.world import WholeStore, World, open_world

BUILT = "Exec completed (calm-fox, code 0) :: built"


def end_command(worker: GatewayWorker, summary: str = BUILT, **changes: Any) -> None:
    """A background command of the conversation that the worker has ends."""
    data = {"session_id": "calm-fox", "summary": summary, "session_key": worker.file, "exit_code": 0, **changes}
    worker.tell("exec_exit", **data)
    worker.tell("background", running=0)


async def inject(world: World, text: str, session: str = "alice", **params: Any) -> Any:
    return await world.call("events.inject", session=session, text=text, **params)


async def pending(world: World, session: str = "alice") -> list[str]:
    answer = await world.call("events.peek", session=session)
    assert answer["session"] == session
    return [event["text"] for event in answer["events"]]


# --- ends of commands -------------------------------------------------------------------------------------------------


async def test_the_end_of_a_command_between_two_turns_is_told_once_and_with_the_next_turn(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
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


async def test_the_end_of_a_command_within_a_turn_is_told_once_and_with_the_next_turn(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        worker = await world.hanging()
        end_command(worker)
        ends = [event["type"] for event in await world.events() if "exec" in event["type"]]
        assert ends == ["exec_exit"]
        worker.finish()
        await world.ask("what now?")
        assert world.launcher.prompts[1] == f"[SYSTEM] {BUILT}\n\nwhat now?"
        assert len(await world.events("exec_exit")) == 0


async def test_a_command_without_a_word_about_its_end_is_named(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        await world.ask("hello")
        end_command(world.launcher.workers[0], "  ", session_id="x" * 300)
        await wait_all_tasks_blocked()
        assert await pending(world) == [f"Exec ended ({'x' * 256})"]


async def test_what_a_worker_says_of_an_end_is_cut(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        await world.ask("hello")
        end_command(world.launcher.workers[0], "y" * 100_000, exit_code=None, signal="S" * 300)
        (told,) = await world.events("exec_exit")
        assert (len(told["data"]["summary"]), len(told["data"]["signal"])) == (2_000, 256)
        assert await pending(world) == ["y" * 2_000]


async def test_the_end_of_a_command_of_a_conversation_that_is_over_is_told_nobody_but_those_who_watch(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        await world.ask("hello")
        worker, old = world.launcher.workers[0], world.launcher.workers[0].file
        await world.ask("/new")
        await world.ask("hello again")
        end_command(worker, session_key=old)
        (told,) = await world.events("exec_exit")
        assert told["session"] == ""
        assert await pending(world) == []


@pytest.mark.parametrize(("commands", "what"), [(1, "a background command"), (2, "2 background commands")])
async def test_a_worker_that_dies_tells_of_the_commands_that_die_with_it(
    tmp_path: Path, autojump_clock: MockClock, commands: int, what: str
) -> None:
    async with open_world(tmp_path) as world:
        await world.ask("hello")
        worker = world.launcher.workers[0]
        worker.tell("background", running=commands)
        worker.die()
        (told,) = await world.events("exec_lost")
        reason = "worker w1 killed by signal 9"
        assert (told["session"], told["data"]) == ("alice", {"worker": "w1", "commands": commands, "reason": reason})
        assert await pending(world) == [f"Exec failed ({what}) :: ended with what it ran on: {reason}"]


async def test_commands_that_end_with_the_supervisor_are_told_in_its_next_life(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.ask("background")
    async with open_world(tmp_path, store=store.after_a_stop()) as world:
        (text,) = await pending(world)
        assert text.endswith("worker w1 was stopped (closed)")


# --- which turn tells it ----------------------------------------------------------------------------------------------


async def test_a_turn_tells_all_that_waits_in_the_order_of_its_coming(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        await inject(world, "the bell\nrang")
        await inject(world, "it is five", kind="cron")
        await inject(world, "for another", "bob")
        assert (await world.ask("hello")).status == "ok"
        assert world.launcher.prompts == ["[SYSTEM] the bell rang\n[SYSTEM] it is five\n\nhello"]
        assert (await pending(world), await pending(world, "bob")) == ([], ["for another"])


async def test_what_comes_while_a_turn_runs_is_for_the_next_one(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        await inject(world, "before")
        worker = await world.hanging()
        await inject(world, "meanwhile")
        assert await pending(world) == ["before", "meanwhile"]
        worker.finish()
        await wait_all_tasks_blocked()
        assert await pending(world) == ["meanwhile"]
        await world.ask("next")
        assert world.launcher.prompts[1] == "[SYSTEM] meanwhile\n\nnext"


async def test_a_steer_tells_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        worker = await world.hanging()
        await inject(world, "meanwhile")
        await world.begin("left")
        assert worker.steers == ["left"]
        worker.consume()
        worker.finish()
        await wait_all_tasks_blocked()
        assert await pending(world) == ["meanwhile"]


async def test_a_hold_is_told_too(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        hold = (await world.call("acquire", session="alice"))["hold"]
        await inject(world, "the bell rang")
        await world.call("prompt", text="hello", hold=hold)
        assert world.launcher.prompts == ["[SYSTEM] the bell rang\n\nhello"]
        assert await pending(world) == []


@pytest.mark.parametrize(
    "message", [{"text": "/skill tidy"}, {"text": "", "tool_results": [{"tool_use_id": "t1", "content": "7"}]}]
)
async def test_what_must_reach_the_agent_as_it_is_tells_nothing_else(
    tmp_path: Path, autojump_clock: MockClock, message: dict[str, Any]
) -> None:
    async with open_world(tmp_path) as world:
        await inject(world, "the bell rang")
        assert (await world.ask(session="alice", **message)).status == "ok"
        assert world.launcher.prompts == [message["text"]]
        assert await pending(world) == ["the bell rang"]


async def test_an_image_without_a_word_is_told_with_the_events_alone(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        await inject(world, "the bell rang")
        await world.ask("", images=[{"data": "AA=="}])
        assert world.launcher.prompts == ["[SYSTEM] the bell rang"]


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
async def test_a_turn_that_does_not_succeed_loses_nothing(
    tmp_path: Path, autojump_clock: MockClock, ending: Any
) -> None:
    async with open_world(tmp_path) as world:
        await inject(world, "the bell rang")
        await ending(world)
        assert await pending(world) == ["the bell rang"]
        await world.ask("hello")
        assert world.launcher.prompts[-1] == "[SYSTEM] the bell rang\n\nhello"
        assert await pending(world) == []


async def test_a_prompt_that_is_sent_again_tells_again(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        await inject(world, "the bell rang")
        run = await world.begin("hang", retry_safe=True)
        world.launcher.running("hang").die()
        await wait_all_tasks_blocked()
        world.launcher.running("hang").finish()
        assert (await run.wait()).status == "ok"
        assert world.launcher.prompts == ["[SYSTEM] the bell rang\n\nhang"] * 2
        assert await pending(world) == []


async def test_a_turn_that_ends_with_calls_for_its_client_has_told(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        await inject(world, "the bell rang")
        run = await world.begin("hang")
        world.launcher.running("hang").finish("", stop_reason="tool_calls")
        await run.wait()
        assert await pending(world) == []


async def test_an_event_is_gone_after_an_hour(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await inject(world, "old")
        await trio.sleep(600)
        await inject(world, "young")
        await trio.sleep(3030)
        assert world.gateway.system_events.figures().expired == 1  # nobody has looked
        assert await pending(world) == ["young"]
        await trio.sleep(600)
        assert store.documents == {}
        status = await world.call("status")
        figures = {"pending": 0, "sessions": 0, "injected": 2, "ignored": 0, "evicted": 0, "expired": 2}
        assert status["gateway"]["system_events"] == figures


async def test_a_new_conversation_is_told_nothing_that_the_old_one_has_begun(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        await world.ask("hello")
        for kind in EventKind:
            await inject(world, kind, kind=kind)
        await world.ask("/new")
        assert await pending(world) == ["cron", "channel", "other"]


async def test_a_session_that_is_deleted_leaves_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.ask("hello")
        for kind in EventKind:
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
    def together(self) -> Iterator[None]:
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


async def test_who_injects_is_answered_and_who_watches_is_told_when_it_is_on_the_disk(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
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


# --- injecting --------------------------------------------------------------------------------------------------------


async def test_an_injected_event_is_answered_with_all_that_is_known_of_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        answer = await inject(world, " the bell rang ", kind="channel")
        event = answer["event"]
        assert event == {**event, "session": "alice", "kind": "channel", "text": "the bell rang"}
        assert (await world.call("events.peek", session="alice"))["events"] == [event]


async def test_the_same_again_is_no_event(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        await inject(world, "the bell rang")
        assert (await inject(world, "the bell rang"))["event"] is None
        assert await pending(world) == ["the bell rang"]
        assert len(await world.events("system_event")) == 1


@pytest.mark.parametrize("text", ["", "  \n"])
async def test_nothing_is_no_event(tmp_path: Path, autojump_clock: MockClock, text: str) -> None:
    async with open_world(tmp_path) as world:
        with pytest.raises(UsageError, match="the text is empty"):
            await inject(world, text)


@pytest.mark.parametrize("method", ["events.inject", "events.peek"])
async def test_what_is_no_session_key_is_refused(tmp_path: Path, autojump_clock: MockClock, method: str) -> None:
    more = {"text": "x"} if method == "events.inject" else {}
    async with open_world(tmp_path) as world:
        with pytest.raises(UsageError, match=r"session key|\*"):
            await world.call(method, session="*", **more)


async def test_a_session_that_does_not_exist_yet_is_told_with_its_first_turn(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        await inject(world, "the bell rang", "nobody yet")
        await world.ask("hello", "nobody yet")
        assert world.launcher.prompts == ["[SYSTEM] the bell rang\n\nhello"]


# --- outcomes of tasks ------------------------------------------------------------------------------------------------


async def _delegate(world: World, task: str, **params: Any) -> Any:
    caller = RecordingCaller(world.nursery)
    return await world.call("delegate", caller, session="alice", agent="ops", task=task, **params)


async def test_the_outcome_of_a_task_nobody_waits_for_is_told_with_the_next_turn(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        run = (await _delegate(world, "say 42", mode="async"))["run_id"]
        await wait_all_tasks_blocked()
        (event,) = (await world.call("events.peek", session="alice"))["events"]
        assert (event["kind"], event["context"]) == ("delegate", f"delegate:{run}")
        assert event["text"] == f"Task completed (agent ops, run {run}) :: 42"
        bad = (await _delegate(world, "refuse", mode="async"))["run_id"]
        await wait_all_tasks_blocked()
        assert (await pending(world))[1].startswith(f"Task failed (agent ops, run {bad}) :: ")


async def test_who_waits_for_a_task_is_told_nothing_twice(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        assert (await _delegate(world, "say 42"))["text"] == "42"
        await wait_all_tasks_blocked()
        assert await pending(world) == []


async def test_a_very_long_outcome_is_cut(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
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
