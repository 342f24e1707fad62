"""The stream of events: each once and in order, resumable, and without harm to other readers."""

from typing import Any

import pytest
import trio

from doors.http import events
from tests.doors.http.conftest import Door, Open, settle
from tests.doors.methods import FakeMethods
from tests.gateway.world import World, open_world
from wire.sse import batch_message, event_messages


def publish(world: World, count: int, session: str = "alice", size: int = 1) -> None:
    for number in range(count):
        world.gateway.bus.publish(session, "test", {"number": number, "text": "x" * size})


async def test_events_come_each_under_its_seq_filtered_or_in_batches(open_door: Open, world: World) -> None:
    door = await open_door(world.methods)
    peer = await door.connect()
    head = await peer.open("/events?session=alice&channels=monitor&kinds=test")
    assert dict(head.headers)[b"content-type"] == b"text/event-stream; charset=utf-8"
    publish(world, 1, "bob")
    publish(world, 2)
    opened, *told = await peer.take(3)
    assert (opened["event"], opened["data"]["complete"]) == ("open", True)
    assert [message["data"]["data"]["number"] for message in told] == [0, 1]
    assert [int(message["id"]) for message in told] == [message["data"]["seq"] for message in told]
    batched = await door.connect()
    await batched.open("/events?since=0&kinds=test&batch=true")
    _, batch = await batched.take(2)
    assert [event["data"]["number"] for event in batch["data"]] == [0, 0, 1]
    assert int(batch["id"]) == batch["data"][-1]["seq"]


async def test_a_stream_goes_on_after_the_last_message_that_was_seen(open_door: Open, world: World) -> None:
    door = await open_door(world.methods)
    first = await door.connect()
    await first.open("/events?kinds=test")
    (opened,) = await first.take(1)
    publish(world, 2)
    seen, missed = await first.take(2)
    for last, following in ((opened, seen), (seen, missed)):
        again = await door.connect()
        await again.open("/events?since=0&kinds=test", last_event_id=last["id"])
        found = (await again.take(2))[1]
        assert found["id"] == following["id"], "the header comes before the address, which stays the same"


def test_line_ends_between_the_tokens_of_an_event_end_no_message() -> None:
    frame = b'{"subscription":"s","events":[{"seq":7,\r\n"data":{"text":"a\\nb\xe2\x80\xa8"}}]}'
    assert event_messages(frame).count(b"\n") == 3
    assert event_messages(frame).endswith(b'"data":{"text":"a\\nb\xe2\x80\xa8"}}\n\n')
    assert batch_message(frame).startswith(b"id: 7\ndata: [{")
    assert batch_message(frame).count(b"\n") == 3


BAD_QUERIES = [
    *(("since=soon", "seq of an event"), ("since=-1", "seq of an event"), ("since=" + "9" * 30, "seq of an event")),
    *(("channels=gossip", "gossip"), ("sesion=alice", "there are: session"), ("batch=maybe", "true or false")),
    *(("token=secret", "as a header"), ("access_token=secret", "as a header"), ("session=" + "x" * 600, "512")),
    *(("session=", "names one conversation"), ("session=alice&session=bob", "names one conversation")),
]


async def test_a_query_that_makes_no_sense_is_refused_with_what_would(open_door: Open, world: World) -> None:
    door = await open_door(world.methods)
    for query, hint in BAD_QUERIES:
        answer = await door.call("GET", f"/events?{query}")
        assert answer.status == 400, query
        assert hint in answer.error["message"]
        assert "secret" not in answer.error["message"]


async def test_an_extension_is_attended_while_somebody_streams(open_door: Open, world: World) -> None:
    peer = await (await open_door(world.methods)).connect()
    await peer.open("/events?session=alice")
    assert world.methods.attended("alice")
    await peer.stream.aclose()
    await settle(lambda: not world.methods.attended("alice"))


async def test_the_end_of_the_server_is_told_with_a_bookmark(open_door: Open, world: World) -> None:
    door = await open_door(world.methods)
    peer = await door.connect()
    await peer.open("/events?kinds=test")
    publish(world, 1)
    _, event = await peer.take(2)
    door.close()
    (end,) = await peer.rest()
    assert end == {"id": event["id"], "event": "end", "data": {"bookmark": int(event["id"]), "reason": "closing"}}
    with trio.fail_after(20):
        await door.ended.wait()


async def test_a_reader_that_is_too_slow_is_cut_off_and_the_others_hear_all(open_door: Open, tmp_path: Any) -> None:
    async with open_world(tmp_path / "world", events={"ring": 256 * 1024}) as world:
        door = await open_door(world.methods)
        slow, quick = await door.connect(), await door.connect()
        await slow.open("/events?kinds=test")
        await quick.open("/events?kinds=test")
        await quick.take(1)
        for _ in range(200):
            publish(world, 4, size=50_000)
            await quick.take(4)
        messages = await slow.rest()
        assert (messages[-1]["event"], messages[-1]["data"]["reason"]) == ("end", "behind")
        assert door.figures.streams_behind == 1
        numbers = [message["data"]["seq"] for message in messages[1:-1]]
        assert messages[-1]["data"]["bookmark"] == numbers[-1], "what came, came whole and can be gone on from"
        again = await door.connect()
        await again.open("/events?kinds=test", last_event_id=messages[-1]["id"])
        rest = await again.take(1 + 800 - len(numbers))
        seqs = [*numbers, *(message["data"]["seq"] for message in rest[1:])]
        assert seqs == sorted(set(seqs))


async def test_a_quiet_stream_sends_comments(door: Door, monkeypatch: pytest.MonkeyPatch, methods: FakeMethods) -> None:
    async def silent(_params: Any, caller: Any) -> Any:
        caller.start(trio.sleep_forever)
        return {"subscription": 1, "head": 0, "complete": True}

    monkeypatch.setattr(events, "KEEPALIVE_SECONDS", 0.01)
    monkeypatch.setattr(methods, "do_subscribe", silent)
    peer = await door.connect()
    await peer.open("/events")
    assert [message.get("comment") for message in await peer.take(3)] == [None, "quiet", "quiet"]


async def test_a_subscription_that_breaks_ends_its_stream_and_nothing_else(
    door: Door, monkeypatch: pytest.MonkeyPatch, methods: FakeMethods
) -> None:
    async def breaks(params: Any, caller: Any) -> Any:
        await methods.do_break_task(params, caller)
        return {"subscription": 1, "head": 0, "complete": True}

    monkeypatch.setattr(methods, "do_subscribe", breaks)
    peer = await door.connect()
    await peer.open("/events")
    assert await peer.is_closed()
    assert (await door.call("POST", "/api/echo", {})).status == 200
    assert door.figures.streams == 0
