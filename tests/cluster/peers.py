"""A desk and peers whose bytes the test writes itself: no process, a pair of sockets each."""

import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from cluster.frames import Frame, FrameDecoder, FrameKind, Limits, encode_frame
from cluster.home import NodeDesk
from cluster.messages import Beat, Hello
from cluster.remote_node import RemoteNode
from cluster.shared import SharedDirectory
from cluster.wire import LinkWire

ANY: Limits = dict.fromkeys(FrameKind, 16 << 20)


def hello(**more: Any) -> Hello:
    return Hello(**{"version": "1", "name": "a", "boot": "boot", "instance": "i1", **more})


class Peer:
    """The other end of a link."""

    def __init__(self, connection: socket.socket) -> None:
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
        self._decoder = FrameDecoder(ANY)
        self._frames: list[Frame] = []

    async def send_bytes(self, data: bytes) -> None:
        """Raises trio.BrokenResourceError where the desk has closed it."""
        await self._stream.send_all(data)

    async def say(self, kind: FrameKind, said: msgspec.Struct | bytes = b"", channel: int = 0) -> None:
        payload = said if isinstance(said, bytes) else msgspec.msgpack.encode(said)
        await self.send_bytes(encode_frame(kind, channel, payload))

    async def heard(self, *kinds: FrameKind) -> Frame | None:
        """The next frame of these kinds; None at the end of the link."""
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if frame.kind in kinds:
                    return frame
            try:
                data = await self._stream.receive_some(1 << 16)
            except trio.BrokenResourceError:
                return None
            if not data:
                return None
            self._frames += self._decoder.feed(data)

    async def is_closed(self) -> None:
        """Wait until the desk has closed it."""
        assert await self.heard() is None

    def close(self) -> None:
        self._stream.socket.close()

    async def be_welcome(self, **said: Any) -> None:
        """Say hello, and ping: the node takes workers."""
        await self.say(FrameKind.HELLO, hello(**said))
        assert await self.heard(FrameKind.WELCOME)
        await self.say(FrameKind.PING, Beat(1))
        assert await self.heard(FrameKind.PONG)


class DeskWorld:
    """A desk; ``told`` are its events."""

    def __init__(self, directory: Path, nursery: trio.Nursery, *, shared: bool = False, **seconds: Any) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.data_dir = directory
        self.desk = NodeDesk(
            directory,
            watcher=self,
            emit=lambda event, facts: self.told.append((event, facts)),
            shared=SharedDirectory(directory) if shared else None,
            **seconds,
        )
        self.wires: list[LinkWire] = []
        self.peers: list[Peer] = []
        self._nursery = nursery

    def joined(self, node: RemoteNode) -> None:
        """It takes what the test starts."""

    def idle(self, name: str) -> float:  # noqa: ARG002 - the watcher's
        return 0.0

    def drain(self, name: str, seconds: float | None, *, ends: bool) -> None:
        """Nothing is shared out here."""

    def lost(self, node: RemoteNode, reason: str) -> int:  # noqa: ARG002 - the desk's
        return 0

    def reasons(self, event: str) -> list[str]:
        return [facts.get("reason", "") for name, facts in self.told if name == event]

    def connect(self, name: str | None = None) -> Peer:
        """A peer that is known by the way it came, or by what it says."""
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        descriptors = os.dup(ours.fileno()), ours.detach()
        wire = LinkWire.of_pipes(*descriptors)
        self.wires.append(wire)
        self.peers.append(Peer(theirs))
        if name is None:
            self._nursery.start_soon(self.desk.serve_dialled, wire)
        else:
            self._nursery.start_soon(self.desk.serve, wire, name)
        return self.peers[-1]


@asynccontextmanager
async def desk_world(
    directory: Path, *, lease: float = 60.0, margin: float = 3.0, silence: float = 30.0, shared: bool = False
) -> AsyncGenerator[DeskWorld, None]:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            world = DeskWorld(directory, nursery, lease=lease, margin=margin, silence=silence, shared=shared)
            nursery.start_soon(world.desk.run)
            try:
                yield world
            finally:
                nursery.cancel_scope.cancel()
                for peer in world.peers:
                    peer.close()
