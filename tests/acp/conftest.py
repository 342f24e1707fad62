"""Real ACP agents, and the fake model servers that they use."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NoReturn

import pytest

from fixtures.acp_real import REAL_AGENTS, RealAgent
from fixtures.fake_anthropic import FakeAnthropic, serving_anthropic
from fixtures.fake_gemini import FakeGemini, serving_gemini
from fixtures.fake_openai import FakeOpenAI, serving

ModelServer = FakeOpenAI | FakeAnthropic | FakeGemini


def unavailable(why: str) -> NoReturn:
    """At home a test that cannot run is skipped, and says so; in CI it must run."""
    message = f"{why}; `make acp-agents` installs the real ACP agents"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def installed(name: str) -> RealAgent:
    agent = REAL_AGENTS[name]
    if not agent.executable.exists():
        unavailable(f"{agent.executable} does not exist")
    return agent


@contextmanager
def serving_model(agent: RealAgent) -> Iterator[ModelServer]:
    """The fake server of the protocol that the agent speaks to its model."""
    servers: dict[str | None, Callable[[], AbstractContextManager[ModelServer]]]
    servers = {"anthropic": serving_anthropic, "gemini": serving_gemini}
    with servers.get(agent.server, serving)() as server:
        yield server


@pytest.fixture
def real_agent(request: pytest.FixtureRequest) -> RealAgent:
    """One that is named by the test's parameters, installed."""
    return installed(request.param)


@pytest.fixture
def model_server(real_agent: RealAgent) -> Iterator[ModelServer]:
    with serving_model(real_agent) as server:
        yield server


def each_agent(names: Iterable[str], group: str | None = None) -> pytest.MarkDecorator:
    """The test runs with each of these agents: one after the other for one agent, or for those of a ``group``."""
    agents = [pytest.param(name, marks=pytest.mark.xdist_group(group or name)) for name in names]
    return pytest.mark.parametrize("real_agent", agents, indirect=True)
