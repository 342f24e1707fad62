"""A gateway for each test that asks for one."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.gateway.world import World, open_world


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test with the fixture ``world`` runs on a virtual clock: pytest-trio sees only clocks that the test names."""
    if "world" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.trio(run=_run_virtually))


def _run_virtually(test: Any, **options: Any) -> Any:
    return trio.run(test, **{**options, "clock": MockClock(autojump_threshold=0)})


@pytest.fixture
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A life on a virtual clock; ``pytest.mark.world`` gives the options of ``open_world``."""
    marker = request.node.get_closest_marker("world")
    async with open_world(tmp_path, **(marker.kwargs if marker else {})) as world:
        yield world
