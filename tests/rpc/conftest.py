"""A worker made of memory and the client that speaks with it."""

from collections.abc import AsyncIterator

import pytest

from tests.rpc.clients import AskingClient, running
from tests.rpc.memory_transport import MemoryTransport


@pytest.fixture
def worker() -> MemoryTransport:
    return MemoryTransport()


@pytest.fixture
async def client(worker: MemoryTransport) -> AsyncIterator[AskingClient]:
    async with running(worker) as client:
        yield client
