"""Real ACP agents, and the fake model servers that they use."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import NoReturn

import pytest

from fixtures.acp_real import REAL_AGENTS, RealAgent
from fixtures.fake_anthropic import FakeAnthropic, serving_anthropic
from fixtures.fake_openai import FakeOpenAI, serving


@cache
def _node() -> int:
    """The machine's major version of node; 0 where there is none."""
    node = shutil.which("node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout if node else ""
    return int(found[1]) if (found := re.match(r"v(\d+)", version)) else 0


def unavailable(why: str) -> NoReturn:
    """A test that cannot run is skipped, and says so; under ``make test-acp`` it must run."""
    message = f"{why}; `make acp-agents` installs the real ACP agents"
    if os.environ.get("POOL_TEST_ACP") == "required":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


@pytest.fixture
def real_agent(request: pytest.FixtureRequest) -> RealAgent:
    """One that is named by the test's parameters, installed."""
    agent = REAL_AGENTS[request.param]
    if _node() < agent.node:
        unavailable(f"{agent.name} needs node {agent.node} or newer, there is {_node() or 'none'}")
    if not agent.executable.exists():
        unavailable(f"{agent.executable} does not exist")
    return agent


@pytest.fixture
def model_server(real_agent: RealAgent) -> Iterator[FakeOpenAI | FakeAnthropic]:
    """The fake server of the protocol that the agent speaks to its model."""
    with serving_anthropic() if real_agent.server == "anthropic" else serving() as server:
        yield server
