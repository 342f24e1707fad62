"""What a peer of the control socket may try, on real sockets: floods, subscriptions."""

import collections
import contextlib
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from doors.control.server import ControlServer
from gateway.caller import Caller
from tests.doors.conftest import SMALL, Connect
from tests.doors.methods import FakeMethods, an_event
from tests.doors.peer import Peer

# --- floods ---------------------------------------------------------------------------------------------------------


class AtOnce:
    """Answers everything at once, after some seconds of work; ``served`` counts by method.

    ``waits``: not at once, so that another task becomes the reader of the connection.
    """

    def __init__(self, work: float = 0.0, *, waits: bool = False) -> None:
        self.served: collections.Counter[str] = collections.Counter()
        self._work = work
        self._waits = waits

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:  # noqa: ARG002  # as doors call it
        self.served[method] += 1
        done = time.perf_counter() + self._work
        while time.perf_counter() < done:
            pass
        if self._waits:
            await trio.lowlevel.checkpoint()
        return self.served["a"], self.served["b"]


async def test_peers_that_flood_take_turns_with_each_other(short_dir: Path, nursery: trio.Nursery) -> None:
    path: Path = await nursery.start(ControlServer(AtOnce(), short_dir / "s").serve)
    last: list[list[int]] = []

    async def talk(name: str, task_status: trio.TaskStatus[None]) -> None:
        peer = await Peer.connect(path)
        task_status.started()
        async with trio.open_nursery() as inner:
            inner.start_soon(peer.stream.send_all, b'{"id":1,"method":"%b"}\n' % name.encode() * 8_000)
            lines = [await peer.line() for _ in range(8_000)]
        last.append(lines[-1]["result"])
        peer.close()

    async with trio.open_nursery() as talkers:
        for name in "ab":
            await talkers.start(talk, name)
    assert min(last[0]) > 2000, f"when one was through, the other was far behind: {last[0]}"


@pytest.mark.parametrize("waits", [False, True])
async def test_a_block_of_requests_that_take_their_time_lets_others_in_between(
    short_dir: Path, nursery: trio.Nursery, *, waits: bool
) -> None:
    path: Path = await nursery.start(ControlServer(AtOnce(work=0.0005, waits=waits), short_dir / "s").serve)
    flooder, other = await Peer.connect(path), await Peer.connect(path)
    await flooder.stream.send_all(b'{"id":1,"method":"a"}\n' * 1000)
    seen = [(await other.call(1, "look"))["result"][0] for _ in range(10)]
    assert seen[-1] < 200, f"served before ten requests of another peer, of 1000 in one block: {seen}"
    flooder.close()
    other.close()


# --- subscriptions --------------------------------------------------------------------------------------------------


async def hear_events(peer: Peer, count: int) -> list[int]:
    """The seqs of the next ``count`` pushed events; answers are passed over."""
    seqs: list[int] = []
    while len(seqs) < count:
        seqs += [event["seq"] for event in (await peer.line()).get("data", {}).get("events", [])]
    return seqs


def end_of_subscription(bookmark: int, reason: str) -> dict[str, Any]:
    data = {"subscription": 1, "bookmark": bookmark, "reason": reason}
    return {"event": "subscription_ended", "data": data}


async def test_a_subscription_is_answered_before_its_first_event_and_told_its_end(connect: Connect) -> None:
    peer = await connect()
    await peer.ask("s", "subscribe", events=1)
    assert await peer.hear() == {"id": "s", "result": {"subscription": 1, "head": 0, "complete": True}}
    assert await peer.hear() == {"event": "events", "data": {"subscription": 1, "events": [an_event(1)]}}
    await peer.ask("u", "unsubscribe", subscription=1)
    lines = [await peer.hear(), await peer.hear()]
    assert end_of_subscription(1, "unsubscribed") in lines
    assert {"id": "u", "result": {}} in lines


async def test_a_subscriber_that_never_reads_is_cut_off_and_slows_no_other(
    connect: Connect, methods: FakeMethods
) -> None:
    mute, other = await connect(), await connect()
    await mute.ask(1, "subscribe", size=1000)
    await other.ask(1, "subscribe", size=1000)
    assert await hear_events(other, 3000) == list(range(1, 3001))
    with trio.fail_after(SMALL.write_stall + 20):
        while methods.ended != ["closing"]:
            await hear_events(other, 1)
    with contextlib.suppress(trio.BrokenResourceError):
        taken = 0
        while chunk := await mute.stream.receive_some(1 << 20):
            taken += len(chunk)
        assert taken < 2 * 1024 * 1024 + 4 * SMALL.out_buffer_bytes, "the kernel's buffers and ours"


async def test_a_closing_supervisor_lets_subscriptions_say_their_last_words_to_a_peer_that_is_behind(
    short_dir: Path, methods: FakeMethods
) -> None:
    lines: list[dict[str, Any]] = []

    async def read_at_last(peer: Peer) -> None:
        lines.extend(await peer.rest())

    async with trio.open_nursery() as readers, trio.open_nursery() as nursery:
        path = await nursery.start(ControlServer(methods, short_dir / "s").serve)
        peer = await Peer.connect(path)
        await peer.ask("s", "subscribe", size=1000)
        await wait_all_tasks_blocked()
        readers.start_soon(read_at_last, peer)
        nursery.cancel_scope.cancel()
    assert len(lines) > 200
    assert lines[-1] == end_of_subscription(lines[-2]["data"]["events"][0]["seq"], "closing")
    peer.close()


async def test_so_many_subscriptions_and_no_more(connect: Connect) -> None:
    peer = await connect()
    for number in range(SMALL.max_tasks):
        assert "result" in await peer.call(number, "subscribe", events=0)
    assert (await peer.call("x", "subscribe", events=0))["error"]["code"] == "saturated"
    await peer.call("u", "unsubscribe", subscription=1)
    with trio.fail_after(20):
        while "error" in await peer.call("x", "subscribe", events=0):
            pass  # the one that was ended has not gone yet


async def test_a_task_that_fails_ends_its_connection_with_a_word_and_no_other(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    peer, other = await connect(), await connect()
    await peer.ask(1, "break_task")
    assert await peer.hear() == {"id": 1, "result": None}
    assert (await peer.refusal())[:2] == (None, "internal")
    assert await peer.hear() is None
    assert await other.call(1, "echo") == {"id": 1, "result": {}}
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_a_defect_met_while_a_connection_ends_ends_no_other(
    connect: Connect, methods: FakeMethods, caplog: pytest.LogCaptureFixture
) -> None:
    peer, other = await connect(), await connect()
    await peer.ask(1, "fail_when_cancelled")
    await methods.hanging.wait()
    peer.close()
    with trio.fail_after(20):
        while not caplog.records:
            assert await other.call(1, "echo") == {"id": 1, "result": {}}
    assert [record.message for record in caplog.records] == ["a connection failed"]
    assert await other.call(2, "echo") == {"id": 2, "result": {}}
