"""The fake ACP agent, good, is an agent for others too: the protocol's own schema, and a real client."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from fixtures.acp_real import ACPX, SDK, private_environment
from tests.acp.client import Client, Json, select_option
from tests.acp.conftest import unavailable
from tests.house import ROOT

pytestmark = [pytest.mark.real_acp, pytest.mark.process]

PROGRAM = (sys.executable, str(ROOT / "stress" / "acp_agent"))
EVERYTHING = (
    "THINK:a;CHUNKS=2;TOOL:read;FAIL:bash;OPEN:x;UPDATE:y;DIFF:/tmp/a;ASK:bash;ASKTWICE:z;PLAN;USAGE;TITLE:t;COMMANDS;"
    "NOTICE:n;COMPACT;MODE:auto;IMAGE;RESOURCE:file:///a"
)


@pytest.fixture
def wrong() -> Any:
    """What the schema says against a value of a definition."""
    path = SDK / "schema" / "v1" / "schema.json"
    if not path.exists():
        unavailable(f"{path} does not exist")
    definitions = json.loads(path.read_text())["$defs"]

    def errors(name: str, value: object) -> list[str]:
        validator = jsonschema_rs.validator_for({"$ref": f"#/$defs/{name}", "$defs": definitions})
        return [f"{name}: {error}" for error in validator.iter_errors(value)]

    return errors


def test_all_that_it_writes_is_valid(wrong: Any, tmp_path: Path) -> None:
    with Client([*PROGRAM, "--store", str(tmp_path / "store")]) as client:
        client.decide = select_option("allow_once")
        values: list[tuple[str, Json]] = [("InitializeResponse", client.start())]
        session = client.new(tmp_path)
        values.append(("NewSessionResponse", client.answers[-1]["result"]))
        values.append(("PromptResponse", client.prompt(session, EVERYTHING)["result"]))
        values.append(("Error", client.prompt(session, "ERROR=-32603:no:why")["error"]))
        there = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
        for name, method, params in (
            ("SetSessionModeResponse", "session/set_mode", {"modeId": "ask"}),
            ("SetSessionConfigOptionResponse", "session/set_config_option", {"configId": "verbose", "value": True}),
            ("ListSessionsResponse", "session/list", {}),
            ("CloseSessionResponse", "session/close", {}),
            ("LoadSessionResponse", "session/load", there),
            ("ResumeSessionResponse", "session/resume", there),
        ):
            values.append((name, client.request(method, **{"sessionId": session, **params})["result"]))
        values.extend(("SessionUpdate", update) for update in client.updates)
        values.extend(("RequestPermissionRequest", message["params"]) for message in client.asked)
    assert [error for name, value in values for error in wrong(name, value)] == []
    assert client.others == []


def test_acpx_runs_a_turn_of_it(tmp_path: Path) -> None:
    if not ACPX.exists():
        unavailable(f"{ACPX} does not exist")
    agent = " ".join([*PROGRAM, "--store", str(tmp_path / "store")])
    command = [str(ACPX), "--approve-all", "--agent", agent, "exec", "ASK:bash;ECHO:hello acpx"]
    env = private_environment(tmp_path / "home")
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "bash allowed: allow_once" in done.stdout
    assert "hello acpx" in done.stdout
