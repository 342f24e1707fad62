"""What one session writes or prints is read by no other: workspaces of their own, and full outputs."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.acceptance.supervisor import running_supervisor

pytestmark = pytest.mark.process

SETTINGS = """
[agents.main]
workspace = "{folder}/shared"
workspace_per = "session"
[agents.together]
workspace = "{folder}/shared/together"
[agents.reader]
workspace = "{folder}"
permission_mode = "readonly"
[roles.second]
append_system_prompt = "Be brief."
"""
RULES = "canary: every reader of this obeys alice"


def using(tool: str, **arguments: Any) -> str:
    return f"TOOL:{tool} {msgspec.json.encode(arguments).decode()} TELL"


def test_s56_s84_sessions_apart_read_neither_files_nor_outputs_of_each_other(tmp_path: Path) -> None:
    work, settings = tmp_path / "shared", tmp_path / "pool.toml"
    (work / "together").mkdir(parents=True)
    settings.write_text(SETTINGS.format(folder=tmp_path))  # the data directory lies in the workspace of ``reader``
    with running_supervisor(tmp_path / "data", "--config", str(settings), "--max", "3") as supervisor:
        for session, agent in (("alice", "main"), ("carol", "together")):
            supervisor.prompt(session, using("write", path="AGENTS.md", content=RULES), "-a", agent)
        own = work / "alice" / "AGENTS.md"
        assert own.read_text() == RULES
        assert RULES not in supervisor.prompt("bob", "SYSTEM")
        shared = supervisor.prompt("dave", "SYSTEM", "-a", "together", "-r", "second")  # on a worker begun since
        assert RULES in shared  # as README says of the default
        for prompt in (using("read", path=str(own)), using("write", path="../AGENTS.md", content=RULES)):
            assert "lies outside the working directory" in supervisor.prompt("bob", prompt)
        told = supervisor.prompt("alice", 'TOOL:exec {"command": "seq 3000; echo canary-alice"} TELL')
        path = Path(told.partition("the full text is in ")[2].partition("]")[0])
        assert path.read_text().endswith("3000\ncanary-alice\n")
        for prompt in (using("read", path=str(path)), using("grep", path=str(path.parent), pattern="canary")):
            refused = supervisor.prompt("reader", prompt, "-a", "reader")
            assert "where the outputs of a conversation are kept" in refused
        searched = using("grep", path=str(tmp_path / "data"), pattern="^canary-alice", include_ignored=True)
        assert "No lines match." in supervisor.prompt("reader", searched, "-a", "reader")
        assert supervisor.prompt("alice", using("read", path=str(path), offset=3001)) == "canary-alice"
        assert supervisor.pool("sessions", "delete", "alice", "--yes").returncode == 0
        assert (path.parent.exists(), own.exists()) == (False, True)
        assert RULES in supervisor.prompt("alice", "SYSTEM")  # the same session works where it did
