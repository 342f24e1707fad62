"""What a peer of the control socket may try, on real sockets: floods, silence, another's socket, subscriptions."""

import collections
import contextlib
import itertools
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from doors.control.server import ControlServer
from doors.limits import InputBudget, InputShare
from errors import PoolSaturated
from gateway.caller import Caller
from tests.doors.conftest import SMALL, Connect
from tests.doors.methods import FakeMethods, an_event
from tests.doors.peer import Peer

A_MILLION = 1_000_000
NOBODY = 65_534
AHEAD = 10_000  # requests of a flood that may be served before one of another peer; not held back, all of them are


@contextlib.contextmanager
def talking(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        yield sock


# --- floods ---------------------------------------------------------------------------------------------------------


class AtOnce:
    """Answers everything at once, after so many seconds of work; ``served`` counts by method."""

    def __init__(self, work: float = 0.0) -> None:
        self.served: collections.Counter[str] = collections.Counter()
        self._work = work

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:  # noqa: ARG002  # as doors call it
        self.served[method] += 1
        done = time.perf_counter() + self._work
        while time.perf_counter() < done:
            pass
        return self.served["a"], self.served["b"]


def flood(path: Path, times: int) -> int:
    """Say a small request so often, as fast as the socket takes it; how many answers came."""
    with talking(path) as sock:
        writer = threading.Thread(target=say_in_blocks, args=(sock, b'{"id":1,"method":"a"}\n', times))
        writer.start()
        seen = 0
        while chunk := sock.recv(1 << 20):
            seen += chunk.count(b"\n")
        writer.join()
    return seen


def say_in_blocks(sock: socket.socket, line: bytes, times: int) -> None:
    block = line * 1000
    for _ in range(times // 1000):
        sock.sendall(block)
    sock.shutdown(socket.SHUT_WR)


async def test_a_million_small_requests_are_all_answered_while_others_are_served(
    short_dir: Path, nursery: trio.Nursery
) -> None:
    path: Path = await nursery.start(ControlServer(AtOnce(), short_dir / "s").serve)
    other = await Peer.connect(path)
    answers: list[int] = []
    seen = [0]

    async def be_flooded() -> None:
        answers.append(await trio.to_thread.run_sync(partial(flood, path, A_MILLION), abandon_on_cancel=True))

    with trio.fail_after(28):
        nursery.start_soon(be_flooded)
        while not answers:
            seen.append((await other.call(1, "look"))["result"][0])
    assert answers == [A_MILLION]
    assert max(after - before for before, after in itertools.pairwise(seen)) < AHEAD
    other.stream.socket.close()


async def test_peers_that_flood_take_turns_with_each_other(short_dir: Path, nursery: trio.Nursery) -> None:
    path: Path = await nursery.start(ControlServer(AtOnce(), short_dir / "s").serve)
    peers = {name: await Peer.connect(path) for name in "ab"}
    last: list[list[int]] = []

    async def talk(name: str) -> None:
        await peers[name].stream.send_all(b'{"id":1,"method":"%b"}\n' % name.encode() * 20_000)

    async def listen(name: str) -> None:
        answer: dict[str, Any] | None = {}
        for _ in range(20_000):
            answer = await peers[name].hear()
        assert answer is not None
        last.append(answer["result"])

    async with trio.open_nursery() as talkers:
        for name in peers:
            talkers.start_soon(talk, name)
            talkers.start_soon(listen, name)
    assert min(last[0]) > 5000, f"when one was through, the other was far behind: {last[0]}"
    for peer in peers.values():
        peer.stream.socket.close()


async def test_a_block_of_requests_that_take_their_time_lets_others_in_between(
    short_dir: Path, nursery: trio.Nursery
) -> None:
    path: Path = await nursery.start(ControlServer(AtOnce(work=0.0005), short_dir / "s").serve)
    flooder, other = await Peer.connect(path), await Peer.connect(path)
    await flooder.stream.send_all(b'{"id":1,"method":"a"}\n' * 1000)
    seen = [(await other.call(1, "look"))["result"][0] for _ in range(10)]
    assert seen[-1] < 200, f"of 1000 requests in one block so many were served before ten of another: {seen}"
    flooder.stream.socket.close()
    other.stream.socket.close()


# --- half of something ----------------------------------------------------------------------------------------------


async def test_half_a_request_and_then_silence_keeps_nobody_from_being_served(connect: Connect) -> None:
    slow, other = await connect(), await connect()
    await slow.stream.send_all(b'{"id": 1, "met')
    assert await other.call(2, "echo") == {"id": 2, "result": {}}
    await slow.stream.send_all(b'hod": "echo"}\n')
    assert await slow.hear() == {"id": 1, "result": None}


async def test_half_a_request_at_the_end_is_dropped_and_what_came_before_it_is_answered(
    connect: Connect, methods: FakeMethods
) -> None:
    peer = await connect()
    await peer.stream.send_all(b'{"id": 1, "method": "echo"}\n{"id": 2, "method": "ec')
    await peer.stream.send_eof()
    assert await peer.hear() == {"id": 1, "result": None}
    assert await peer.hear() is None
    assert methods.calls == ["echo"]


async def test_a_good_request_before_one_that_is_too_large_is_answered(connect: Connect) -> None:
    peer = await connect()
    with contextlib.suppress(trio.BrokenResourceError):  # cut off before it has said all
        await peer.stream.send_all(b'{"id": 1, "method": "echo"}\n' + b"x" * 300_000)
    assert await peer.hear() == {"id": 1, "result": None}
    refusal = await peer.hear()
    assert refusal is not None
    assert (refusal["id"], refusal["error"]["code"]) == (None, "usage")
    assert await peer.hear() is None


async def test_a_large_request_counts_while_it_runs_and_no_longer(connect: Connect, methods: FakeMethods) -> None:
    large = b'{"id": 1, "method": "%b", "params": "' + b"x" * 190_000 + b'"}'
    first, second = await connect(), await connect()
    await first.say(large % b"wait")
    await methods.hanging.wait()
    with contextlib.suppress(trio.BrokenResourceError):  # cut off before it has said all
        await second.say(large % b"wait")
    refusal = await second.hear()
    assert refusal is not None
    assert refusal["error"]["code"] == "saturated"
    methods.release.set()
    assert await first.hear() == {"id": 1, "result": "released"}
    methods.release, methods.hanging = trio.Event(), trio.Event()
    third = await connect()
    await third.say(large % b"wait")
    await methods.hanging.wait()
    await trio.testing.wait_all_tasks_blocked()
    methods.release.set()
    assert await third.hear() == {"id": 1, "result": "released"}


def test_who_asks_for_too_much_of_the_common_room_holds_none_of_it() -> None:
    budget = InputBudget(100_000)
    first, second = InputShare(budget), InputShare(budget)
    first.charge(64 * 1024)
    first.charge(64 * 1024 + 60_000)
    with pytest.raises(PoolSaturated):
        second.charge(64 * 1024 + 60_000)
    third = InputShare(budget)
    third.charge(64 * 1024 + 40_000)
    first.release(64 * 1024 + 10_000)
    second.charge(64 * 1024 + 50_000)
    with pytest.raises(PoolSaturated):
        third.charge(64 * 1024 + 40_001)


# --- who comes in ---------------------------------------------------------------------------------------------------

STRANGER = f"""
import contextlib, os, socket, sys
os.setgroups([])
os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
with socket.socket(socket.AF_UNIX) as sock:
    try:
        sock.connect(sys.argv[1])
        with contextlib.suppress(BrokenPipeError):  # turned away before it has asked
            sock.sendall(b'{{"id":1,"method":"echo"}}\\n')
        while chunk := sock.recv(65536):
            sys.stdout.write(chunk.decode())
    except OSError as exc:
        sys.stdout.write(type(exc).__name__)
"""


async def hear_a_stranger(path: Path) -> str:
    """What a process of another user is told at the socket."""
    done = await trio.run_process([sys.executable, "-I", "-c", STRANGER, str(path)], capture_stdout=True)
    return bytes(done.stdout).decode()


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
async def test_another_user_can_neither_open_the_socket_nor_talk_where_its_mode_would_let_it(
    path: Path, methods: FakeMethods
) -> None:
    with trio.fail_after(20):
        assert await hear_a_stranger(path) == "PermissionError"
        await trio.Path(path.parent).chmod(0o755)
        await trio.Path(path).chmod(0o666)
        assert "this supervisor serves another user" in await hear_a_stranger(path)
    assert methods.calls == []


@pytest.mark.process
async def test_a_request_is_known_by_the_user_who_makes_it(path: Path) -> None:
    peer = await Peer.connect(path)
    answer = await peer.call(1, "whoami")
    assert answer["result"]["principal"] == f"uid:{os.geteuid()}"
    peer.stream.socket.close()


# --- subscriptions --------------------------------------------------------------------------------------------------


async def hear_events(peer: Peer, count: int) -> list[int]:
    """The seqs of so many pushed events; answers are passed over."""
    seqs: list[int] = []
    while len(seqs) < count:
        line = await peer.hear()
        assert line is not None
        seqs += [event["seq"] for event in line.get("data", {}).get("events", [])]
    return seqs


async def test_a_subscription_is_answered_before_its_first_event_and_told_its_end(connect: Connect) -> None:
    peer = await connect()
    await peer.ask("s", "subscribe", events=1)
    assert await peer.hear() == {"id": "s", "result": {"subscription": 1, "head": 0, "complete": True}}
    assert await peer.hear() == {"event": "events", "data": {"subscription": 1, "events": [an_event(1)]}}
    await peer.ask("u", "unsubscribe", subscription=1)
    lines = [await peer.hear(), await peer.hear()]
    end = {"subscription": 1, "bookmark": 1, "reason": "unsubscribed"}
    assert {"event": "subscription_ended", "data": end} in lines
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
    kernel_buffers = 2 * 1024 * 1024
    with contextlib.suppress(trio.BrokenResourceError):
        taken = 0
        while chunk := await mute.stream.receive_some(1 << 20):
            taken += len(chunk)
        assert taken < kernel_buffers + 4 * SMALL.out_buffer_bytes


async def test_what_a_request_has_started_ends_when_its_peer_leaves(connect: Connect, methods: FakeMethods) -> None:
    peer, other = await connect(), await connect()
    for number in range(3):
        await peer.call(number, "subscribe", events=0)
    peer.stream.socket.close()
    with trio.fail_after(20):
        while len(methods.ended) < 3:
            await other.call(1, "echo")
    assert methods.ended == ["closing"] * 3


async def test_a_closing_supervisor_lets_subscriptions_say_their_last_words(
    short_dir: Path, methods: FakeMethods
) -> None:
    async with trio.open_nursery() as nursery:
        path = await nursery.start(ControlServer(methods, short_dir / "s").serve)
        peer = await Peer.connect(path)
        await peer.ask("s", "subscribe", events=2)
        assert await hear_events(peer, 2) == [1, 2]
        nursery.cancel_scope.cancel()
    end = {"subscription": 1, "bookmark": 2, "reason": "closing"}
    assert await peer.hear() == {"event": "subscription_ended", "data": end}
    assert await peer.hear() is None
    peer.stream.socket.close()


async def test_last_words_reach_a_peer_that_was_behind_when_the_supervisor_closed(
    short_dir: Path, methods: FakeMethods
) -> None:
    lines: list[dict[str, Any]] = []

    async def read_at_last(peer: Peer) -> None:
        while (line := await peer.hear()) is not None:
            lines.append(line)

    async with trio.open_nursery() as readers, trio.open_nursery() as nursery:
        path = await nursery.start(ControlServer(methods, short_dir / "s").serve)
        peer = await Peer.connect(path)
        await peer.ask("s", "subscribe", size=1000)
        await trio.testing.wait_all_tasks_blocked()
        readers.start_soon(read_at_last, peer)
        nursery.cancel_scope.cancel()
    assert len(lines) > 200
    assert lines[-1]["data"]["reason"] == "closing"
    assert lines[-1]["data"]["bookmark"] == lines[-2]["data"]["events"][0]["seq"]
    peer.stream.socket.close()


async def test_so_many_subscriptions_and_no_more(connect: Connect) -> None:
    peer = await connect()
    for number in range(SMALL.max_tasks):
        assert "result" in await peer.call(number, "subscribe", events=0)
    refused = await peer.call("x", "subscribe", events=0)
    assert refused["error"]["code"] == "saturated"
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
    word = await peer.hear()
    assert word is not None
    assert (word["id"], word["error"]["code"]) == (None, "internal")
    assert await peer.hear() is None
    assert await other.call(1, "echo") == {"id": 1, "result": {}}
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_a_defect_met_while_a_connection_ends_ends_no_other(
    connect: Connect, methods: FakeMethods, caplog: pytest.LogCaptureFixture
) -> None:
    peer, other = await connect(), await connect()
    await peer.ask(1, "fail_when_cancelled")
    await methods.hanging.wait()
    peer.stream.socket.close()
    with trio.fail_after(20):
        while not caplog.records:
            assert await other.call(1, "echo") == {"id": 1, "result": {}}
    assert [record.message for record in caplog.records] == ["a connection failed"]
    assert await other.call(2, "echo") == {"id": 2, "result": {}}


async def test_a_peer_that_said_all_loses_its_subscriptions_but_no_answer(
    connect: Connect, methods: FakeMethods
) -> None:
    peer = await connect()
    await peer.call("s", "subscribe", events=0)
    await peer.ask("w", "wait")
    await methods.hanging.wait()
    await peer.stream.send_eof()
    methods.release.set()
    assert await peer.hear() == {"id": "w", "result": "released"}
    end = {"subscription": 1, "bookmark": 0, "reason": "closing"}
    assert await peer.hear() == {"event": "subscription_ended", "data": end}
    assert await peer.hear() is None
