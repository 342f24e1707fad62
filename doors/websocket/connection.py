"""One WebSocket, routes.

One WebSocket: its frames read, its requests run side by side, its answers and events sent.

WebSockets at any path, since clients of the protocol differ in theirs.
"""

import logging
import time
import uuid
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, assert_never

import trio
from starlette.websockets import WebSocket

from doors.http import errors
from doors.http.services import Opening, Services, prove, visit_of
from doors.limits import OutputBudget, OutputShare
from doors.websocket.events import Told
from doors.websocket.frames import Incoming, SocketLimits, encode_answer, encode_event, encode_refusal, error_shape
from doors.websocket.gateway_methods import health_of
from doors.websocket.handshake import Action, Admission, Admit, CloseCode, End, Say, Serve, SocketMachine
from doors.websocket.hub import Hub
from doors.websocket.methods import METHODS, carry_out
from doors.websocket.peer import Subscriptions, entry_of
from doors.websocket.run_text import EVENTS
from doors.websocket.runs import Request, RequestContext
from doors.websocket.sender import Sender
from errors import PoolError, PoolSaturated

_VERSION = version("agent-pool")
_FREE_BYTES = 256 * 1024
_FAREWELL_SECONDS = 2.0
"""Closing the socket under a peer that still writes would destroy the last words on their way to it."""
_SLOW = "slow consumer: what must not be lost has no room any more"
_logger = logging.getLogger("pool.http")


class SocketConnection:
    """Serves one WebSocket, which has not been accepted yet, in ``run``."""

    def __init__(
        self, socket: WebSocket, services: Services, hub: Hub, limits: SocketLimits, budget: OutputBudget
    ) -> None:
        self._socket = socket
        self._services = services
        self._hub = hub
        self._limits = limits
        self._id = uuid.uuid4().hex
        self._visit = visit_of(socket)
        known, authenticate = self._visit.identity, services.access.authenticate
        self._machine = SocketMachine(uuid.uuid4().hex, known, authenticate, limits)
        share = OutputShare(budget, free=_FREE_BYTES, on_excess=self._give_up)
        peer = self._visit.peer
        assert peer is not None  # noqa: S101  # the server's connections are all there is
        self._sender = Sender(peer.send_messages, socket.send, int(limits.buffered_bytes), share)
        self._admission: Admission | None = None
        self._subscriptions = Subscriptions()
        self._context = RequestContext(services, hub.presence, self._subscriptions)
        self.presence: dict[str, Any] = {}
        """See ``Listener.presence``."""
        self._events = 0
        self._bytes_in_flight = 0
        self._nursery: trio.Nursery

    async def run(self) -> None:
        """Serve until the peer leaves, breaks the rules, is too slow, or the server ends."""
        await self._socket.accept()
        self._services.figures.sockets += 1
        try:
            async with trio.open_nursery() as self._nursery:
                with self._services.closing.telling(self._go_away):
                    self._nursery.start_soon(self._read)
                    await self._sender.run()
                    await trio.sleep(_FAREWELL_SECONDS)  # the reader ends it as soon as the peer has closed, too
                    self._nursery.cancel_scope.cancel()
        finally:
            self._services.figures.sockets -= 1
            if self._admission is not None:
                self._hub.leave(self)

    def _go_away(self) -> None:
        self._nursery.start_soon(self._perform, self._machine.go_away())

    def _give_up(self, waiting: int) -> None:
        """Most of what waits for all peers waits for this one."""
        _logger.warning("a WebSocket was closed: %d bytes waited for it, the most of all", waiting)
        self._close_slow()

    def _close_slow(self) -> None:
        self._services.figures.sockets_slow += 1
        self._sender.end(CloseCode.POLICY, _SLOW, at_once=True)

    # --- frames in ----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        await self._perform(self._machine.begin(_now_ms()))
        message = None
        with trio.move_on_after(self._limits.connect_timeout):
            message = await self._socket.receive()
        if message is None:
            await self._perform(self._machine.late())
            message = await self._socket.receive()
        while message["type"] != "websocket.disconnect":
            await self._perform(self._machine.receive(message.get("text")))
            message = await self._socket.receive()
        self._nursery.cancel_scope.cancel()

    async def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Say(frame):
                    await self._sender.put(frame)
                case Admit(request_id, admission):
                    await self._admit(request_id, admission)
                case Serve(request):
                    self._nursery.start_soon(self._serve, request)
                case End(code, reason):
                    self._sender.end(code, reason)
                case _:
                    assert_never(action)

    # --- coming in ----------------------------------------------------------------------------------------------------

    async def _admit(self, request_id: str, admission: Admission) -> None:
        prove(self._socket, admission.owner)
        hello = await self._hello(admission)
        self._admission = admission
        self._subscriptions.approves = admission.identity.approvals
        self.presence = entry_of(admission, time.time())
        self._sender.put_nowait(encode_answer(request_id, hello))
        self._hub.join(self)

    async def _hello(self, admission: Admission) -> dict[str, Any]:
        status = await self._services.status()
        return {
            "type": "hello-ok",
            "protocol": admission.protocol,
            "server": {"version": _VERSION, "connId": self._id},
            "features": {"methods": list(METHODS), "events": ["connect.challenge", *EVENTS]},
            "snapshot": {
                "presence": [],
                "health": health_of(status),
                "stateVersion": {"presence": 0, "health": 0},
                "uptimeMs": int((time.time() - self._services.started_at) * 1000),
            },
            "auth": {"role": admission.role, "scopes": admission.scopes},
            "policy": {
                "maxPayload": int(self._services.settings.max_body),
                "maxBufferedBytes": int(self._limits.buffered_bytes),
                "tickIntervalMs": int(self._limits.tick * 1000),
            },
        }

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _serve(self, frame: Incoming) -> None:
        size = len(frame.params)
        self._bytes_in_flight += size
        try:
            await self._sender.put(await self._answer(frame))
        finally:
            self._bytes_in_flight -= size
            self._visit.share.give_back(self._bytes_in_flight)
            self._machine.answered(frame.id)

    async def _answer(self, frame: Incoming) -> bytes:
        assert self._admission is not None  # noqa: S101  # who makes requests is in

        async def say(payload: Any) -> None:
            await self._sender.put(encode_answer(frame.id, payload))

        try:
            self._charge(len(frame.params))
            self._services.check_rate(self._admission.owner.rate_key)
            request = Request(self._context, self._admission.identity, frame.id, say)
            return encode_answer(frame.id, await carry_out(frame.method, frame.params, request))
        except PoolError as exc:
            return encode_refusal(frame.id, error_shape(exc))
        except Exception as exc:  # noqa: BLE001  # whatever goes wrong is answered
            return encode_refusal(frame.id, error_shape(errors.told(exc, frame.method)))

    def _charge(self, size: int) -> None:
        """Take room for a request. Raises PoolSaturated; what the others have taken stays theirs."""
        try:
            self._visit.share.charge(self._bytes_in_flight)
        except PoolSaturated:
            self._visit.share.charge(self._bytes_in_flight - size)
            raise

    # --- events -------------------------------------------------------------------------------------------------------

    async def keep_up(self) -> None:
        """See ``Listener.keep_up``."""
        await self._sender.keep_up()

    def miss(self) -> None:
        """See ``Listener.miss``: the gap tells of it."""
        self._events += 1

    def hear(self, event: Told) -> None:
        """See ``Listener.hear``."""
        assert self._admission is not None  # noqa: S101  # who has joined is in
        if not self._subscriptions.includes(event.audience, event.session):
            return
        payload = event.payload
        if event.old is not None and self._admission.protocol < 4:
            payload = event.old
        if not payload:
            return
        self._events += 1  # also of those that are dropped: the gap tells of them
        frame = encode_event(event.event, payload, self._events)
        offer = self._sender.offer(frame, is_droppable=event.is_droppable)
        self._services.figures.events_dropped += offer.lost
        if offer.is_full:
            self._close_slow()


def _now_ms() -> int:
    return int(time.time() * 1000)


def routes(services: Services) -> Sequence[Opening]:
    """Open to everybody: the token is shown in the first frame, or in the handshake's header."""
    limits = SocketLimits()
    hub = Hub(services, limits)
    budget = OutputBudget(limits.output_bytes)
    services.chores.append(hub.run)

    async def serve(socket: WebSocket) -> None:
        await SocketConnection(socket, services, hub, limits, budget).run()

    return [Opening("/{path:path}", serve, None, is_socket=True)]
