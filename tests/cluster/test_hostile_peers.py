"""Peers and nodes that do what they like: what they may say is bounded, and concerns themselves alone."""

import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest
import trio

from cluster import home, transport
from cluster.frames import CHUNK_BYTES, FROM_NODE, MAX_HELLO_BYTES, FrameKind, LinkViolation, encode_frame
from cluster.link import MAX_UNREAD_REPLIES, WINDOW_BYTES, CreditWindow, Link
from cluster.messages import (
    SHARED_PROOF,
    Beat,
    Bye,
    Credit,
    Exit,
    Facts,
    FilePart,
    Has,
    Piece,
    Started,
    Usage,
    Welcome,
    decode_message,
)
from cluster.remote_node import RemoteNode
from cluster.transport import RemoteProcess
from errors import WorkerStartFailed
from rpc.host import WorkerPlan
from rpc.settings import RpcSettings
from rpc.stderr_log import LineLog
from tests.cluster.peers import DeskWorld, Peer, desk_world, hello
from wire.units import Seconds

PLAN = WorkerPlan(worker_id="w1", agent="main", argv=("agent",), cwd="/")
BIG = bytes(CHUNK_BYTES)


# --- strangers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_talking", [False, True], ids=["silent", "byte by byte"])
async def test_a_stranger_gets_its_time_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_talking: bool
) -> None:
    monkeypatch.setattr(home, "_HELLO_TIMEOUT", 0.2)
    async with desk_world(tmp_path) as world, trio.open_nursery() as nursery:
        peer = world.connect()

        async def trickle() -> None:
            with suppress(trio.BrokenResourceError):
                while True:
                    await peer.send_bytes(b"\0")
                    await trio.sleep(0.01)

        if is_talking:
            await peer.send_bytes(struct.pack("!IBI", MAX_HELLO_BYTES, FrameKind.HELLO, 0))
            nursery.start_soon(trickle)
        await peer.is_closed()
        nursery.cancel_scope.cancel()
        assert ["within 0.2 s" in reason for reason in world.reasons("node_refused")] == [True]


async def test_only_some_strangers_are_heard_at_a_time(tmp_path: Path) -> None:
    async with desk_world(tmp_path) as world:
        waiting = [world.connect() for _ in range(home._MAX_STRANGERS)]
        while world.desk._strangers < home._MAX_STRANGERS:
            await trio.lowlevel.checkpoint()
        await world.connect().is_closed()
        assert world.reasons("node_refused") == ["too many peers at once that have not said who they are"]
        assert list(world.desk.absent()) == [], "who has no name is no node"
        await world.connect("a").be_welcome()
        assert world.desk.linked("a") is not None, "they keep none out that is known by the way it came"
        waiting[0].close()
        while world.desk._strangers == home._MAX_STRANGERS:
            await trio.lowlevel.checkpoint()
        await world.connect().be_welcome(name="b", secret=world.desk.invite("b"), instance="i2")
        assert world.desk.linked("b") is not None


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: pool\r\n\r\n",
        struct.pack("!IBI", MAX_HELLO_BYTES + 1, FrameKind.HELLO, 0),
        struct.pack("!IBI", 0, FrameKind.PING, 0),
        struct.pack("!IBI", 8, FrameKind.HELLO, 0) + b"\xff" * 8,
    ],
)
async def test_a_stranger_that_says_something_else_is_sent_away_at_once(tmp_path: Path, said: bytes) -> None:
    async with desk_world(tmp_path) as world:
        peer = world.connect()
        await peer.send_bytes(said)
        await peer.is_closed()
        assert len(world.reasons("node_refused")) == 1


@pytest.mark.parametrize("more", [{"secret": ""}, {"secret": "guessed"}, {"proof": "guessed"}, {"name": "another"}])
async def test_a_stranger_without_the_right_secret_is_not_let_in(tmp_path: Path, more: dict[str, str]) -> None:
    async with desk_world(tmp_path) as world:
        secret = world.desk.invite("a")
        peer = world.connect()
        await peer.say(FrameKind.HELLO, hello(**{"secret": secret if "name" in more else "", **more}))
        assert await peer.heard(FrameKind.WELCOME, FrameKind.BYE) == await _no_welcome(world)
        await peer.is_closed()


async def _no_welcome(world: DeskWorld) -> object:
    await trio.lowlevel.checkpoint()
    assert world.desk.linked("a") is None
    (reason,) = world.reasons("node_refused")
    return (FrameKind.BYE, 0, msgspec.msgpack.encode(Bye(reason)))


async def test_a_secret_that_was_used_lets_no_one_in(tmp_path: Path) -> None:
    async with desk_world(tmp_path) as world:
        secret = world.desk.invite("a")
        await (first := world.connect()).be_welcome(secret=secret)
        await first.say(FrameKind.BYE, Bye("ended", swept=True))
        await first.is_closed()
        again = world.connect()
        await again.say(FrameKind.HELLO, hello(secret=secret, instance="i2"))
        frame = await again.heard(FrameKind.WELCOME, FrameKind.BYE)
        assert frame is not None
        assert frame.kind is FrameKind.BYE


@pytest.mark.parametrize("sees", [True, False])
async def test_a_node_that_is_to_share_a_file_system_shows_that_it_sees_it(tmp_path: Path, *, sees: bool) -> None:
    async with desk_world(tmp_path, shared=True) as world:
        proof = (tmp_path / SHARED_PROOF).read_text() if sees else "guessed"
        peer = world.connect("a")
        await peer.say(FrameKind.HELLO, hello())
        welcome = await peer.heard(FrameKind.WELCOME)
        assert welcome is not None
        assert decode_message(welcome.payload, Welcome).shared
        await peer.say(FrameKind.PING, Beat(1, proof))
        pong = await peer.heard(FrameKind.PONG)
        assert pong is not None
        assert decode_message(pong.payload, Beat) == Beat(1)
        if sees:
            node = await world.desk.wait_linked("a")
            process = node.start(PLAN, RpcSettings(), LineLog(None, 1 << 20))
            await process.keep(str(tmp_path / "sessions" / "t.jsonl"))
            assert await process.prepare_resume(str(tmp_path / "sessions" / "t.jsonl"))
            await peer.say(FrameKind.PING, Beat(2))
            frame = await peer.heard(FrameKind.PONG, FrameKind.FOLLOW, FrameKind.HAVE)
            assert frame is not None
            assert frame.kind is FrameKind.PONG, "nothing is asked about the transcript"
        else:
            assert await peer.heard(FrameKind.BYE)
            await peer.is_closed()
            (reason,) = world.reasons("node_refused")
            assert "does not see the supervisor's" in reason


# --- nodes ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def worker_on_peer(
    world: DeskWorld, settings: RpcSettings | None = None
) -> AsyncGenerator[tuple[Peer, RemoteNode, RemoteProcess], None]:
    """A node that was let in, and a worker that it is asked to start: channel 1."""
    peer = world.connect("a")
    await peer.be_welcome()
    node = world.desk.linked("a")
    assert node is not None
    process = node.start(PLAN, settings or RpcSettings(), LineLog(None, 1 << 20))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.run)
        assert await peer.heard(FrameKind.START)
        await peer.say(FrameKind.STARTED, Started(77), 1)
        yield peer, node, process
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("argument", ["x" * (8 << 20), "\ud800"], ids=["long", "no text"])
async def test_a_worker_that_its_node_would_not_take_fails_alone(tmp_path: Path, argument: str) -> None:
    async with desk_world(tmp_path) as world, worker_on_peer(world) as (peer, node, _):
        plan = msgspec.structs.replace(PLAN, argv=("agent", argument))
        with pytest.raises(WorkerStartFailed, match="cannot be started on node a"):
            node.start(plan, RpcSettings(), LineLog(None, 1 << 20))
        node.start(PLAN, RpcSettings(), LineLog(None, 1 << 20))
        frame = await peer.heard(FrameKind.START)
        assert frame is not None
        assert frame.channel == 3, "the one between was not sent"


@pytest.mark.parametrize(
    ("kind", "said", "channel", "why"),
    [
        (FrameKind.HELLO, hello(instance="i2"), 0, "not allowed"),
        (FrameKind.START, b"", 1, "not allowed"),
        (FrameKind.IN, b"x", 1, "not allowed"),
        (FrameKind.PONG, Beat(1), 0, "not allowed"),
        (FrameKind.OUT, b"x", 0, "does not concern a node"),
        (FrameKind.EXIT, Exit(0), 0, "does not concern a node"),
        (FrameKind.OUT, b"x", 2, "never started"),
        (FrameKind.EXIT, Exit(0), 2**32 - 1, "never started"),
        (FrameKind.PING, b"\xff", 0, "cannot be read"),
        (FrameKind.STARTED, Started(78), 1, "start twice"),
        (FrameKind.PING, Beat(1), 1, ""),
        (FrameKind.FACTS, Facts(()), 1, "does not belong to a worker"),
        (FrameKind.FACTS, Facts((Usage(1, 1, 1.0, False),) * 2001), 0, "cannot be read"),  # noqa: FBT003 - a field
        (FrameKind.OUT, BIG + b"x", 1, "over its limit"),
        (FrameKind.STARTED, bytes(5000), 1, "over its limit"),
        (FrameKind.CREDIT, Credit(stream=1), 1, "more than was sent"),
        (FrameKind.CREDIT, Credit(log=2**63), 1, "more than was sent"),
        (FrameKind.FILE, FilePart(1, b"x"), 1, "not asked for"),
        (FrameKind.CREDIT, b"\x81\xa6stream\xff", 1, "cannot be read"),
    ],
)
async def test_what_a_node_may_not_say_ends_its_link(
    tmp_path: Path, kind: FrameKind, said: msgspec.Struct | bytes, channel: int, why: str
) -> None:
    async with desk_world(tmp_path) as world, worker_on_peer(world) as (peer, _, process):
        await peer.say(kind, said, channel)
        if not why:
            assert await peer.heard(FrameKind.PONG), "a ping is a ping"
            return
        assert "its node a was lost" in (await process.wait_exit()).reason
        await peer.is_closed()
        (reason,) = world.reasons("node_lost")
        assert why in reason


@pytest.mark.parametrize("says", [True, False])
async def test_a_node_on_which_a_worker_does_not_end_is_lost_and_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, says: bool
) -> None:
    monkeypatch.setattr(transport, "_STOP_PATIENCE", 0.0)
    settings = RpcSettings(eof_grace=Seconds(0.1), term_grace=Seconds(0.1))
    async with (
        desk_world(tmp_path, lease=0.2, margin=0.1) as world,
        worker_on_peer(world, settings) as (peer, _, process),
    ):
        if says:
            await peer.say(FrameKind.EXIT, Exit(0), 1)
        await process.stop()
        await peer.is_closed()
        assert world.reasons("node_lost") == ["worker w1 does not end there"]
        assert [event for event, _ in world.told][-1] == "node_fenced"


async def test_facts_of_other_channels_change_nothing(tmp_path: Path) -> None:
    async with desk_world(tmp_path) as world, worker_on_peer(world) as (peer, _, process):
        await peer.say(FrameKind.FACTS, Facts((Usage(99, 5, 1.0, True), Usage(1, 7, 1.0, False))))  # noqa: FBT003
        await peer.say(FrameKind.PING, Beat(2))
        assert await peer.heard(FrameKind.PONG)
        assert process.facts().rss == 7


@pytest.mark.parametrize("kind", [FrameKind.OUT, FrameKind.LOG])
async def test_more_than_there_is_credit_for_ends_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: FrameKind
) -> None:
    async def hang(_self: RemoteProcess, _pieces: list[Piece]) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(RemoteProcess, "_write", hang)  # a disk that does not answer
    async with desk_world(tmp_path) as world, worker_on_peer(world) as (peer, _, _):
        said = BIG if kind is FrameKind.OUT else Piece(0, BIG)
        with suppress(trio.BrokenResourceError):
            for _ in range(10 * WINDOW_BYTES // CHUNK_BYTES):
                await peer.say(kind, said, 1)
        await peer.is_closed()
        assert "more than it has credit for" in "".join(world.reasons("node_lost"))


async def test_a_worker_whose_transcript_has_a_hole_is_ended_and_its_node_stays(tmp_path: Path) -> None:
    (tmp_path / "sessions" / "main").mkdir(parents=True)
    async with desk_world(tmp_path) as world, worker_on_peer(world) as (peer, node, process):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(process.keep, str(tmp_path / "sessions" / "main" / "t.jsonl"))
            assert await peer.heard(FrameKind.FOLLOW)
            await peer.say(FrameKind.HAS, Has(number=1), 1)
        await peer.say(FrameKind.LOG, Piece(2**62, b"x", number=1), 1)
        await peer.say(FrameKind.OUT, b"never shown", 1)
        assert "is missing" in (await process.wait_exit()).reason
        assert process.receive_nowait() == b""
        assert await peer.heard(FrameKind.STOP)
        assert node.is_linked


FLOODS: dict[str, tuple[FrameKind, msgspec.Struct | bytes, int]] = {
    "pings": (FrameKind.PING, Beat(1), 0),
    "stderr": (FrameKind.ERR, bytes(CHUNK_BYTES // 4), 1),
    "facts": (FrameKind.FACTS, Facts((Usage(1, 1, 1.0, False),) * 1000), 0),  # noqa: FBT003 - a field
    "exits": (FrameKind.EXIT, Exit(0), 1),
    "empty pieces": (FrameKind.LOG, Piece(0, b""), 1),
    "answers": (FrameKind.HAS, Has(1), 1),
}


@pytest.mark.parametrize("flood", list(FLOODS))
async def test_a_node_that_only_talks_makes_nothing_grow(tmp_path: Path, flood: str) -> None:
    kind, said, channel = FLOODS[flood]
    async with desk_world(tmp_path) as world, worker_on_peer(world) as (peer, node, process):
        for _ in range(300 if flood == "facts" else 5_000):
            try:
                await peer.say(kind, said, channel)
            except trio.BrokenResourceError:
                break  # its link was ended
        assert sum(map(len, process._output)) + process._held_bytes <= WINDOW_BYTES
        assert len(process._inbox) <= 4096
        assert world.wires[0].queued_bytes <= 100 * MAX_UNREAD_REPLIES
        assert len(node._processes) == 1


class WireThatIsNeverEmpty:
    """Always has a frame, and takes nothing; ``LinkWire`` as far as ``Link`` uses it."""

    sent_bytes = queued_bytes = 0

    def __init__(self, frame: bytes) -> None:
        self._frame = frame

    async def receive(self) -> bytes:
        return self._frame

    def send(self, data: bytes) -> None:
        self.sent_bytes += len(data)
        self.queued_bytes += len(data)

    async def run_writer(self) -> None:
        await trio.sleep_forever()


async def test_a_peer_that_does_not_read_the_answers_is_given_up_and_others_have_their_turn_meanwhile() -> None:
    link = Link(WireThatIsNeverEmpty(encode_frame(FrameKind.PING, 0)))  # type: ignore[arg-type]
    turns, frames = 0, 0

    def answer(_: object) -> None:
        nonlocal frames
        frames += 1
        link.reply(FrameKind.PONG, Beat(1))

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        with pytest.raises(LinkViolation, match="does not read the answers"):
            await link.run(FROM_NODE, 60.0, answer)
        nursery.cancel_scope.cancel()
    assert frames <= MAX_UNREAD_REPLIES + 2
    assert turns > 100


def test_a_window_never_opens_wider_than_it_was() -> None:
    window = CreditWindow(10)
    window.take(4)
    window.give(4)
    with pytest.raises(LinkViolation):
        window.give(1)


async def test_a_node_that_falls_silent_is_lost(tmp_path: Path) -> None:
    async with desk_world(tmp_path, silence=0.2) as world, worker_on_peer(world) as (peer, _, process):
        assert "silent for 0.2 s" in (await process.wait_exit()).reason
        await peer.is_closed()
