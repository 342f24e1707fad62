"""What goes wrong in a run ends that run with its reason, and nothing else: the next message finds its session free."""

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gateway.hook_types import HookMessage
from gateway.runs.run import Run
from pool import Lease
from profiles import ProfilesSettings
from tests.gateway.workers import GatewayWorker
from tests.gateway.world import World, error_of


def _busy(world: World) -> GatewayWorker:
    return next(worker for worker in world.launcher.workers if worker.running is not None)


async def test_a_worker_that_dies_in_mid_turn_ends_the_run_with_the_reason(world: World) -> None:
    run = await world.begin("hang")
    later = await world.send("later", queue="followup")
    world.launcher.running("hang").die()
    outcome = await run.wait()
    assert (error_of(outcome).code, outcome.worker) == ("worker_exited", "w1")
    assert "signal 9" in error_of(outcome).message
    outcome = await later.wait()
    assert (outcome.status, outcome.worker) == ("ok", "w2")


async def test_a_run_that_may_have_had_effects_is_not_sent_again(world: World) -> None:
    assert (await world.ask("die")).status == "error"
    assert world.launcher.prompts == ["die"]
    assert (await world.ask("die", "bob", retry_safe=True)).status == "error"
    assert world.launcher.prompts == ["die"] * 4


@pytest.mark.world(queue={"mode": "collect", "debounce": 0})
@pytest.mark.parametrize("other", [True, False])
async def test_merged_runs_are_sent_again_only_where_all_of_them_may_be(world: World, *, other: bool) -> None:
    await world.begin("hang")
    runs = [await world.send("x", retry_safe=safe) for safe in (True, other)]
    world.launcher.slow = True
    _busy(world).finish()
    await wait_all_tasks_blocked()
    _busy(world).die()
    await wait_all_tasks_blocked()
    assert len(world.launcher.prompts) == (3 if other else 2)
    if other:
        _busy(world).finish()
    assert {(await run.wait()).status for run in runs} == {"ok" if other else "error"}


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


@pytest.mark.parametrize(
    ("end", "code", "why"),
    [
        ({"stop_reason": "timeout"}, "request_timeout", "the turn took longer than the agent allows"),
        ({"stop_reason": "aborted"}, "aborted", "the turn was aborted"),
        ({"stop_reason": "aborted", "error": "a call was denied"}, "aborted", "a call was denied"),
    ],
)
async def test_a_turn_that_its_worker_ends_early_says_why(
    world: World, end: dict[str, str], code: str, why: str
) -> None:
    run = await world.begin("hang")
    _busy(world).end_turn({"text": "half", **end})
    outcome = await run.wait()
    error = error_of(outcome)
    assert (outcome.status, outcome.text, error.code, error.message) == ("error", "half", code, why)


async def test_a_run_that_wants_no_new_worker_starts_none(world: World) -> None:
    outcome = await world.ask("hello", spawn=False)
    assert (error_of(outcome).code, world.launcher.starts) == ("no_worker", [])


# --- no failure leaves a session busy ---------------------------------------------------------------------------------

ENDS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "the worker dies": ("die", {}, "worker_exited"),
    "it dies although it may be repeated": ("die", {"retry_safe": True}, "worker_exited"),
    "the model fails": ("fail", {}, "worker_error"),
    "the worker refuses": ("refuse", {}, "worker_refused"),
    "its answer makes no sense": ("wrong", {}, "protocol_violation"),
    "it prints what is no message": ("garbage", {}, None),
    "no time at all": ("hang", {"timeout": 1e-9}, "request_timeout"),
    **{
        command: (command, {}, None) for command in ("/stop", "/new", "/status", "/compact", "/model", "/queue collect")
    },
}


@pytest.mark.parametrize("end", ENDS)
async def test_no_end_of_a_run_leaves_its_session_busy(world: World, end: str) -> None:
    text, params, code = ENDS[end]
    with trio.fail_after(60):
        await world.ask("first")
        outcome = await world.ask(text, **params)
        assert (outcome.error.code if outcome.error else None) == code
        await _assert_goes_on(world)


@pytest.mark.parametrize("how", ["abort", "workers.stop", "die"])
@pytest.mark.parametrize("text", ["hang", "ask", "stubborn"])
async def test_no_turn_that_is_ended_leaves_its_session_busy(world: World, text: str, how: str) -> None:
    run = await world.begin(text)
    with trio.fail_after(60):
        if how == "die":
            _busy(world).die()
        else:
            await world.call(how, **({"session": "alice"} if how == "abort" else {"worker": "w1"}))
        assert (await run.wait()).status == "error"
        assert world.gateway.pending_permissions.count == 0
        await _assert_goes_on(world)


async def test_an_agent_that_is_gone_from_the_settings_leaves_its_session_free(world: World) -> None:
    run = await world.begin("hang", agent="ops")
    later = await world.send("later", agent="ops", queue="followup")
    _forget_agents(world)
    world.launcher.running("hang").finish("see\nMEDIA:x.png")
    outcome = await run.wait()
    assert (outcome.status, outcome.text) == ("ok", "see\nMEDIA:x.png")
    [warning] = await world.events("error")
    assert "could not be looked at" in warning["data"]["message"]
    assert (await later.wait()).status == "error"
    await world.call("sessions.reset", session="alice")
    await _assert_goes_on(world)


async def _assert_goes_on(world: World) -> None:
    await wait_all_tasks_blocked()
    world.assert_at_rest()
    assert (await world.ask("say next", agent="main", role="default")).text == "next"
    world.assert_at_rest()


def _forget_agents(world: World) -> None:
    parts = world.gateway.profile_cache.parts
    world.gateway.profile_cache.reconfigure(msgspec.structs.replace(parts, profiles=ProfilesSettings()))


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


@pytest.mark.world(workers=1)
async def test_a_profile_that_cannot_start_and_a_damaged_transcript_fail_their_runs_and_no_others(world: World) -> None:
    world.launcher.broken.add("writer")
    with trio.fail_after(600):
        outcome = await world.ask("x", "bob", role="writer", timeout=300)
    assert error_of(outcome).code == "profile_broken"
    world.assert_at_rest("bob")
    for session in ("alice", "carol"):
        await world.ask("first", session)
    world.launcher.damaged.add("/t/0")
    outcome = await world.ask("second")
    assert error_of(outcome).code == "resume_failed"
    await world.ask("/new")
    assert (await world.ask("third")).text == "third"


async def _raise(_: HookMessage) -> None:
    raise RuntimeError("no")


HOOKED = ["message:received", "agent:bootstrap", "command:new", "session:end", "command:stop"]


@pytest.mark.world(hooks=dict.fromkeys(HOOKED, (_raise,)))
async def test_a_hook_that_raises_is_a_warning(world: World) -> None:
    for text in ("hello", "/new", "/stop"):
        await world.ask(text)
    assert (await world.ask("again")).text == "again"
    assert {warning.split(" for ")[1].split()[0] for warning in world.warnings} == set(HOOKED)
    world.assert_at_rest()


async def test_a_defect_in_one_turn_is_told_to_that_run_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = await world.begin("hang", "bob")
    profile_of = world.gateway.profile_cache.get

    async def broken(agent: str, role: str, **more: str | None) -> object:
        if agent == "ops":
            raise ZeroDivisionError("a slip")
        return await profile_of(agent, role, **more)

    monkeypatch.setattr(world.gateway.profile_cache, "get", broken)
    outcome = await world.ask("hello", agent="ops")
    assert (error_of(outcome).code, "a slip" in error_of(outcome).message) == ("internal", True)
    world.launcher.running("hang").finish()
    assert (await other.wait()).status == "ok"
    world.assert_at_rest()


async def test_a_defect_met_as_a_turn_begins_is_told_to_that_run_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(session: str, _profile: object) -> None:
        assert session == "alice", "a slip"
        raise trio.WouldBlock

    monkeypatch.setattr(world.gateway.pool, "acquire_nowait", broken)
    await world.ask("hello")
    outcome = await world.ask("hello", "bob")
    assert (error_of(outcome).code, "a slip" in error_of(outcome).message) == ("internal", True)
    assert (await world.ask("again")).text == "hello|again"
    world.assert_at_rest()


async def test_a_defect_met_while_a_message_is_put_into_a_turn_ends_that_turn_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_lease: Lease, _text: str) -> None:
        raise ZeroDivisionError("a slip")

    monkeypatch.setattr(Lease, "steer", broken)
    other = await world.begin("hang 1", "bob")
    run = await world.begin("hang 2")
    await world.begin("left")
    outcome = await run.wait()
    assert (error_of(outcome).code, "a slip" in error_of(outcome).message) == ("internal", True)
    world.launcher.running("hang 1").finish()
    assert (await other.wait()).status == "ok"
    world.assert_at_rest()
