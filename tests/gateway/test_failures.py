"""What goes wrong in a run ends that run with its reason, and nothing else: the next message finds its session free."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import PoolError
from gateway.hooks import HookMessage
from gateway.runs.run import Run
from profiles import ProfilesSettings
from tests.gateway.world import World, open_world


async def test_a_worker_that_dies_in_mid_turn_ends_the_run_with_the_reason(world: World) -> None:
    run = await world.begin("hang")
    later = await world.send("later", queue="followup")
    world.launcher.running("hang").die()
    outcome = await run.wait()
    assert outcome.error is not None
    assert (outcome.error.code, outcome.worker) == ("worker_exited", "w1")
    assert "signal 9" in outcome.error.message
    outcome = await later.wait()
    assert (outcome.status, outcome.worker) == ("ok", "w2")


async def test_a_run_that_may_have_had_effects_is_not_sent_again(world: World) -> None:
    assert (await world.ask("die")).status == "error"
    assert world.launcher.prompts == ["die"]
    assert (await world.ask("die", "bob", retry_safe=True)).status == "error"
    assert world.launcher.prompts == ["die"] * 4


@pytest.mark.world(queue={"mode": "collect", "debounce": 0})
async def test_merged_runs_are_sent_again_only_where_all_of_them_may_be(world: World) -> None:
    for session, others in (("alice", [True, False]), ("bob", [True, True])):
        await world.begin("hang", session)
        runs = [await world.send("x", session, retry_safe=safe) for safe in others]
        world.launcher.slow = True
        world.launcher.running("hang").finish()
        await wait_all_tasks_blocked()
        before = len(world.launcher.prompts)
        next(worker for worker in world.launcher.workers if worker.running is not None).die()
        await wait_all_tasks_blocked()
        assert len(world.launcher.prompts) - before == int(all(others))
        world.launcher.slow = False
        for worker in world.launcher.workers:
            if worker.running is not None:
                worker.finish()
        assert {(await run.wait()).status for run in runs} == {"ok" if all(others) else "error"}


async def test_a_prompt_of_which_nothing_reached_the_worker_is_sent_to_another(world: World) -> None:
    await world.ask("before")
    [worker] = world.launcher.workers
    worker.transport.close_input()
    run = await world.begin("hello")
    worker.die()
    outcome = await run.wait()
    assert (outcome.status, outcome.text, outcome.worker) == ("ok", "before|hello", "w2")
    types = [event["type"] for event in await world.events() if event.get("run_id") == outcome.run_id]
    assert types == ["run:accepted", "run:start", "text_chunk", "done"]


# --- no failure leaves a session busy ---------------------------------------------------------------------------------


async def _ask(world: World, text: str, **params: Any) -> None:
    await world.ask(text, **params)


async def _refused(world: World, **params: Any) -> None:
    with pytest.raises(PoolError):
        await world.call("agent", **{"session": "alice", "text": "x", **params})


async def _aborted(world: World, text: str) -> None:
    run = await world.begin(text)
    await world.call("abort", session="alice")
    await run.wait()


async def _worker_stopped(world: World, text: str) -> None:
    run = await world.begin(text)
    await world.call("workers.stop", worker="w1")
    await run.wait()


async def _agent_gone_from_the_settings(world: World) -> None:
    await world.ask("/new")  # only a new conversation may be another agent's
    run = await world.begin("hang", agent="ops")
    later = await world.send("later", agent="ops", queue="followup")
    _forget_agents(world)
    world.launcher.running("hang").finish("MEDIA:x.png")
    await run.wait()
    assert (await later.wait()).status == "error"
    await world.call("sessions.reset", session="alice")


def _forget_agents(world: World) -> None:
    parts = world.gateway.profile_cache.parts
    world.gateway.profile_cache.reconfigure(msgspec.structs.replace(parts, profiles=ProfilesSettings()))


async def _steer_and_death(world: World) -> None:
    run = await world.begin("hang")
    worker = world.launcher.running("hang")
    worker.ignores_steers = True
    steered = await world.begin("left")
    worker.die()
    await run.wait()
    await steered.wait()


FAILURES: dict[str, Callable[[World], Awaitable[None]]] = {
    "the worker dies": lambda world: _ask(world, "die"),
    "it dies although it may be repeated": lambda world: _ask(world, "die", retry_safe=True),
    "it says nothing any more": lambda world: _ask(world, "deaf", timeout=5),
    "it does not heed the abort": lambda world: _ask(world, "stubborn", timeout=5),
    "the model fails": lambda world: _ask(world, "fail"),
    "the worker refuses": lambda world: _ask(world, "refuse"),
    "its answer makes no sense": lambda world: _ask(world, "wrong"),
    "it prints what is no message": lambda world: _ask(world, "garbage"),
    "a tool fails": lambda world: _ask(world, "tool ls"),
    "time ends": lambda world: _ask(world, "hang", timeout=5),
    "no time at all": lambda world: _ask(world, "hang", timeout=1e-9),
    "no worker and none to be started": lambda world: _ask(world, "x", spawn=False),
    "somebody aborts": lambda world: _aborted(world, "hang"),
    "somebody aborts one that awaits a person": lambda world: _aborted(world, "ask"),
    "somebody aborts one that does not heed it": lambda world: _aborted(world, "stubborn"),
    "an operator stops the worker": lambda world: _worker_stopped(world, "hang"),
    "the agent is no longer in the settings": _agent_gone_from_the_settings,
    "a steer is under way when the worker dies": _steer_and_death,
    "an empty message": lambda world: _refused(world, text=""),
    "an unknown agent": lambda world: _refused(world, agent="nobody"),
    "/stop": lambda world: _ask(world, "/stop"),
    "/new": lambda world: _ask(world, "/new"),
    "/status": lambda world: _ask(world, "/status"),
    "/compact": lambda world: _ask(world, "/compact"),
    "/model": lambda world: _ask(world, "/model"),
    "/queue": lambda world: _ask(world, "/queue collect"),
    "/help": lambda world: _ask(world, "/help"),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_no_failure_leaves_a_session_busy(world: World, failure: str) -> None:
    with trio.fail_after(60):
        await world.ask("first")
        await FAILURES[failure](world)
        await wait_all_tasks_blocked()
        world.assert_at_rest()
        assert (await world.ask("say next", agent="main", role="default")).text == "next"
    world.assert_at_rest()


@pytest.mark.parametrize("queue", ["followup", "collect", "interrupt", "steer"])
@pytest.mark.parametrize("end", ["finish", "die", "abort"])
async def test_however_a_turn_ends_what_waits_behind_it_has_its_outcome(world: World, end: str, queue: str) -> None:
    runs: list[Run] = [await world.begin("hang")]
    worker = world.launcher.running("hang")
    worker.refuses_steers = True
    runs += [await world.begin(f"say {number}", queue=queue) for number in range(3)]
    if end == "abort":
        await world.call("abort", session="alice")
    elif worker.running is not None:  # an interrupting message has ended it already
        getattr(worker, end)()
    with trio.fail_after(60):
        outcomes = [await run.wait() for run in runs]
    assert outcomes[-1].status == "ok"
    world.assert_at_rest()


async def test_a_profile_that_cannot_start_fails_its_runs_and_no_others(world: World) -> None:
    world.launcher.broken.add("writer")
    with trio.fail_after(600):
        outcome = await world.ask("x", "bob", role="writer", timeout=300)
    assert outcome.error is not None
    assert outcome.error.code == "profile_broken"
    world.assert_at_rest("bob")
    assert (await world.ask("hello")).text == "hello"


@pytest.mark.world(workers=1)
async def test_a_damaged_transcript_fails_the_run_until_the_session_begins_anew(world: World) -> None:
    await world.ask("first")
    await world.ask("other", "bob")
    world.launcher.damaged.add("/t/0")
    outcome = await world.ask("second")
    assert outcome.error is not None
    assert outcome.error.code == "resume_failed"
    await world.ask("/new")
    assert (await world.ask("third")).text == "third"


async def test_a_hook_that_raises_is_a_warning(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def raises(_: HookMessage) -> None:
        raise RuntimeError("no")

    hooks = {"message:received": (raises,), "agent:bootstrap": (raises,), "command:new": (raises,)}
    async with open_world(tmp_path, hooks={**hooks, "session:end": (raises,), "command:stop": (raises,)}) as world:  # type: ignore[dict-item]  # names in two pieces
        assert (await world.ask("hello")).text == "hello"
        await world.ask("/new")
        await world.ask("/stop")
        assert (await world.ask("again")).text == "again"
        named = {warning.split(" for ")[1].split()[0] for warning in world.warnings}
        assert named == {"message:received", "agent:bootstrap", "command:new", "session:end", "command:stop"}
        world.assert_at_rest()


async def test_a_hook_that_takes_too_long_is_left_behind(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def sleeps(_: HookMessage) -> None:
        await trio.sleep_forever()

    async with open_world(tmp_path, hooks={"message:received": (sleeps,)}) as world:
        assert (await world.ask("hello")).text == "hello"
        assert trio.current_time() == 5


async def test_a_defect_in_one_turn_is_told_to_that_run_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = await world.begin("hang", "bob")
    profile_of = world.gateway.profile_cache.get

    async def broken(agent: str, role: str, **more: str | None) -> object:
        if agent == "ops":
            raise ZeroDivisionError("a slip")
        return await profile_of(agent, role, **more)

    monkeypatch.setattr(world.gateway.profile_cache, "get", broken)
    outcome = await world.ask("hello", agent="ops")
    assert outcome.error is not None
    assert (outcome.error.code, "a slip" in outcome.error.message) == ("internal", True)
    world.launcher.running("hang").finish()
    assert (await other.wait()).status == "ok"
    world.assert_at_rest()


async def test_an_answer_whose_files_cannot_be_looked_at_is_told_as_it_is(world: World) -> None:
    run = await world.begin("hang", agent="ops")
    _forget_agents(world)
    world.launcher.running("hang").finish("see\nMEDIA:x.png")
    outcome = await run.wait()
    assert (outcome.status, outcome.text) == ("ok", "see\nMEDIA:x.png")
    [warning] = await world.events("error")
    assert "could not be looked at" in warning["data"]["message"]
