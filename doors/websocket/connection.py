"""One WebSocket: reads frames, runs requests side by side, sends answers and events. It is served at any path."""

import logging
import time
import uuid
from collections.abc import Sequence
from typing import Any, assert_never

import trio
from starlette.websockets import WebSocket

from doors.budgets import OutputBudget, OutputShare
from doors.http import errors
from doors.http.services import HttpServices, RouteSpec, request_state, set_identity
from doors.websocket.events import OutboundEvent
from doors.websocket.frames import RequestFrame, SocketLimits, encode_answer, encode_error, encode_event, error_shape
from doors.websocket.gateway_methods import health_summary
from doors.websocket.handshake import (
    ROLE,
    Accept,
    Action,
    CloseCode,
    CloseSocket,
    Dispatch,
    HandshakeResult,
    SendFrame,
    SocketMachine,
)
from doors.websocket.hub import EventHub
from doors.websocket.methods import METHODS, dispatch
from doors.websocket.peer import MethodRequest, SocketSubscriptions, presence_entry
from doors.websocket.sender import FrameSender
from doors.websocket.translator import EVENT_NAMES
from errors import PoolError, PoolSaturated
from wire.version import VERSION

_FREE_BYTES = 256 * 1024
_CLOSE_GRACE_SECONDS = 2.0
"""Closing the socket under a peer that still writes would destroy the last frames on their way to it."""
_SLOW_REASON = "slow consumer: what must not be lost has no room any more"
_logger = logging.getLogger("pool.http")


class SocketConnection:
    """Serves one WebSocket, which has not been accepted yet, in ``run``."""

    def __init__(
        self, socket: WebSocket, services: HttpServices, hub: EventHub, limits: SocketLimits, budget: OutputBudget
    ) -> None:
        self._socket = socket
        self._services = services
        self._hub = hub
        self._limits = limits
        self._id = uuid.uuid4().hex
        self._request_state = request_state(socket)
        known, authenticate = self._request_state.identity, services.access.authenticate
        self._machine = SocketMachine(uuid.uuid4().hex, known, authenticate, limits)
        share = OutputShare(budget, free=_FREE_BYTES, on_excess=self._on_excess)
        peer = self._request_state.peer
        assert peer is not None  # noqa: S101  # the server's connections are all there is
        self._sender = FrameSender(peer.send_messages, socket.send, int(limits.buffered_bytes), share)
        self._handshake: HandshakeResult | None = None
        self._subscriptions = SocketSubscriptions()
        self.presence: dict[str, Any] = {}
        """Implements ``HubListener.presence``."""
        self._event_seq = 0
        self._bytes_in_flight = 0
        self._nursery: trio.Nursery

    async def run(self) -> None:
        """Serve until the peer leaves, breaks the rules, is too slow, or the server ends."""
        await self._socket.accept()
        self._services.stats.sockets += 1
        try:
            async with trio.open_nursery() as self._nursery:
                with self._services.shutdown.on_begin(self._on_shutdown):
                    self._nursery.start_soon(self._read)
                    await self._sender.run()
                    await trio.sleep(_CLOSE_GRACE_SECONDS)  # the reader ends it as soon as the peer has closed, too
                    self._nursery.cancel_scope.cancel()
        finally:
            self._services.stats.sockets -= 1
            if self._handshake is not None:
                self._hub.remove_listener(self)

    def _on_shutdown(self) -> None:
        self._nursery.start_soon(self._perform, self._machine.on_shutdown())

    def _on_excess(self, waiting: int) -> None:
        """This peer has the most bytes waiting of all."""
        _logger.warning("a WebSocket was closed: %d bytes waited for it, the most of all", waiting)
        self._close_slow()

    def _close_slow(self) -> None:
        self._services.stats.sockets_slow += 1
        self._sender.close(CloseCode.POLICY, _SLOW_REASON, at_once=True)

    # --- frames in ----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        await self._perform(self._machine.begin(int(time.time() * 1000)))
        message = None
        with trio.move_on_after(self._limits.connect_timeout):
            message = await self._socket.receive()
        if message is None:
            await self._perform(self._machine.on_connect_timeout())
            message = await self._socket.receive()
        while message["type"] != "websocket.disconnect":
            await self._perform(self._machine.receive(message.get("text")))
            message = await self._socket.receive()
        self._nursery.cancel_scope.cancel()

    async def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case SendFrame(frame):
                    await self._sender.put(frame)
                case Accept(request_id, admission):
                    await self._accept(request_id, admission)
                case Dispatch(request):
                    self._nursery.start_soon(self._serve, request)
                case CloseSocket(code, reason):
                    self._sender.close(code, reason)
                case _:
                    assert_never(action)

    # --- coming in ----------------------------------------------------------------------------------------------------

    async def _accept(self, request_id: str, admission: HandshakeResult) -> None:
        set_identity(self._socket, admission.owner)
        hello = await self._hello(admission)
        self._handshake = admission
        self._subscriptions.approves = admission.identity.approvals
        self.presence = presence_entry(admission, time.time())
        self._sender.put_nowait(encode_answer(request_id, hello))
        self._hub.add_listener(self)

    async def _hello(self, admission: HandshakeResult) -> dict[str, Any]:
        status = await self._services.status()
        return {
            "type": "hello-ok",
            "protocol": admission.protocol,
            "server": {"version": VERSION, "connId": self._id},
            "features": {"methods": list(METHODS), "events": ["connect.challenge", *EVENT_NAMES]},
            "snapshot": {
                "presence": [],
                "health": health_summary(status),
                "stateVersion": {"presence": 0, "health": 0},
                "uptimeMs": int((time.time() - self._services.started_at) * 1000),
            },
            "auth": {"role": ROLE, "scopes": admission.scopes},
            "policy": {
                "maxPayload": int(self._services.settings.max_body),
                "maxBufferedBytes": int(self._limits.buffered_bytes),
                "tickIntervalMs": int(self._limits.tick * 1000),
            },
        }

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _serve(self, frame: RequestFrame) -> None:
        size = len(frame.params)
        self._bytes_in_flight += size
        try:
            await self._sender.put(await self._answer(frame))
        finally:
            self._bytes_in_flight -= size
            self._request_state.share.release(self._bytes_in_flight)
            self._machine.answered(frame.id)

    async def _answer(self, frame: RequestFrame) -> bytes:
        assert self._handshake is not None  # noqa: S101  # who makes requests is in

        async def say(payload: Any) -> None:
            await self._sender.put(encode_answer(frame.id, payload))

        try:
            self._charge(len(frame.params))
            self._services.check_rate(self._handshake.owner.rate_key)
            request = MethodRequest(
                self._services,
                self._handshake.identity,
                frame.id,
                presence=self._hub.presence,
                subscriptions=self._subscriptions,
                send_interim=say,
            )
            return encode_answer(frame.id, await dispatch(frame.method, frame.params, request))
        except PoolError as exc:
            return encode_error(frame.id, error_shape(exc))
        except Exception as exc:  # noqa: BLE001  # whatever goes wrong is answered
            return encode_error(frame.id, error_shape(errors.as_pool_error(exc, frame.method)))

    def _charge(self, size: int) -> None:
        """Take room for a request. Raises PoolSaturated; what the others have taken stays theirs."""
        try:
            self._request_state.share.charge(self._bytes_in_flight)
        except PoolSaturated:
            self._request_state.share.charge(self._bytes_in_flight - size)
            raise

    # --- events -------------------------------------------------------------------------------------------------------

    async def wait_drained(self) -> None:
        """Implements ``HubListener.wait_drained``."""
        await self._sender.wait_drained()

    def on_gap(self) -> None:
        """Implements ``HubListener.on_gap``: skips a number."""
        self._event_seq += 1

    def on_event(self, event: OutboundEvent) -> None:
        """Implements ``HubListener.on_event``."""
        assert self._handshake is not None  # noqa: S101  # who has joined is in
        if not self._subscriptions.includes(event.audience, event.session):
            return
        payload = event.payload
        if event.v3_payload is not None and self._handshake.protocol < 4:
            payload = event.v3_payload
        if not payload:
            return
        self._event_seq += 1  # dropped events count too: the gap shows the loss
        frame = encode_event(event.event, payload, self._event_seq)
        offer = self._sender.offer(frame, is_droppable=event.is_droppable)
        self._services.stats.events_dropped += offer.lost
        if offer.is_full:
            self._close_slow()


def routes(services: HttpServices) -> Sequence[RouteSpec]:
    """One route without a scope: the token is in the first frame, or in the handshake's header."""
    limits = SocketLimits()
    hub = EventHub(services, limits)
    budget = OutputBudget(limits.output_bytes)
    services.background_tasks.append(hub.run)

    async def serve(socket: WebSocket) -> None:
        await SocketConnection(socket, services, hub, limits, budget).run()

    return [RouteSpec("/{path:path}", serve, None, is_socket=True)]
