"""What people decide and answer, and what they look at in a session: each finds the worker that the session has."""

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from errors import PoolError, ProtocolViolation, UsageError, WorkerRefused
from tests.gateway.world import World

# --- approvals --------------------------------------------------------------------------------------------------------


async def test_a_decision_finds_the_session_by_the_call(world: World) -> None:
    first = await world.begin("ask c1", "alice")
    second = await world.begin("ask c2", "bob")
    answer = await world.call("decide", call_id="c2", decision="deny", note="not on a Friday")
    assert answer == {"session": "bob", "call_id": "c2", "decision": "deny", "by": "carol"}
    assert (await second.wait()).text == "deny"
    note = {"note": "not on a Friday", "by": "carol"}
    assert world.launcher.asked("decide") == [{"call_id": "c2", "decision": "deny", **note}]
    assert first.is_live
    await world.call("decide", call_id="c1", decision="allow")
    assert (await first.wait()).text == "allow"
    assert world.launcher.asked("decide")[1] == {"call_id": "c1", "decision": "allow", "by": "carol"}


async def test_one_of_the_agents_own_answers_reaches_it_and_what_came_of_it_is_said(world: World) -> None:
    asks = await world.begin("ask c1", "alice")
    answer = await world.call("decide", call_id="c1", decision="allow", option_id="never")
    assert answer == {"session": "alice", "call_id": "c1", "decision": "deny", "by": "carol"}
    await asks.wait()
    chosen = {"call_id": "c1", "decision": "allow", "by": "carol", "option_id": "never"}
    assert world.launcher.asked("decide") == [chosen]


async def test_a_call_is_shown_in_full_by_the_worker_that_asks_and_the_word_from_its_end_reaches_it(
    world: World,
) -> None:
    run = await world.begin("ask c1", "alice")
    page = {"parts": [{"name": "command", "text": "x" * 100_000}], "hidden": 7, "seen": "1234"}
    world.launcher.running("ask c1").page = page
    shown = msgspec.to_builtins(await world.call("approvals.show", call_id="c1", offset=5))
    assert world.launcher.asked("describe_call") == [{"call_id": "c1", "offset": 5}]
    assert (shown["session"], shown["call"]["id"], "is_partial" in shown) == ("alice", "c1", False)
    assert len(shown["page"]["parts"][0]["text"]) == 64_000
    assert (shown["page"]["hidden"], "seen" in shown["page"]) == (36_007, False)
    await world.call("decide", call_id="c1", decision="allow", seen="1234")
    assert world.launcher.asked("decide") == [{"call_id": "c1", "decision": "allow", "by": "carol", "seen": "1234"}]
    await run.wait()
    with pytest.raises(UsageError, match="was decided already"):
        await world.call("approvals.show", call_id="c1")


async def test_of_a_worker_that_cannot_show_its_calls_the_beginning_is_shown_as_that(world: World) -> None:
    await world.begin("ask c1", "alice")
    shown = msgspec.to_builtins(await world.call("approvals.show", call_id="c1"))
    assert shown["page"]["parts"] == [{"name": "input", "text": "rm -rf"}]
    assert shown["is_partial"] is True
    world.launcher.running("ask c1").page = {"parts": 7}
    with pytest.raises(ProtocolViolation, match="makes no sense"):
        await world.call("approvals.show", call_id="c1")


async def test_a_question_and_its_answer_are_control_events_of_the_run_and_in_the_view_of_the_session(
    world: World,
) -> None:
    await world.begin("ask", run="k1")
    [asked] = await world.events("permission_required")
    assert (asked["channel"], asked["run_id"], asked["data"]["call"]["id"]) == ("control", "k1", "c1")
    view = await world.call("sessions.get", session="alice")
    [call] = view["pending_permissions"]
    assert (view["state"], call["id"], call["name"], call["input_preview"]) == ("PAUSED", "c1", "bash", "rm -rf")
    assert call["reason"] == "every call needs approval"
    assert call["options"] == asked["data"]["options"] == [{"id": "never", "name": "Never", "kind": "reject_always"}]
    asked = {"session": "alice", "call": call}
    assert await world.call("approvals.list") == [asked]
    assert (await world.call("status"))["gateway"]["permissions"] == [asked]
    await world.call("agent", text="and then?", session="alice", run="k2", queue="followup")
    accepted = [event["data"] for event in await world.events("run:accepted")]
    assert [data.get("awaits_person") for data in accepted] == [True]
    await world.call("decide", call_id="c1", decision="deny", note="no")
    [decided] = await world.events("permission_decided")
    assert decided["data"] == {"call_id": "c1", "decision": "deny", "by": "carol", "note": "no"}
    assert (await world.call("sessions.get", session="alice"))["pending_permissions"] == []


@pytest.mark.parametrize(
    ("word", "reason"), [("decide", "answered"), ("abort", "the turn is over"), ("die", "the worker has died")]
)
async def test_why_a_person_is_asked_no_longer_is_told(world: World, word: str, reason: str) -> None:
    await world.begin("ask")
    match word:
        case "decide":
            await world.call("decide", call_id="c1", decision="allow")
        case "abort":
            await world.call("abort", session="alice")
        case _:
            world.launcher.running("ask").die()
    await wait_all_tasks_blocked()
    changes = [event["data"] for event in await world.events("state_changed")]
    assert [change["reason"] for change in changes if change["from"] == "PAUSED"] == [reason]


async def test_a_call_is_decided_once_and_not_after_its_turn(world: World) -> None:
    with pytest.raises(UsageError, match="no tool call 'c1' waits for approval"):
        await world.call("decide", call_id="c1", decision="allow")
    await world.begin("ask")
    await world.call("decide", call_id="c1", decision="allow")
    await wait_all_tasks_blocked()
    await world.begin("ask c2")
    await world.call("abort", session="alice")
    await wait_all_tasks_blocked()
    asked = len(world.launcher.asked("decide"))
    for call, why in (("c1", r"was decided already \(allow by carol\)"), ("c2", "its turn has ended")):
        with pytest.raises(UsageError, match=why):
            await world.call("decide", call_id=call, decision="deny")
    assert len(world.launcher.asked("decide")) == asked


async def test_a_decision_goes_to_no_worker_once_the_turn_has_given_its_own_back(world: World) -> None:
    async def take_time(_: object) -> None:
        await trio.sleep(1)

    world.hooks.replace({"message:sending": (take_time,)})
    run = await world.begin("ask")
    await world.call("abort", session="alice")
    await wait_all_tasks_blocked()
    assert run.is_live  # its answer is still being looked at, its call not yet forgotten
    with pytest.raises(UsageError, match="is no longer pending: its turn has ended"):
        await world.call("decide", call_id="c1", decision="allow")
    assert world.launcher.asked("decide") == []
    await run.wait()


# --- dialogs ----------------------------------------------------------------------------------------------------------


async def test_an_answer_to_a_dialog_goes_to_the_worker_that_asked(world: World) -> None:
    run = await world.begin("dialog")
    [asked] = await world.events("ui_request")
    assert (asked["channel"], asked["data"]["id"], asked["data"]["method"]) == ("control", "d1", "confirm")
    assert world.state() == "PAUSED"
    assert await world.call("ui.respond", session="alice", id="d1", confirmed=False) == {"resolved": True}
    assert world.launcher.asked("ui_respond") == [{"id": "d1", "confirmed": False}]
    assert (await run.wait()).text == "resolved"


async def test_a_dialog_has_exactly_one_answer(world: World) -> None:
    await world.begin("dialog")
    answers: Any = ({}, {"value": "x", "confirmed": True}, {"confirmed": True, "cancelled": False})
    for answer in answers:
        with pytest.raises(UsageError, match="exactly one"):
            await world.call("ui.respond", session="alice", id="d1", **answer)
    assert world.launcher.asked("ui_respond") == []


# --- background processes ---------------------------------------------------------------------------------------------


async def test_processes_are_those_of_the_sessions_own_worker_in_its_turn_and_after(world: World) -> None:
    for session in ("alice", "bob"):
        await world.ask("hello", session)
    [bobs] = [worker for worker in world.launcher.workers if worker.file == "/t/1"]
    after = await world.call("process", session="bob", action="poll", params={"id": "p1", "action": "kill"})
    assert after == {"worker": bobs.id, "id": "p1", "action": "poll"}
    await world.begin("hang", "bob")
    during = await world.call("process", session="bob", action="list")
    assert during == {"worker": bobs.id, "action": "list"}
    assert world.launcher.running("hang") is bobs


async def test_input_for_a_process_is_text_with_or_without_enter_or_else_keys(world: World) -> None:
    await world.ask("hello", "bob")
    [worker] = world.launcher.workers
    for given, sent in (
        ({"data": "ls", "enter": True}, {"action": "submit", "data": "ls"}),
        ({"data": "ls", "eof": True}, {"action": "write", "data": "ls", "eof": True}),
        ({"keys": ["C-c"]}, {"action": "send_keys", "keys": ["C-c"]}),
    ):
        answer = await world.call("process.write", session="bob", id="p1", **given)
        assert answer == {"worker": worker.id, "session_id": "p1", **sent}
    with pytest.raises(UsageError, match="either data or keys"):
        await world.call("process.write", session="bob", id="p1", data="x", keys=["Enter"])


async def test_a_session_that_is_unknown_or_has_no_worker_is_an_error_and_gets_none(world: World) -> None:
    with pytest.raises(UsageError, match="there is no session 'alice'"):
        await world.call("process", session="alice", action="list")
    await world.ask("/status")
    with pytest.raises(PoolError):
        await world.call("process", session="alice", action="list")
    assert world.launcher.starts == []


async def test_what_the_worker_refuses_is_told_with_its_own_code(world: World) -> None:
    await world.begin("hang")
    world.launcher.cannot_compact = True
    with pytest.raises(WorkerRefused, match="nothing to summarise") as refused:
        await world.gateway.ask_worker("alice", "compact", {})
    assert refused.value.details["worker_code"] == "too_short"


async def test_looking_at_a_session_does_not_keep_its_next_message_waiting(world: World) -> None:
    await world.ask("one")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: world.call("process", session="alice", action="list"))
        assert (await world.ask("two")).text == "one|two"
    world.assert_at_rest()
