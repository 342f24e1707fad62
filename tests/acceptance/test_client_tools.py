"""A front end that carries out tools itself, against a real agent: calls out, results in, whichever worker has them."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.supervisor import Supervisor, running_supervisor

pytestmark = pytest.mark.process

WEATHER = {"name": "weather", "description": "Look at the sky.", "parameters": {"type": "object"}}
ASK = 'TOOL:weather {"city": "Bonn"} TELL'


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    with running_supervisor(tmp_path_factory.mktemp("c"), "--max", "1") as running:
        yield running


@pytest.mark.parametrize("between", ["nothing", "another session", "kill -9 of the worker"])
def test_calls_go_out_and_their_results_come_back_to_the_model(supervisor: Supervisor, between: str) -> None:
    def prompt(text: str, **more: Any) -> dict[str, Any]:
        return dict(supervisor.call("prompt", session=between, text=text, **more))

    asked = prompt(ASK, client_tools=[WEATHER])
    assert (asked["stop_reason"], asked["reason"]) == ("tool_calls", "tool_calls")
    [call] = asked["calls"]
    assert (call["name"], call["input"]) == ("weather", {"city": "Bonn"})
    if between == "another session":
        assert "hello" in supervisor.prompt("bob", "hello")
    elif between.startswith("kill"):
        pid = supervisor.worker_of(between)["pid"]
        os.kill(pid, signal.SIGKILL)
        supervisor.wait_for_loss(pid)
    told = prompt("", tool_results=[{"tool_use_id": call["id"], "content": "grey over Bonn"}])
    assert (told["status"], told.get("text"), told.get("error")) == ("ok", "grey over Bonn", None)
    late = prompt("", tool_results=[{"tool_use_id": call["id"], "content": "again"}])
    assert (late["status"], late["error"]["data"]["worker_code"]) == ("error", "invalid_params")
    assert f"no call '{call['id']}' waits for a result" in late["error"]["message"]
