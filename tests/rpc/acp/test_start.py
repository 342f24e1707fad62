"""How an ACP agent is started: protocol version, login, the spare conversation, what it says of itself."""

import json
from typing import Any

import pytest

from rpc.acp.agent_record import AuthMethod, read_record
from tests.rpc.acp.agent import CWD, INITIALIZED, Agent

NEW = {"cwd": CWD, "mcpServers": []}
LOGINS = [
    {"id": "browser", "name": "Log in with a browser"},
    {"id": "key", "name": "API key", "description": "Run `demo login` first", "type": "agent"},
    {"id": "shell", "name": "Terminal", "type": "terminal", "args": ["--login"]},
]
ASKS = {**INITIALIZED, "authMethods": LOGINS}


def starting(**options: Any) -> Agent:
    return Agent(ready=False, agent="demo", **options)


def methods(agent: Agent) -> list[str]:
    return [line["method"] for line in agent.sent if "method" in line]


def failure(agent: Agent) -> str:
    assert [event for event, _ in agent.events] == ["start_failed"]
    message: str = agent.events[0][1]["message"]
    return message


def test_the_first_line_says_what_this_client_can_do_and_nothing_more() -> None:
    assert starting().sent == [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": 1,
                "clientInfo": {"name": "pool", "version": "9"},
                "clientCapabilities": {
                    "fs": {"readTextFile": False, "writeTextFile": False},
                    "terminal": False,
                    "session": {"configOptions": {"boolean": {}}, "notices": {}, "compaction": {}},
                },
            },
        }
    ]


def test_an_agent_is_ready_when_its_first_conversation_has_begun() -> None:
    servers = [{"name": "docs", "command": "/bin/docs", "args": [], "env": []}]
    agent = starting(mcp_servers=servers)
    agent.answer("initialize", INITIALIZED)
    assert agent.pop("session/new")["params"] == {**NEW, "mcpServers": servers}
    assert agent.reported == []
    agent.say({"jsonrpc": "2.0", "id": 2, "result": {"sessionId": "s1"}})
    assert agent.reported == ["ready demo 1.2"]


@pytest.mark.parametrize("version", [2, 0, "2025-08-22", True, None, [1]])
def test_an_agent_of_another_protocol_version_does_not_start(version: Any) -> None:
    agent = starting()
    agent.answer("initialize", {**INITIALIZED, "protocolVersion": version})
    assert failure(agent) == f"demo speaks version {version!r} of the Agent Client Protocol, this supervisor 1"
    assert methods(agent) == ["initialize"]


@pytest.mark.parametrize("method", ["initialize", "session/new"])
def test_an_agent_that_refuses_to_begin_does_not_start(method: str) -> None:
    agent = starting()
    if method == "session/new":
        agent.answer("initialize", INITIALIZED)
    agent.refuse(method, -32603, "Internal error", {"details": "no space left"})
    assert failure(agent) == "Internal error (-32603): no space left"


def test_a_conversation_without_an_id_is_none() -> None:
    agent = starting()
    agent.answer("initialize", INITIALIZED)
    agent.answer("session/new", {"sessionId": 7})
    assert failure(agent) == "the agent has answered session/new without a sessionId"


# --- login ---


@pytest.mark.parametrize(("code", "words"), [(-32000, "Please log in"), (-32603, "You are not Authenticated")])
def test_a_login_is_asked_for_once_where_one_was_chosen(code: int, words: str) -> None:
    agent = starting(auth_method="key")
    agent.answer("initialize", ASKS)
    agent.refuse("session/new", code, words)
    assert agent.pop("authenticate")["params"] == {"methodId": "key"}
    agent.say({"jsonrpc": "2.0", "id": 3, "result": {}})
    agent.answer("session/new", {"sessionId": "s1"})
    assert agent.reported == ["ready demo 1.2"]


def test_a_login_that_does_not_help_is_not_tried_again() -> None:
    agent = starting(auth_method="key")
    agent.answer("initialize", ASKS)
    agent.refuse("session/new", -32000, "Please log in")
    agent.answer("authenticate")
    agent.refuse("session/new", -32000, "Please log in")
    assert failure(agent).startswith("demo wants a login: ")
    assert methods(agent).count("authenticate") == 1


@pytest.mark.parametrize("chosen", [None, "shell", "unknown"])
def test_no_login_is_begun_that_was_not_chosen_or_needs_a_person(chosen: str | None) -> None:
    agent = starting(auth_method=chosen)
    agent.answer("initialize", ASKS)
    agent.refuse("session/new", -32000, "Authentication required")
    assert failure(agent) == (
        "demo wants a login: run it with --login in a terminal (Run `demo login` first), or set auth_method; "
        "offered: browser, key, shell; it said: Authentication required (-32000)"
    )
    assert "authenticate" not in methods(agent)


def test_a_login_that_fails_says_so() -> None:
    agent = starting(auth_method="key")
    agent.answer("initialize", ASKS)
    agent.refuse("session/new", -32000, "Please log in")
    agent.refuse("authenticate", -32603, "the key is wrong")
    assert failure(agent).endswith("it said: the key is wrong (-32603)")


def test_an_agent_that_offers_no_login_says_so() -> None:
    agent = starting()
    agent.answer("initialize", INITIALIZED)
    agent.refuse("session/new", -32000, "Please log in")
    assert "run its own login in a terminal, or set auth_method; offered: nothing" in failure(agent)


# --- what it says of itself ---


def test_what_the_agent_says_of_itself_can_be_asked_for() -> None:
    agent = Agent(ready=False)
    agent.answer("initialize", {**INITIALIZED, "_meta": {"steering": {"supported": True}}})
    modes = {"currentModeId": "a", "availableModes": [{"id": "a"}, {"id": "b"}]}
    agent.answer("session/new", {"sessionId": "s1", "modes": modes, "configOptions": [{"id": "effort"}]})
    agent.ask("get_capabilities")
    assert json.loads(bytes(agent.messages[-1].result)) == {
        "agent": "demo",
        "version": "1.2",
        "load": True,
        "resume": True,
        "close": True,
        "images": True,
        "steering": True,
        "options": ["effort"],
        "modes": ["a", "b"],
        "models": [],
        "answers_ping": None,
    }


def test_of_long_words_of_an_agent_no_more_is_kept_than_a_person_reads() -> None:
    word = "x" * 100_000
    method = {"id": word, "type": word, "description": word, "args": [word] * 100}
    found = read_record({"agentInfo": {"name": word, "version": word}, "authMethods": [method] * 100})
    assert (len(found.agent), len(found.version)) == (200, 200)
    assert found.auth_methods == (AuthMethod("x" * 200, "x" * 200, "x" * 2_000, ("x" * 200,) * 20),) * 20


@pytest.mark.parametrize(
    "abilities",
    [
        None,
        [],
        "yes",
        {"loadSession": "yes", "promptCapabilities": 3, "sessionCapabilities": ["close"]},
        {"loadSession": 1, "promptCapabilities": {"image": 1}, "sessionCapabilities": {"close": None, "resume": True}},
    ],
)
def test_abilities_of_a_wrong_type_are_absent(abilities: Any) -> None:
    agent = Agent(ready=False)
    broken = {"protocolVersion": 1, "agentCapabilities": abilities, "agentInfo": 3, "authMethods": {}, "_meta": []}
    agent.answer("initialize", broken)
    agent.answer("session/new", {"sessionId": "s1", "modes": 1, "models": [], "configOptions": {"id": "x"}})
    agent.ask("get_capabilities")
    found = json.loads(bytes(agent.messages[-1].result))
    assert not any(found[name] for name in found if name != "answers_ping")
