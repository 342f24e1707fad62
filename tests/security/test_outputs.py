"""What tools of one session print is read by no other session's file tools, and goes with its session."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.acceptance.supervisor import running_supervisor

pytestmark = pytest.mark.process

SETTINGS = """
[agents.main]
workspace = "{workspace}"

[agents.reader]
workspace = "{workspace}"
permission_mode = "readonly"
"""


def using(tool: str, **arguments: Any) -> str:
    return f"TOOL:{tool} {msgspec.json.encode(arguments).decode()} TELL"


def test_s56_full_outputs_are_open_to_the_tools_of_their_own_session_only_and_end_with_it(tmp_path: Path) -> None:
    settings = tmp_path / "pool.toml"
    settings.write_text(SETTINGS.format(workspace=tmp_path))  # the data directory lies in it
    with running_supervisor(tmp_path / "data", "--config", str(settings), "--max", "1") as supervisor:
        told = supervisor.prompt("alice", 'TOOL:exec {"command": "seq 3000; echo canary-alice"} TELL')
        path = Path(told.partition("the full text is in ")[2].partition("]")[0])
        assert path.read_text().endswith("3000\ncanary-alice\n")
        for prompt in (
            using("read", path=str(path)),
            using("ls", path=str(path.parent)),
            using("find", path=str(path.parent), pattern="*"),
            using("grep", path=str(path.parent), pattern="canary"),
        ):
            assert "where the outputs of a conversation are kept" in supervisor.prompt("bob", prompt, "-a", "reader")
        searched = using("grep", path=str(tmp_path / "data"), pattern="^canary-alice", include_ignored=True)
        assert "No lines match." in supervisor.prompt("bob", searched, "-a", "reader")
        read = supervisor.prompt("alice", using("read", path=str(path), offset=3001))  # the worker has been bob's
        assert read == "canary-alice"
        assert supervisor.pool("sessions", "delete", "alice", "--yes").returncode == 0
        assert not path.parent.exists()
