"""Clients over a worker made of memory, for every test of the client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from errors import PoolError, UsageError
from rpc.client import RpcClient
from rpc.dialect import EMPTY_STEP, Dialect, Step
from rpc.native import NativeDialect
from rpc.passthrough import RawObject
from rpc.settings import RpcSettings
from tests.rpc.memory_transport import MemoryTransport
from wire.messages import Message

READY = {"event": "ready", "data": {"protocol": 1, "agent": "memory", "pid": 7}}


class AskingClient(RpcClient):
    """A client that can ask in tasks of their own, which end with it."""

    nursery: trio.Nursery

    def ask(self, method: str, **options: Any) -> "Asked":
        return Asked(self.nursery, self, method, **options)


def make_client(
    worker: MemoryTransport, rpc_settings: RpcSettings | None = None, dialect: Dialect | None = None
) -> AskingClient:
    return AskingClient(worker, dialect or NativeDialect(), rpc_settings or RpcSettings(), name="w1")


@asynccontextmanager
async def running(
    worker: MemoryTransport, rpc_settings: RpcSettings | None = None, dialect: Dialect | None = None
) -> AsyncIterator[AskingClient]:
    client = make_client(worker, rpc_settings, dialect)
    async with trio.open_nursery() as client.nursery:
        await client.nursery.start(client.run)
        yield client
        client.nursery.cancel_scope.cancel()


async def outcome_of(client: RpcClient, method: str, **options: Any) -> PoolError | msgspec.Raw:
    try:
        return await client.request(method, **options)
    except PoolError as exc:
        return exc


class Asked:
    """A request in a task of its own."""

    def __init__(self, nursery: trio.Nursery, client: RpcClient, method: str, **options: Any) -> None:
        self.done = trio.Event()
        self.outcome: PoolError | msgspec.Raw | None = None
        self.scope = trio.CancelScope()
        nursery.start_soon(self._ask, client, method, options)

    async def _ask(self, client: RpcClient, method: str, options: dict[str, Any]) -> None:
        with self.scope:
            self.outcome = await outcome_of(client, method, **options)
        self.done.set()

    async def error(self) -> PoolError:
        await self.done.wait()
        assert isinstance(self.outcome, PoolError)
        return self.outcome

    async def answer(self) -> Any:
        await self.done.wait()
        assert isinstance(self.outcome, msgspec.Raw), self.outcome
        return msgspec.json.decode(self.outcome)


class Deferring:
    """Asks a question when opened, holds requests back until the worker has said ``go``, repeats it every 5 s."""

    name = "deferring"
    retire_reason = None
    has_lost_conversation = False
    conversation_facts = None
    is_running = False
    is_streaming = False

    def __init__(self) -> None:
        self.held: list[bytes] = []
        self.forgotten: list[str] = []
        self.due: float | None = None

    def listen_raw(self, *, on: bool) -> None:
        """It has no lines of its own."""

    def forward(self, request_id: str, command: RawObject, now: float) -> Step:  # noqa: ARG002 - as above
        raise UsageError("not in this dialect")

    def open(self, now: float) -> Step:
        self.due = now + 5
        return Step([], [b"hello\n"], [])

    def request(self, request_id: str, method: str, params: msgspec.Raw, now: float) -> Step:  # noqa: ARG002 - as above
        if method == "refused":
            raise UsageError("not in this dialect")
        if method == "local":
            return Step([Message(id=request_id, result=msgspec.Raw(b'"at once"'))], [], [])
        self.held.append(request_id.encode() + b"\n")
        return EMPTY_STEP

    def receive(self, block: bytes, now: float) -> Step:  # noqa: ARG002 - as above
        if block.startswith(b"bad"):
            return Step([], [], block.splitlines())
        if block == b"go\n":
            held, self.held = self.held, []
            return Step([], held, [])
        return Step([Message(id=block.decode().strip(), result=msgspec.Raw(b"1"))], [], [])

    def forget(self, request_id: str) -> None:
        self.forgotten.append(request_id)

    def next_deadline(self) -> float | None:
        return self.due

    def expire(self, now: float) -> Step:
        self.due = now + 5 if now < 12 else None
        return Step([], [b"hello again\n"], [])
