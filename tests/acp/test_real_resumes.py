"""The real ACP agents behind a pool go on with conversations that were left in order, without a replay of them."""

import msgspec
import pytest

from fixtures.acp_real import RealAgent
from fixtures.fake_anthropic import FakeAnthropic
from fixtures.fake_openai import FakeOpenAI
from tests.acceptance.supervisor import Lives, Supervisor

pytestmark = [pytest.mark.real_acp, pytest.mark.process]


def strategies(supervisor: Supervisor) -> list[tuple[str, str]]:
    """How each session went on, in order."""
    return [(event["session"], event["data"]["strategy"]) for event in supervisor.told("agent_resumed")]


@pytest.mark.parametrize(
    ("real_agent", "after_end"),
    [
        ("claude-agent-acp", {"loaded", "resumed"}),  # the process that it has started may outlive it by a moment
        ("codex-acp", {"loaded"}),  # it ignores the end of its input, and is ended by a signal
        ("opencode", {"resumed"}),
    ],
    indirect=["real_agent"],
)
def test_a_conversation_that_was_closed_is_resumed_and_remembered(
    real_agent: RealAgent,
    model_server: FakeOpenAI | FakeAnthropic,
    after_end: set[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = tmp_path_factory.mktemp("a")
    start = real_agent.prepared(place / "home", f"http://127.0.0.1:{model_server.port}")
    (place / "work").mkdir()
    definition = {
        "dialect": "acp",
        "command": list(start.command),
        "env": start.env,
        "workspace": str(place / "work"),
    }
    lines = [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in definition.items() if name != "env"]
    env = [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in start.env.items()]
    settings = ["[pool]", "min = 0", "max = 1", "[agents.real]", *lines, "[agents.real.env]", *env]
    lives = Lives(place, "\n".join([*settings, ""]))
    try:
        running = lives.living()
        for session in ("one", "two"):
            assert f"I am {session}" in running.prompt(session, f"I am {session}", "-a", "real")
        assert "I am one" in running.prompt("one", "RECALL", "-a", "real")
        assert strategies(running) == [("one", "resumed")]
        lives.stop()
        running = lives.living()
        assert "I am one" in running.prompt("one", "RECALL", "-a", "real")
        first, second = strategies(running)
        assert (first, second[0]) == (("one", "resumed"), "one")
        assert second[1] in after_end
    finally:
        lives.stop()
