"""A front end attached to session alice for each test that asks for one."""

from collections.abc import AsyncIterator

import pytest

from tests.gateway.front_ends.front_end import FrontEnd, attached
from tests.gateway.world import World


@pytest.fixture
async def front(world: World) -> AsyncIterator[FrontEnd]:
    async with attached(world) as front:
        yield front
