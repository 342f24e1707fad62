"""What becomes of messages while their session is busy, end to end: once a mode and once a limit."""

import pytest
import trio

from errors import PoolSaturated, UsageError
from gateway.runs.run import Run, RunOutcome
from gateway.settings import GatewaySettings, Overflow, QueueSettings
from tests.gateway.world import World, error_of, telegram
from wire.messages import QueueMode


async def _outcomes(*runs: Run) -> list[RunOutcome]:
    with trio.fail_after(3600):
        return [await run.wait() for run in runs]


def assert_code(outcome: RunOutcome, code: str, words: str) -> None:
    assert (outcome.status, error_of(outcome).code, words in error_of(outcome).message) == ("error", code, True)


@pytest.mark.world(queue={"mode": "followup", "cap": 5})
async def test_follow_ups_have_a_turn_each_in_their_order_and_new_limits_lose_none(world: World) -> None:
    worker = await world.hanging()
    runs = [await world.begin(f"say {number}") for number in range(3)]
    limits = QueueSettings(mode=QueueMode.FOLLOWUP, cap=1, overflow=Overflow.NEW)
    world.gateway.reconfigure(GatewaySettings(queue=limits), world.gateway.profile_cache.parts)
    with pytest.raises(PoolSaturated, match=r"gateway\.queue\.cap"):
        await world.send("say 3")
    assert worker.steers == []
    worker.finish()
    assert [outcome.text for outcome in await _outcomes(*runs)] == ["0", "1", "2"]
    assert (trio.current_time(), world.launcher.most) == (0, 1)


@pytest.mark.world(queue={"mode": "collect", "debounce": 0.5})
async def test_collected_messages_become_one_prompt_and_every_caller_has_its_outcome(world: World) -> None:
    worker = await world.hanging()
    runs = [await world.begin(text) for text in ("one", "two", "three")]
    worker.finish()
    outcomes = await _outcomes(*runs)
    [_, merged] = world.launcher.prompts
    assert merged.startswith("[3 messages came in while you were busy, in this order.")
    assert merged.endswith("[1 of 3]\none\n\n[2 of 3]\ntwo\n\n[3 of 3]\nthree")
    assert {(outcome.text, outcome.status) for outcome in outcomes} == {(f"hang|{merged}", "ok")}
    ids = {run.request.run_id for run in runs}
    assert {outcome.run_id for outcome in outcomes} == ids
    events = await world.events("run:start", "done")
    for type_ in ("run:start", "done"):
        assert {event["run_id"] for event in events if event["type"] == type_} >= ids


async def test_an_interrupting_message_takes_the_place_of_the_turn_and_of_all_that_waits(world: World) -> None:
    first = await world.begin("hang")
    waiting = [await world.begin(f"say {number}", queue="followup") for number in range(2)]
    newest = await world.begin("say newest", queue="interrupt")
    assert (await newest.wait()).text == "newest"
    for outcome in await _outcomes(*waiting):
        assert_code(outcome, "aborted", "took this one's place")
    outcome = await first.wait()
    assert_code(outcome, "aborted", "a newer message")
    assert (outcome.text, outcome.reason) == ("so far", "interrupted")
    assert world.launcher.prompts == ["hang", "say newest"]
    world.assert_at_rest()


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.world(queue={"mode": "followup", "cap": 1, "overflow": "old"})
async def test_with_the_policy_old_the_oldest_message_is_refused_and_its_caller_told(world: World) -> None:
    worker = await world.hanging()
    old, new = [await world.begin(f"say {text}") for text in ("old", "new")]
    assert_code(await old.wait(), "saturated", "gave way")
    [done] = await world.events("done")
    assert (done["run_id"], done["data"]["reason"]) == (old.request.run_id, "error")
    worker.finish()
    assert (await new.wait()).text == "new"


@pytest.mark.world(queue={"mode": "followup", "cap": 1, "overflow": "new"})
async def test_with_the_policy_new_a_message_too_many_is_refused_at_once_and_leaves_no_trace(world: World) -> None:
    worker = await world.hanging()
    first = await world.begin("say first")
    with pytest.raises(PoolSaturated, match=r"gateway\.queue\.cap") as refused:
        await world.send("say second", run="k2")
    assert refused.value.retry_after == 1
    assert "k2" not in {event["run_id"] for event in await world.events("run:accepted")}
    worker.finish()
    assert (await first.wait()).text == "first"
    assert (await world.ask("say again", run="k2")).text == "again"


@pytest.mark.world(queue={"lanes": {"cron": 1}})
async def test_a_named_lane_bounds_turns_over_all_sessions(world: World) -> None:
    first = await world.begin("hang", "job 1", lane="cron")
    second = await world.begin("say second", "job 2", lane="cron")
    assert (await world.ask("say free", "bob")).text == "free"
    assert world.launcher.prompts == ["hang", "say free"]
    lanes = {lane["name"]: lane for lane in (await world.call("status"))["gateway"]["lanes"]["lanes"]}
    assert (lanes["cron"]["running"], lanes["cron"]["waiting"], lanes["cron"]["limit"]) == (1, 1, 1)
    world.launcher.running("hang").die()
    assert [outcome.status for outcome in await _outcomes(first, second)] == ["error", "ok"]


# --- which mode counts ------------------------------------------------------------------------------------------------


@pytest.mark.world(queue={"mode": "followup", "channels": {"telegram": "collect"}})
@pytest.mark.parametrize(
    ("channel", "of_session", "of_message", "used"),
    [
        ("sms", None, None, "followup"),
        ("telegram", None, None, "collect"),
        ("telegram", "interrupt", None, "interrupt"),
        ("telegram", "interrupt", "steer", "steer"),
    ],
)
async def test_the_nearest_word_on_the_mode_counts(
    world: World, channel: str, of_session: str | None, of_message: str | None, used: str
) -> None:
    if of_session:
        await world.ask(f"/queue {of_session}", source=telegram(channel=channel))
    words = {"queue": of_message} if of_message else {}
    run = await world.send("hello", source=telegram(channel=channel), **words)
    assert run.request.mode.value == used
    accepted = (await world.events("run:accepted"))[-1]
    assert accepted["data"] == {"lane": "main", "priority": 10, "mode": used, "text": "hello"}


async def test_a_mode_with_a_text_holds_for_that_message_only_and_an_unknown_one_is_refused(world: World) -> None:
    run = await world.send("/queue followup say hello")
    assert (run.request.mode, run.request.text) == (QueueMode.FOLLOWUP, "say hello")
    assert (await run.wait()).text == "hello"
    assert (await world.send("/queue followup hi", queue="collect")).request.mode is QueueMode.COLLECT
    assert (await world.send("plain")).request.mode is QueueMode.STEER
    with pytest.raises(UsageError, match="sideways"):
        await world.send("hello", queue="sideways")
