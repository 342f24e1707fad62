"""Every test here may use a running registry."""

from collections.abc import AsyncIterator

import pytest

from tests.agent.processes.helpers import Bench, bench_of


@pytest.fixture
async def bench(workspace: object) -> AsyncIterator[Bench]:
    async with bench_of() as running:
        yield running
