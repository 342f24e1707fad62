"""Going on with conversations: what the tests of it say to an agent, and look at."""

import json
from typing import Any

from tests.rpc.acp.agent import CWD, Agent, piece

PLACE = {"cwd": CWD, "mcpServers": []}
TAIL = "user:remember apple\nassistant:I do\nuser:and pear\nassistant:yes"
FACTS: dict[str, Any] = {"turns": 2, "last_user_text": "and pear", "tail": TAIL}


def methods(agent: Agent) -> list[str]:
    """Of all that was sent, in order."""
    return [line["method"] for line in agent.sent if "method" in line]


def loading(**facts: Any) -> Agent:
    """An agent that is asked to load ``old``."""
    agent = Agent()
    agent.switch("old", **{**FACTS, **facts})
    agent.answer("session/close")
    return agent


def strategy(agent: Agent) -> dict[str, Any]:
    """How the agent went on."""
    [found] = [data for event, data in agent.events if event == "agent_resumed"]
    [answer] = [json.loads(bytes(message.result)) for message in agent.messages if b"strategy" in bytes(message.result)]
    said: dict[str, Any] = {name: found[name] for name in ("strategy", "cause", "error") if name in found}
    assert {name: answer[name] for name in said} == said  # in the answer too: no turn runs, in which an event is heard
    return said


def end_of_turn(agent: Agent) -> dict[str, Any]:
    """The result of the running turn, which ends."""
    agent.end()
    result: dict[str, Any] = json.loads(bytes(agent.messages[-1].result))
    return result


def turn(agent: Agent, text: str = "hi") -> None:
    """A whole turn."""
    agent.prompt(text)
    agent.say(piece("ok", session=agent.pop("session/prompt")["params"]["sessionId"]))
    agent.say({"jsonrpc": "2.0", "id": agent.sent[-1]["id"], "result": {"stopReason": "end_turn"}})
