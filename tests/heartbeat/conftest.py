"""The fixture ``world``: what heartbeats see of the rest."""

import pytest
import trio

from tests.heartbeat.worlds import World


@pytest.fixture
def world(virtual_time: None, nursery: trio.Nursery) -> World:
    return World(nursery=nursery)
