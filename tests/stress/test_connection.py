"""A client receives everything across lost connections; the supervisor is made up."""

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from errors import PoolError
from stress.connection import PushMessage, ReconnectingClient
from stress.driver import LoadDriver, SimulatedFrontEnds
from stress.facts import DirectViolation, Fact, Journal, RequestAnswered
from stress.plan import StressOptions, make_plan
from stress.request_tracker import Nonces, RequestTracker

HEAD = {"subscription": "s", "head": 7, "complete": True}
Answer = Callable[[int, dict[str, Any]], list[dict[str, Any]]]


@pytest.fixture
def socket() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="p") as folder:  # a socket's path is short
        yield Path(folder) / "s"


@asynccontextmanager
async def supervisor(path: Path, answer: Answer) -> AsyncIterator[list[dict[str, Any]]]:
    """``answer``: the lines with which a request is answered, by the number of its connection; the requests made."""
    asked: list[dict[str, Any]] = []
    connections = 0

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1
        number, rest = connections, b""
        with suppress(trio.BrokenResourceError):  # a client that disconnects leaves data unread
            async for chunk in stream:
                *lines, rest = (rest + bytes(chunk)).split(b"\n")
                for line in lines:
                    asked.append(msgspec.json.decode(line))
                    for each in answer(number, asked[-1]):
                        await stream.send_all(msgspec.json.encode(each) + b"\n")

    listening = trio.socket.socket(trio.socket.AF_UNIX)
    await listening.bind(str(path))
    listening.listen()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [trio.SocketListener(listening)])
        with trio.fail_after(20):
            yield asked
        nursery.cancel_scope.cancel()


def greeted(request: dict[str, Any]) -> dict[str, Any]:
    return {"id": request["id"], "result": HEAD}


def ended(reason: str) -> dict[str, Any]:
    return {"event": "subscription_ended", "data": {"subscription": "s", "bookmark": 7, "reason": reason}}


def done(seq: int, run: str, session: str) -> dict[str, Any]:
    event = {"seq": seq, "ts": 9.0, "session": session, "channel": "progress", "type": "done", "run_id": run}
    return {"event": "events", "data": {"subscription": "s", "events": [{**event, "data": {"reason": "completed"}}]}}


@pytest.mark.parametrize(("reason", "tells"), [("behind", []), ("unreadable", ["the subscription ended: unreadable"])])
async def test_a_lost_subscription_is_replaced_from_its_bookmark(socket: Path, reason: str, tells: list[str]) -> None:
    facts: list[Fact] = []
    heard = trio.Event()

    def record(fact: Fact) -> None:
        facts.append(fact)
        if isinstance(fact, RequestAnswered):
            heard.set()

    def answer(number: int, request: dict[str, Any]) -> list[dict[str, Any]]:
        return [greeted(request), ended(reason) if number == 1 else done(8, "mine-0", "s0")]

    async def ready() -> Path:
        return socket

    ledger = RequestTracker(Nonces(7), Journal(trio.current_time, record), prefix="mine")
    driver = LoadDriver(make_plan(StressOptions()), ledger, ready=ready, journal=Journal(trio.current_time, record))
    async with supervisor(socket, answer) as asked, trio.open_nursery() as nursery:
        nursery.start_soon(driver.event_client.run)
        await heard.wait()
        nursery.cancel_scope.cancel()
    assert [request.get("params", {}).get("since") for request in asked] == [None, 7]
    assert [fact.what for fact in facts if isinstance(fact, DirectViolation)] == tells


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_front_end_that_was_cut_off_goes_on_reading(socket: Path, *, is_slow: bool) -> None:
    """A slow one has no bookmark: that it reads is all that matters."""
    again = trio.Event()

    def answer(number: int, request: dict[str, Any]) -> list[dict[str, Any]]:
        if number > 1:
            again.set()
        return [greeted(request), ended("behind")] if number == 1 else [greeted(request)]

    async def ready() -> Path:
        return socket

    silent = Journal(trio.current_time, lambda _fact: None)
    ledger = RequestTracker(Nonces(7), silent, prefix="mine")
    front_ends = SimulatedFrontEnds(["s0"], ledger, ready=ready, journal=silent, some_are_slow=is_slow)
    async with supervisor(socket, answer) as asked, trio.open_nursery() as nursery:
        nursery.start_soon(partial(front_ends.run, Random(7), come_and_go=False))
        await again.wait()
        nursery.cancel_scope.cancel()
    assert [request.get("params", {}).get("since") for request in asked] == [None, None if is_slow else 7]


async def test_a_supervisor_that_is_closing_is_not_left_before_it_ends(socket: Path) -> None:
    pushed = trio.Event()

    async def ready() -> Path:
        return socket

    def hear(push: PushMessage) -> None:
        if push.reason is not None:
            pushed.set()

    connection = ReconnectingClient(ready, greeting=lambda: ("subscribe", {}), on_push=hear)
    async with (
        supervisor(socket, lambda _number, request: [greeted(request), ended("closing")]),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(connection.run)
        await pushed.wait()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert connection.connect_count == 1
        nursery.cancel_scope.cancel()


async def test_a_greeting_that_fails_is_told_and_one_that_was_cut_short_is_made_again(socket: Path) -> None:
    errors = {
        1: {"code": "pool_closed", "message": "the supervisor closed the connection"},
        2: {"code": "usage", "message": "no such kind"},
    }

    def answer(number: int, request: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"id": request["id"], "error": errors[number]}]

    async def ready() -> Path:
        return socket

    connection = ReconnectingClient(ready, greeting=lambda: ("subscribe", {}))
    async with supervisor(socket, answer) as asked:
        with pytest.raises(ExceptionGroup) as caught:
            await connection.run()
    assert caught.group_contains(PoolError, match="no such kind", depth=None)
    assert len(asked) == 2
