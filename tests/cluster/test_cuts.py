"""A link that is cut, wherever that is: its worker ends, the session is free after the fence, nothing is half shown."""

from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import trio

from cluster.frames import FrameKind, encode_frame
from cluster.messages import Beat, Exit, FilePart, Has, Piece, Started
from cluster.transport import RemoteProcess
from errors import PoolError
from rpc.host import WorkerPlan
from rpc.settings import RpcSettings
from rpc.stderr_log import LineLog
from rpc.transport import ExitStatus
from tests.cluster.peers import Peer, desk_world, hello

PLAN = WorkerPlan(worker_id="w1", agent="main", argv=("agent",), cwd="/")
ENTRY, ANSWER = b'{"text":"alpha"}\n', b'{"id":1}\n'

SCRIPT: tuple[tuple[FrameKind | None, FrameKind, msgspec.Struct | bytes, int], ...] = (
    (None, FrameKind.HELLO, hello(), 0),
    (FrameKind.WELCOME, FrameKind.PING, Beat(1), 0),
    (FrameKind.START, FrameKind.STARTED, Started(77), 1),
    (FrameKind.FOLLOW, FrameKind.HAS, Has(number=1), 1),
    (None, FrameKind.LOG, Piece(0, ENTRY, number=1), 1),
    (None, FrameKind.OUT, ANSWER, 1),
    (FrameKind.FETCH, FrameKind.FILE, FilePart(1, b"12", is_last=False), 1),
    (None, FrameKind.FILE, FilePart(1, b"345"), 1),
    (FrameKind.STOP, FrameKind.EXIT, Exit(0), 1),
    (None, FrameKind.EXIT, Exit(0, is_gone=True), 1),
)
"""What a node says of one worker, each after what it waits for."""


async def play(peer: Peer, cut: int, part: float) -> None:
    """Say the first ``cut`` frames and a part of the next one, and close the link."""
    for number, (awaited, kind, said, channel) in enumerate(SCRIPT):
        if awaited is not None:
            assert await peer.heard(awaited)
        data = encode_frame(kind, channel, said if isinstance(said, bytes) else msgspec.msgpack.encode(said))
        if number == cut:
            await peer.send_bytes(data[: int(len(data) * part)])
            peer.close()
            return
        await peer.send_bytes(data)


async def use(process: RemoteProcess, transcript: str, shown: list[bytes]) -> None:
    """What a client does with a worker, until its link is cut."""
    await process.wait_started()
    await process.keep(transcript)
    await process.wait_readable()
    shown.extend([data] if (data := process.receive_nowait()) else [])
    shown.append(await process.fetch("a.txt", 10))


@pytest.mark.parametrize("part", [0.0, 0.6], ids=["between two", "within one"])
@pytest.mark.parametrize("cut", range(len(SCRIPT) + 1))
async def test_a_cut_after_any_frame_ends_the_worker_and_frees_its_session(
    tmp_path: Path, cut: int, part: float
) -> None:
    transcript = tmp_path / "sessions" / "main" / "t.jsonl"
    transcript.parent.mkdir(parents=True)
    shown = list[bytes]()
    async with desk_world(tmp_path, lease=0.3, margin=0.1) as world, trio.open_nursery() as nursery:
        peer = world.connect("a")
        nursery.start_soon(play, peer, cut, part)
        while (node := world.desk.linked("a")) is None and not world.told:
            await trio.lowlevel.checkpoint()
        if node is None:
            assert cut <= 1
            assert [event for event, _ in world.told] == ["node_refused"]
            return
        process = node.start(PLAN, RpcSettings(), LineLog(None, 1 << 20))
        async with trio.open_nursery() as beside:
            beside.start_soon(process.run)
            with suppress(PoolError):  # how it ended is looked at below
                await use(process, str(transcript), shown)
            status = await process.stop()
            beside.cancel_scope.cancel()
        assert status == ExitStatus(0) if cut >= 9 else "its node a was lost" in status.reason
        assert transcript.exists() == (cut >= 5)
        assert shown == [ANSWER, b"12345"][: (cut >= 6) + (cut >= 8)]
        if cut < len(SCRIPT) - 1:
            assert "node_fenced" in [event for event, _ in world.told], "its session was free before the fence"
