"""An agent that is ready, and one that is in a turn."""

import pytest

from tests.rpc.acp.agent import Agent


@pytest.fixture
def agent() -> Agent:
    """Ready."""
    return Agent()


@pytest.fixture
def busy() -> Agent:
    """In a turn."""
    agent = Agent()
    agent.prompt("hi")
    agent.reported.clear()
    return agent
