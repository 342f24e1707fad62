"""Subscriptions of a connection: every event exactly once and in order, from a bookmark to a bookmark."""

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from errors import UsageError
from tests.gateway.callers import RecordingCaller
from tests.gateway.world import World


class SlowCaller(RecordingCaller):
    """A peer that reads nothing until it is let."""

    def __init__(self, nursery: trio.Nursery, **more: Any) -> None:
        super().__init__(nursery, **more)
        self.reads = trio.Event()

    async def push_encoded(self, event: str, data: bytes, *, result_follows: bool = False) -> None:
        await self.reads.wait()
        await super().push_encoded(event, data, result_follows=result_follows)


def _events(caller: RecordingCaller, subscription: str) -> list[dict[str, Any]]:
    frames = [data for name, data in caller.pushed if name == "events" and data.get("subscription") == subscription]
    return [event for frame in frames for event in frame["events"]]


def _ends(caller: RecordingCaller) -> list[dict[str, Any]]:
    return [data for name, data in caller.pushed if name == "subscription_ended"]


async def _text_of(world: World, count: int) -> None:
    await world.ask(f"many {count}")
    await wait_all_tasks_blocked()


async def test_every_event_comes_exactly_once_and_in_order_replayed_and_live(world: World) -> None:
    await _text_of(world, 50)
    answer = await world.call("subscribe", since=0)
    name, live = answer["subscription"], await world.call("subscribe")
    assert (answer["complete"], live["head"], live["complete"]) == (True, world.gateway.bus.head, True)
    assert _events(world.caller, live["subscription"]) == []
    await _text_of(world, 50)
    await world.ask("hello", "bob")
    events = await world.events()
    seqs = [event["seq"] for event in _events(world.caller, name)]
    assert seqs == [event["seq"] for event in events] == sorted(set(seqs))


@pytest.mark.parametrize(
    ("wanted", "types"),
    [
        ({"session": "bob"}, {"run:accepted", "run:start", "text_chunk", "done", "state_changed"}),
        ({"channels": ["control"]}, {"permission_required", "permission_decided"}),
        ({"session": "bob", "channels": ["monitor"], "kinds": ["done"]}, set()),
    ],
)
async def test_only_what_was_asked_for_comes(world: World, wanted: dict[str, Any], types: set[str]) -> None:
    name = (await world.call("subscribe", **wanted))["subscription"]
    await world.begin("ask", "alice")
    await world.call("decide", call_id="c1", decision="allow")
    await world.ask("hello", "bob")
    await wait_all_tasks_blocked()
    events = _events(world.caller, name)
    assert {event["type"] for event in events} == types
    assert {event["session"] for event in events} <= ({"bob"} if "session" in wanted else {"alice", "bob"})


async def test_a_session_is_meant_in_every_spelling(world: World) -> None:
    name = (await world.call("subscribe", session="agent:OPS:main"))["subscription"]
    await world.ask("hello", "agent:ops:main:main")
    await wait_all_tasks_blocked()
    assert _events(world.caller, name) != []
    with pytest.raises(UsageError, match="no session key"):
        await world.call("subscribe", session="agent:ops")


async def test_the_end_of_a_subscription_is_a_bookmark_from_which_the_next_goes_on(world: World) -> None:
    name = (await world.call("subscribe", since=0))["subscription"]
    await _text_of(world, 20)
    ended = await world.call("unsubscribe", subscription=name)
    first = [event["seq"] for event in _events(world.caller, name)]
    assert ended == {"subscription": name, "bookmark": first[-1]}
    assert _ends(world.caller) == [{**ended, "reason": "unsubscribed"}]
    await _text_of(world, 20)
    assert [event["seq"] for event in _events(world.caller, name)] == first
    again = (await world.call("subscribe", since=ended["bookmark"]))["subscription"]
    await wait_all_tasks_blocked()
    second = [event["seq"] for event in _events(world.caller, again)]
    assert first + second == [event["seq"] for event in await world.events()]
    with pytest.raises(UsageError, match="there is no subscription"):
        await world.call("unsubscribe", subscription=name)


@pytest.mark.world(events={"ring": 20_000})
async def test_a_subscriber_that_is_too_slow_is_cut_off_with_a_bookmark_and_misses_nothing(world: World) -> None:
    slow = SlowCaller(world.nursery)
    name = (await world.call("subscribe", slow, since=0))["subscription"]
    quick = (await world.call("subscribe", since=0))["subscription"]
    for _ in range(4):
        await _text_of(world, 400)
    slow.reads.set()
    await wait_all_tasks_blocked()
    [end] = _ends(slow)
    assert (end["subscription"], end["reason"]) == (name, "behind")
    first = _events(slow, name)
    assert end["bookmark"] == first[-1]["seq"]
    again = (await world.call("subscribe", slow, since=end["bookmark"]))["subscription"]
    await wait_all_tasks_blocked()
    assert _said([*first, *_events(slow, again)]) == _said(_events(world.caller, quick))
    assert [end["reason"] for end in _ends(world.caller)] == []


def _said(events: list[dict[str, Any]]) -> str:
    """The text of all sessions, whether it came in pieces or as snapshots."""
    pieces = {"text_chunk": "delta", "text_snapshot": "text"}
    return "".join(event["data"][pieces[event["type"]]] for event in events if event["type"] in pieces)


async def test_a_subscription_ends_with_its_connection(world: World) -> None:
    async with trio.open_nursery() as nursery:
        caller = RecordingCaller(nursery)
        name = (await world.call("subscribe", caller))["subscription"]
        await wait_all_tasks_blocked()
        assert world.gateway.bus.statistics().sleeping == 1
        nursery.cancel_scope.cancel()
    assert _ends(caller) == []
    with pytest.raises(UsageError, match="there is no subscription"):
        await world.call("unsubscribe", subscription=name)
    assert world.gateway.bus.statistics().sleeping == 0


@pytest.mark.parametrize(
    ("wanted", "sessions"),
    [
        *(({}, ["alice", "bob"]), ({"channels": ["control"]}, ["alice", "bob"])),
        *(({"channels": ["progress", "monitor"]}, []), ({"session": "alice"}, ["alice"])),
        *(({"kinds": ["done", "ui_request"]}, ["alice", "bob"]), ({"kinds": ["permission_required"]}, [])),
        ({"session": "bob", "channels": ["control"], "kinds": ["ui_request"]}, ["bob"]),
    ],
)
async def test_a_session_is_attended_while_a_subscription_hears_what_is_asked_there(
    world: World, wanted: dict[str, Any], sessions: list[str]
) -> None:

    def attended() -> list[str]:
        return [session for session in ("alice", "bob") if world.methods.attended(session)]

    assert attended() == []
    begun = await world.call("subscribe", **wanted)
    assert attended() == sessions
    await world.call("unsubscribe", subscription=begun["subscription"])
    assert attended() == []


async def test_a_stranger_cannot_end_a_subscription(world: World) -> None:
    name = (await world.call("subscribe"))["subscription"]
    stranger = RecordingCaller(world.nursery, principal="uid:2")
    with pytest.raises(UsageError, match="there is no subscription"):
        await world.call("unsubscribe", stranger, subscription=name)
    await world.ask("hello")
    await wait_all_tasks_blocked()
    assert _events(world.caller, name) != []


@pytest.mark.world(events={"ring": 20_000})
async def test_a_run_whose_follower_is_slow_is_told_to_the_end_from_the_store(world: World) -> None:
    slow = SlowCaller(world.nursery)
    outcomes: list[Any] = []

    async def prompt() -> None:
        outcomes.append(await world.call("prompt", slow, text="many 1000", session="alice", run="k1"))

    world.nursery.start_soon(prompt)
    await wait_all_tasks_blocked()
    await _text_of(world, 1000)
    slow.reads.set()
    await wait_all_tasks_blocked()
    events = [event for _, data in slow.pushed for event in data["events"]]
    assert _said(events) == "".join(f"{number}," for number in range(1000))
    assert {event["run_id"] for event in events} == {"k1"}
    assert (events[-1]["type"], outcomes[0]["text"]) == ("done", "told")
