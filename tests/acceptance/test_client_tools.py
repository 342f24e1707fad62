"""A front end that carries out tools itself, against a real agent: calls out, results in, whichever worker has them."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doors.control.client import ControlClient
from errors import UsageError
from tests.acceptance.supervisor import Supervisor, running_supervisor

pytestmark = pytest.mark.process

WEATHER = {"name": "weather", "description": "Look at the sky.", "parameters": {"type": "object"}}
ASK = 'TOOL:weather {"city": "Bonn"} TELL'


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    config = tmp_path / "pool.toml"
    config.write_text('[agents.p]\ndialect = "pi"\ncommand = ["/nowhere/pi"]\n')
    with running_supervisor(tmp_path / "data", "--config", str(config), "--max", "1") as running:
        yield running


@pytest.fixture
def client(supervisor: Supervisor) -> Iterator[ControlClient]:
    with ControlClient(supervisor.socket) as connected:
        yield connected


def prompt(client: ControlClient, text: str, session: str = "alice", **more: Any) -> dict[str, Any]:
    stream = client.stream("prompt", {"session": session, "text": text, **more}, timeout=20)
    for _ in stream:
        pass
    outcome: dict[str, Any] = stream.result
    return outcome


@pytest.mark.parametrize("between", ["nothing", "another session", "kill -9 of the worker"])
def test_calls_go_out_and_their_results_come_back_to_the_model(
    supervisor: Supervisor, client: ControlClient, between: str
) -> None:
    asked = prompt(client, ASK, client_tools=[WEATHER])
    assert (asked["stop_reason"], asked["reason"]) == ("tool_calls", "tool_calls")
    [call] = asked["calls"]
    assert (call["name"], call["input"]) == ("weather", {"city": "Bonn"})
    if between == "another session":
        assert "hello" in supervisor.prompt("bob", "hello")
    elif between.startswith("kill"):
        [worker] = supervisor.status()["workers"]
        os.kill(worker["pid"], signal.SIGKILL)
        supervisor.wait_for_log("worker_exited")
    told = prompt(client, "", tool_results=[{"tool_use_id": call["id"], "content": "grey over Bonn"}])
    assert (told["status"], told.get("text"), told.get("error")) == ("ok", "grey over Bonn", None)
    late = prompt(client, "", tool_results=[{"tool_use_id": call["id"], "content": "again"}])
    assert (late["status"], late["error"]["data"]["worker_code"]) == ("error", "invalid_params")
    assert f"no call '{call['id']}' waits for a result" in late["error"]["message"]


def test_a_call_that_nobody_answers_does_not_hold_the_session(client: ControlClient) -> None:
    prompt(client, ASK, client_tools=[WEATHER])
    assert prompt(client, "TELL")["text"] == "The client gave no result for the call of weather."


def test_an_agent_that_speaks_pi_is_refused_at_once(client: ControlClient) -> None:
    with pytest.raises(UsageError, match="takes no tools"):
        prompt(client, ASK, agent="p", client_tools=[WEATHER])
    assert client.call("status")["counters"]["spawned"] == 1  # the one of the default agent that is kept warm
