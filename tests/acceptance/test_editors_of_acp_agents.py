"""An editor by ``pool acp`` whose session is served by agents of the same protocol: what passes through the pool."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.supervisor import Lives
from tests.acceptance.test_acp_workers import definition
from tests.commands.editor import Editor

pytestmark = pytest.mark.process

SECRET = "canary-of-the-editor"
SERVER = {"name": "files", "command": "mcp-files", "args": [], "env": [{"name": "API_KEY", "value": SECRET}]}


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    (tmp_path / "project").mkdir()
    lives = Lives(tmp_path, "[pool]\nmin = 0\nmax = 1\n" + definition("fix", tmp_path))
    yield lives
    lives.stop()


def state(editor: Editor, session: str) -> dict[str, Any]:
    """What the agent's process knows of its conversation."""
    editor.seen.clear()
    assert editor.prompt(session, "STATE") == "end_turn"
    return dict(json.loads(editor.said(session)))


def test_mcp_servers_of_an_editor_reach_each_process_of_its_agent_and_no_file(lives: Lives, tmp_path: Path) -> None:
    with Editor("--agent", "fix", POOL_SOCKET=str(lives.data_dir / "control.sock")) as editor:
        first = lives.living()
        place = {"cwd": str(tmp_path / "project"), "mcpServers": [SERVER]}
        opened = editor.request("session/new", **place)
        session = opened["sessionId"]
        assert "_meta" not in opened
        begun = state(editor, session)
        assert begun["mcp"] == ["files"]
        assert first.prompt("another", "STATE", "-a", "fix").find('"mcp": []') > 0, "of another session"
        os.kill(first.worker_of("another")["pid"], signal.SIGKILL)
        loaded = state(editor, session)
        assert (loaded["mcp"], loaded["pid"] != begun["pid"]) == (["files"], True)
        shown = [first.pool("sessions", "list", "--json").stdout, first.call("sessions.get", session=session)]
        first.kill()
        lives.living()
        assert state(editor, session)["mcp"] == ["files"], "declared again by the editor's own process"
        other = editor.request("session/load", sessionId=session, **{**place, "mcpServers": []})
        assert "_meta" not in other
        assert state(editor, session)["mcp"] == []
    assert SECRET not in str(shown)
    files = [path for path in lives.data_dir.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_an_editor_learns_the_agents_models_and_the_size_of_its_context(lives: Lives, tmp_path: Path) -> None:
    with Editor("--agent", "fix", POOL_SOCKET=str(lives.data_dir / "control.sock")) as editor:
        lives.living()
        session = editor.open(tmp_path / "project")
        assert editor.prompt(session, "USAGE") == "end_turn"
        updates = [line["params"]["update"] for line in editor.seen if line.get("method") == "session/update"]
        told = {update["sessionUpdate"]: update for update in updates}
        assert (told["usage_update"]["used"], told["usage_update"]["size"]) == (1800, 200_000)
        models, levels = (told.get("config_option_update") or editor.update("config_option_update"))["configOptions"]
        assert [each["value"] for each in models["options"]] == ["default", "fake-1", "fake-2", "fake-big"]
        assert [each["value"] for each in levels["options"]] == ["default", "low", "medium", "high"]
        chosen = {"sessionId": session, "configId": "model"}
        assert editor.refused("session/set_config_option", **chosen, value="gpt") == (
            -32602,
            "params.value: 'gpt' is none of default, fake-1, fake-2, fake-big",
        )
        editor.request("session/set_config_option", **chosen, value="fake-big")
        assert state(editor, session)["model"] == "fake-big"
