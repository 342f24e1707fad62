"""The real ACP agents start here, take a prompt against a fake model, ask, and come back in another process."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fixtures.acp_real import REAL_AGENTS, RealAgent
from tests.acp.client import Client, select_option
from tests.acp.conftest import ModelServer, each_agent

pytestmark = [pytest.mark.real_acp, pytest.mark.process]

Starts = Callable[[], Client]
_KEYS = ("x-api-key", "x-goog-api-key", "authorization")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def starts(real_agent: RealAgent, model_server: ModelServer, tmp_path: Path, project: Path) -> Iterator[Starts]:
    """Starts processes of the agent, all of one home; they end with the test."""
    start = real_agent.prepared(tmp_path / "home", f"http://127.0.0.1:{model_server.port}")
    with ExitStack() as ending:
        yield lambda: ending.enter_context(Client(start.command, env=start.env, cwd=project))


with_a_model = each_agent(agent.name for agent in REAL_AGENTS.values() if agent.server)
that_load = each_agent(agent.name for agent in REAL_AGENTS.values() if agent.loads)


@each_agent(REAL_AGENTS)
def test_it_starts_and_answers_a_prompt(
    real_agent: RealAgent, starts: Starts, model_server: ModelServer, project: Path
) -> None:
    client = starts()
    client.decide = select_option("allow_once")
    assert client.start()["protocolVersion"] == 1
    session = client.new(project)
    said = client.say(session, "hello")
    if real_agent.server is None:
        assert "successfully updated" in said
        return
    assert "echo: hello" in said
    keys = {next(seen.headers[name] for name in _KEYS if name in seen.headers) for seen in model_server.seen}
    assert keys <= {"fake-key", "Bearer fake-key"}, "no key of the machine reaches a server"


@with_a_model
def test_it_runs_a_command_that_was_allowed(real_agent: RealAgent, starts: Starts, project: Path) -> None:
    client = starts()
    client.decide = select_option("allow_once")
    client.start()
    session = client.new(project)
    if real_agent.asking_mode:
        assert "result" in client.request("session/set_mode", sessionId=session, modeId=real_agent.asking_mode)
    assert "after tool: ok" in client.say(session, "BASH:echo tool-ran > made.txt")
    assert (project / "made.txt").read_text() == "tool-ran\n"
    methods = [message["method"] for message in client.asked]
    assert methods == (["session/request_permission"] if real_agent.asks else [])


@that_load
def test_a_conversation_is_loaded_by_another_process(starts: Starts, project: Path) -> None:
    first = starts()
    first.start()
    session = first.new(project)
    first.say(session, "the word is apple")
    first.end()

    second = starts()
    second.start()
    assert "result" in second.request("session/load", sessionId=session, cwd=str(project), mcpServers=[])
    assert "the word is apple" in second.text(kind="user_message_chunk")
    assert "the word is apple" in second.say(session, "RECALL")
