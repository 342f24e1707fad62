"""Who reads a worker's output: the task that waits for an answer; the client's own while there is no such task."""

from collections.abc import Callable

import msgspec

from rpc.requests import RpcRequest
from rpc.subscription import Broadcast
from rpc.transport import Transport
from rpc.wakeup import Wakeup


class StdoutReader:
    """Gives the output to ``receive`` in order, piece by piece; nothing is read while a subscriber is full.

    A caller that reads its answer itself is resumed once, where one that another task has to wake takes two switches.
    """

    def __init__(self, transport: Transport, broadcast: Broadcast, receive: Callable[[bytes], None]) -> None:
        self._transport = transport
        self._broadcast = broadcast
        self._receive = receive
        self._reading_request: RpcRequest | None = None
        self._left = Wakeup()
        """Where ``run`` waits for the request to leave."""
        self._is_waiting = False
        """Whether ``run`` waits for output."""
        self._is_open = True

    async def run(self) -> None:
        """Read while no request does; returns at the end of the output."""
        while self._is_open:
            if self._reading_request is not None:
                await self._left.wait()
            elif self._broadcast.is_full:
                await self._broadcast.wait_room()
            else:
                await self._read_next()

    async def wait_answer(self, request: RpcRequest) -> msgspec.Raw:
        """Wait as ``RpcRequest.wait`` does, and read the answer here unless another request's task reads."""
        if request.is_settled or self._reading_request is not None or not await self._read_for(request):
            return await request.wait()
        return request.result()

    def stop(self) -> None:
        """Read nothing more; ``run`` is its caller's to cancel."""
        self._is_open = False
        if self._reading_request is not None:
            self._transport.interrupt()

    async def _read_next(self) -> None:
        self._is_waiting = True
        try:
            await self._transport.wait_readable()
        finally:
            self._is_waiting = False
        if self._reading_request is None and self._may_read:  # both may have changed since the wait ended
            self._read()

    async def _read_for(self, request: RpcRequest) -> bool:
        """True once it is settled; False, perhaps at once, where nothing may be read now."""
        self._reading_request = request
        if self._is_waiting:
            self._transport.interrupt()
        try:
            while self._may_read and not request.is_settled:
                request.interrupt = self._transport.interrupt
                await self._transport.wait_readable()
                request.interrupt = None
                if self._is_open:
                    self._read()
        finally:
            request.interrupt = None
            self._reading_request = None
            self._left.wake()
        return request.is_settled

    @property
    def _may_read(self) -> bool:
        return self._is_open and not self._broadcast.is_full

    def _read(self) -> None:
        data = self._transport.receive_nowait()
        if data:
            self._receive(data)
        elif data is not None:
            self._is_open = False
