"""The fixture ``house``: what scheduled tasks use of the rest, in virtual time."""

import pytest

from tests.heartbeat.cron.house import House


@pytest.fixture
def house(virtual_time: None) -> House:
    return House()
