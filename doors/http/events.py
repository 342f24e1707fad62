"""``GET /events``: events as server-sent events, each under its seq, so that browsers resume the stream.

``?session=KEY``, ``channels=`` and ``kinds=`` (names, separated by commas), ``since=SEQ`` (a bookmark; the header
``Last-Event-ID`` takes precedence), ``batch=true`` (one message holds a list of events). The first message is ``open``
with ``{head, complete}``, the last one ``end`` with ``{bookmark, reason}``: ``closing``, or ``behind`` for a reader
that was too slow. Both have an id to resume from.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from doors.http import tokens
from doors.http.access import TokenIdentity
from doors.http.errors import render_error
from doors.http.services import (
    KEEPALIVE_SECONDS,
    HttpServices,
    RouteSpec,
    SubscriptionCaller,
    SubscriptionEnded,
    identity_of,
    wait_disconnect,
)
from errors import PoolError, UsageError
from wire.sse import STREAM_HEADERS, STREAM_TYPE, batch_message, event_messages, stream_message

_LIST_PARAMS = ("channels", "kinds")
_QUERY_PARAMS = ("session", *_LIST_PARAMS, "since", "batch")
_SEQ = re.compile(r"\d{1,15}", re.ASCII)


def routes(services: HttpServices) -> Sequence[RouteSpec]:
    """The one route."""
    return [RouteSpec("/events", partial(_follow, services), tokens.Scope.READ)]


async def _follow(services: HttpServices, request: Request) -> Any:
    wish = parse_query(request)
    if request.method == "HEAD":
        return Response(media_type=STREAM_TYPE)
    is_batched = request.query_params.get("batch") == "true"
    return EventStreamResponse(services, identity_of(request), wish, is_batched=is_batched)


def parse_query(request: Request) -> dict[str, Any]:
    """The parameters of ``subscribe`` that a request asks for. Raises UsageError."""
    query = request.query_params
    for name in query:
        if name not in _QUERY_PARAMS:
            hint = "a token is sent as a header" if "token" in name else f"there are: {', '.join(_QUERY_PARAMS)}"
            raise UsageError(f"unknown parameter {name[:50]!r}; {hint}")
    if query.get("batch") not in (None, "true", "false"):
        raise UsageError("batch is true or false")
    wish: dict[str, Any] = {name: _names(query.getlist(name)) for name in _LIST_PARAMS if name in query}
    if "session" in query:
        wish["session"] = _one_session(query.getlist("session"))
    since = request.headers.get("last-event-id") or query.get("since")
    if since:
        if not _SEQ.fullmatch(since):
            raise UsageError(f"since (or Last-Event-ID) is the seq of an event, not {since[:50]!r}")
        wish["since"] = int(since)
    return wish


def _one_session(given: Sequence[str]) -> str:
    """An empty name must not mean all conversations, nor the last of two names the other."""
    if len(given) != 1 or not given[0]:
        raise UsageError("session names one conversation; leave it out for the events of all")
    return given[0]


def _names(values: Sequence[str]) -> list[str]:
    return [name for value in values for name in value.split(",") if name]


class EventStreamResponse:
    """A subscription as an endless answer. At most one batch of events waits for a slow reader."""

    def __init__(
        self, services: HttpServices, identity: TokenIdentity, wish: dict[str, Any], *, is_batched: bool
    ) -> None:
        self._services = services
        self._filters = wish
        self._encode = batch_message if is_batched else event_messages
        self._caller = SubscriptionCaller(identity, "events", take=self._on_push)
        self._is_sending = False
        self._sent_bytes = 0
        self._send: Send
        self._nursery: trio.Nursery

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the peer leaves, is too slow, or the server ends."""
        self._send = send
        try:
            begun = await self._services.call("subscribe", self._filters, self._caller)
        except PoolError as exc:
            await render_error(exc)(scope, receive, send)
            return
        self._services.stats.streams += 1
        try:
            await self._stream(begun, receive)
        finally:
            self._services.stats.streams -= 1

    async def _stream(self, begun: dict[str, Any], receive: Receive) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        place = self._filters.get("since", begun["head"])
        facts = {"head": begun["head"], "complete": begun["complete"]}
        await self._send_body(b"retry: 2000\n" + stream_message("open", min(place, begun["head"]), facts))
        async with trio.open_nursery() as self._nursery:
            with self._services.shutdown.on_begin(self._stop):
                self._nursery.start_soon(self._follow)
                await self._keepalive(receive)
                self._nursery.cancel_scope.cancel()
        if self._caller.ended is not None:
            await self._send_end(self._caller.ended)

    async def _keepalive(self, receive: Receive) -> None:
        """Until the peer has left; send a comment in silence."""
        while True:
            sent = self._sent_bytes
            with trio.move_on_after(KEEPALIVE_SECONDS) as waiting:
                await wait_disconnect(receive)
            if not waiting.cancelled_caught:
                return
            if self._sent_bytes == sent and not self._is_sending:
                await self._send_body(b": quiet\n\n")

    def _stop(self) -> None:
        """End between two pieces, not in the middle of one."""
        if not self._is_sending:
            self._nursery.cancel_scope.cancel()

    # --- the subscription's pushes ------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        await self._caller.follow()
        self._nursery.cancel_scope.cancel()

    async def _on_push(self, _event: str, data: bytes) -> None:
        self._is_sending = True
        try:
            await self._send_body(self._encode(data))
        finally:
            self._is_sending = False
        if self._services.shutdown.has_begun:
            self._nursery.cancel_scope.cancel()

    async def _send_body(self, body: bytes) -> None:
        self._sent_bytes += len(body)
        self._services.stats.events_bytes += len(body)
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _send_end(self, ended: SubscriptionEnded) -> None:
        self._services.stats.streams_behind += ended.reason == "behind"
        facts = {"bookmark": ended.bookmark, "reason": ended.reason}
        await self._send_body(stream_message("end", ended.bookmark, facts))
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
