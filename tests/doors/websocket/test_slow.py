"""Peers that do not read, send too much or too fast: they harm themselves only."""

import contextlib
from typing import Any

import pytest
import trio

from tests.doors.http.conftest import Connect, Door, Open
from tests.doors.websocket.conftest import Join, follows, settle
from tests.doors.websocket.peer import SocketPeer
from tests.gateway.world import World
from wire.units import ByteCount, Seconds

CALL = {"id": "t1", "name": "bash", "input_preview": "make", "state": "COMPLETED"}


async def pour(world: World, count: int) -> None:
    """Have events published that must not be lost, each of some kilobytes."""
    worker = world.launcher.running("hang")
    for _ in range(count):
        worker.tell("tool", phase="end", call=CALL, tail="x" * 2000)
        await trio.lowlevel.checkpoint()


async def hang(peer: SocketPeer) -> None:
    """Begin a turn that goes on until the test ends it."""
    await peer.request("chat.send", sessionKey="alice", message="hang", idempotencyKey="k1")
    await peer.event("agent", stream="assistant")


async def test_a_slow_reader_is_cut_off_and_the_others_hear_everything(
    open_ws: Open, join: Join, world: World, limits: dict[str, Any]
) -> None:
    limits["buffered_bytes"] = ByteCount(1_000_000)
    door = await open_ws(world.methods, write_stall=Seconds(30))
    slow, quick = await join(door), await join(door)
    await hang(quick)
    await slow.event("agent", stream="assistant")
    heard = 0
    with trio.fail_after(20):
        while not door.figures.sockets_slow:
            await pour(world, 100)
            for _ in range(100):
                await quick.event("agent", stream="tool")
                heard += 1
    world.launcher.running("hang").finish()
    await quick.event("chat", state="final")
    assert (heard >= 500, quick.seqs) == (True, sorted(quick.seqs))
    frames = await slow.rest()
    assert slow.closed == (1008, "slow consumer: what must not be lost has no room any more")
    assert len(frames) < heard, "what did not fit was not kept"


async def test_a_slow_reader_loses_text_and_can_tell_from_the_gap(open_ws: Open, join: Join, world: World) -> None:
    door = await open_ws(world.methods, write_stall=Seconds(30))
    slow = await join(door)
    await hang(slow)
    worker, pieces = world.launcher.running("hang"), 0
    with trio.fail_after(20):
        while not door.figures.events_dropped:
            worker.tell("assistant_message", partial="x" * 5000)
            pieces += 1
            await trio.sleep(0.001)
    worker.finish("done")
    final = await slow.event("chat", state="final")
    assert (final["runId"], slow.closed) == ("k1", None), "the end of the run is not lost"
    assert slow.seqs == sorted(set(slow.seqs))
    assert len(slow.seqs) < slow.seqs[-1], "the numbers tell of what was lost"
    assert len([frame for frame in slow.kept if frame["payload"].get("stream") == "assistant"]) < pieces


async def test_a_burst_does_not_cut_off_who_reads(
    open_ws: Open, join: Join, world: World, limits: dict[str, Any]
) -> None:
    limits["buffered_bytes"] = ByteCount(1_000_000)
    door = await open_ws(world.methods)
    peer = await join(door)
    await hang(peer)
    for _ in range(1500):
        world.launcher.running("hang").tell("tool", phase="end", call=CALL, tail="x" * 2000)
    for _ in range(1500):
        await peer.event("agent", stream="tool")
    assert (door.figures.sockets_slow, door.figures.events_dropped) == (0, 0)


async def test_a_peer_that_reads_nothing_at_all_is_cut_off(
    open_ws: Open, join: Join, world: World, limits: dict[str, Any]
) -> None:
    limits["buffered_bytes"] = ByteCount(100_000_000)
    door = await open_ws(world.methods, write_stall=Seconds(0.2))
    await hang(await join(door))
    with trio.fail_after(20):
        while door.figures.sockets:
            await pour(world, 200)
            await trio.sleep(0.01)
    await settle(lambda: door.figures.stalled == 1)


async def test_answers_that_nobody_reads_wait_for_room_and_too_many_requests_are_refused(
    open_ws: Open, join: Join, world: World, limits: dict[str, Any]
) -> None:
    limits["max_requests"] = 50
    peer = await join(await open_ws(world.methods, write_stall=Seconds(30)))
    await world.ask("say " + "y" * 50_000)
    ids = [await peer.ask("chat.history", sessionKey="alice") for _ in range(50)]
    for request_id in ids:
        assert (await peer.answer(request_id))["ok"]
    for number in range(50):
        await peer.ask("agent", message="hang", sessionKey=f"s{number}")
    error = (await peer.request("health"))["error"]
    assert (error["code"], error["retryable"], error["details"]["code"]) == ("UNAVAILABLE", True, "saturated")


async def test_more_requests_a_second_than_a_token_may_make_are_refused(
    open_ws: Open, join: Join, world: World
) -> None:
    peer = await join(await open_ws(world.methods, rate=5))
    served, began = 0, trio.current_time()
    while (answer := await peer.request("health"))["ok"]:
        served += 1
        assert served <= 2 * 5 + 5 * (trio.current_time() - began)
    assert served >= 5
    assert (answer["error"]["code"], answer["error"]["retryable"]) == ("UNAVAILABLE", True)
    assert 0 < answer["error"]["retryAfterMs"] <= 1000


async def test_all_large_requests_together_are_bounded_and_those_that_run_stay_counted(
    open_ws: Open, join: Join, world: World
) -> None:
    door = await open_ws(world.methods, body_bytes=ByteCount(40_000))
    peer, other = await join(door), await join(door)
    await peer.ask("agent", message="hang " + "x" * 90_000, sessionKey="s1")
    await peer.event("agent", stream="assistant")
    for refused in (peer, peer, other):
        error = (await refused.request("agent", message="say " + "y" * 90_000, sessionKey="s2"))["error"]
        assert error["details"]["code"] == "saturated"
    assert (await peer.request("agent", message="say small", sessionKey="s2"))["ok"]
    world.launcher.running("hang " + "x" * 90_000).finish()
    await peer.event("chat", state="final", sessionKey="s1")
    assert (await other.request("agent", message="say " + "y" * 90_000, sessionKey="s2"))["ok"]


async def test_many_who_come_and_go_leave_nothing_behind(door: Door, connect: Connect) -> None:
    for number in range(30):
        peer = SocketPeer(await connect(door, None))
        await peer.open()
        if number % 3:
            await peer.connect(**({"auth": None} if number % 3 == 1 else {}))
        with contextlib.suppress(trio.BrokenResourceError):
            await peer.leave()
    await settle(lambda: (door.figures.sockets, door.figures.connections) == (0, 0))


async def test_a_sign_of_life_comes_again_and_again(
    open_ws: Open, join: Join, world: World, limits: dict[str, Any]
) -> None:
    limits["tick"] = Seconds(0.02)
    peer = await join(await open_ws(world.methods))
    first, second = await peer.event("tick"), await peer.event("tick")
    assert first["ts"] < second["ts"]


async def test_trouble_with_the_events_is_a_gap_and_not_the_end(
    join: Join, door: Door, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("doors.websocket.hub._RETRY_SECONDS", 0.01)
    peer = await join()
    await peer.request("chat.send", sessionKey="alice", message="hang")
    last = (await peer.find(lambda frame: frame.get("payload", {}).get("stream") == "assistant"))["seq"]

    def broken(*_: Any) -> Any:
        raise KeyError("a defect")

    with monkeypatch.context() as patched:
        patched.setattr("doors.websocket.translator.EventTranslator.translate", broken)
        world.launcher.running("hang").tell("assistant_message", partial="lost")
        await settle(lambda: "feed failed" in caplog.text)
    await settle(lambda: follows(world))
    world.launcher.running("hang").tell("assistant_message", partial="then")
    found = await peer.find(lambda frame: frame.get("payload", {}).get("data", {}).get("delta") == "then")
    seqs = {last, found["seq"], *peer.seqs}
    assert len(seqs) < max(seqs), "the numbers tell that something is missing"
    assert ("a defect" in caplog.text, door.figures.sockets) == (True, 1)
