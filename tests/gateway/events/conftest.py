"""A bus for each test that asks for one, and its store."""

from collections.abc import AsyncIterator

import pytest

from gateway.events.bus import EventBus
from tests.gateway.events.stand_in import SMALL_RING, MemoryStore, open_bus


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def bus(store: MemoryStore) -> AsyncIterator[EventBus]:
    async with open_bus(store) as bus:
        yield bus


@pytest.fixture
async def small_bus(store: MemoryStore) -> AsyncIterator[EventBus]:
    """A bus whose ring ``flood`` fills more than once."""
    async with open_bus(store, ring=SMALL_RING) as bus:
        yield bus
