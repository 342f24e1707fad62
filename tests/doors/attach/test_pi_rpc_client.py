"""pi's own client class against ``pool attach`` and against pi itself: every call it offers, the same results."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.supervisor import POOL, Supervisor
from tests.house import ROOT

pytestmark = [pytest.mark.process, pytest.mark.real_pi, pytest.mark.timeout(90)]

_OWN = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.-]+Z?|\b1[789]\d{11}\b"
)
"""Ids and times."""
_OF_A_RUN = {"timestamp", "entryId", "responseId", "sessionFile", "path", "firstKeptEntryId", "toolCallId"}


def calls(package: Path, cli: Path, directory: Path, *arguments: str, **env: str) -> list[dict[str, Any]]:
    client = package / "dist" / "modes" / "rpc" / "rpc-client.js"
    directory.mkdir()
    done = subprocess.run(
        ["node", ROOT / "fixtures" / "pi_rpc_client.mjs", client, cli, directory, *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def comparable(value: Any, directory: Path) -> Any:
    """Without what is different each time: ids, times, places."""
    if isinstance(value, dict):
        return {
            name: "*" if name in _OF_A_RUN or (name == "id" and "call" in str(part)) else comparable(part, directory)
            for name, part in value.items()
        }
    if isinstance(value, list):
        return [comparable(part, directory) for part in value]
    return _OWN.sub("*", value.replace(str(directory), "*")) if isinstance(value, str) else value


def test_every_call_has_the_same_result(
    pi_supervisor: Supervisor, pi_homes: Callable[[], Path], pi_command: str, tmp_path: Path
) -> None:
    package = Path(pi_command).resolve().parents[1]
    direct = calls(
        package, package / "dist" / "cli.js", tmp_path / "d", "--offline", PI_CODING_AGENT_DIR=str(pi_homes())
    )
    attached = calls(
        package,
        ROOT / "fixtures" / "attach_cli.mjs",
        tmp_path / "a",
        "--agent",
        "pi",
        POOL_COMMAND=POOL[0],
        POOL_SOCKET=str(pi_supervisor.socket),
    )
    assert direct[-1] == {"name": "never called", "result": []}
    for number, (theirs, ours) in enumerate(zip(direct, attached, strict=True)):
        assert comparable(ours, tmp_path / "a") == comparable(theirs, tmp_path / "d"), number
