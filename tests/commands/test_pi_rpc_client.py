"""pi's own client class against ``pool attach`` and against the same release of pi: every call, the same results."""

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
from tests.real_pi import RealPi

pytestmark = [pytest.mark.process, pytest.mark.real_pi, pytest.mark.each_pi, pytest.mark.timeout(180)]

_OWN = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.-]+Z?|\b1[789]\d{11}\b"
)
"""Ids and times."""
_OF_A_RUN = {"timestamp", "responseId", "sessionFile", "path", "toolCallId"}
_ENTRY = re.compile(r"[0-9a-f]{8}")
"""The id of an entry of a conversation."""


def calls(pi: RealPi, cli: Path, directory: Path, *arguments: str, **env: str) -> list[dict[str, Any]]:
    client = pi.package / "dist" / "modes" / "rpc" / "rpc-client.js"
    directory.mkdir()
    done = subprocess.run(
        ["node", ROOT / "fixtures" / "pi_rpc_client.mjs", client, cli, directory, *arguments],
        env={**os.environ, "PATH": pi.path, **env},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


class Comparable:
    """Without what is different each time: ids, times, places. Ids of entries are numbered as they come."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._entries: dict[str, str] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: "*" if _differs(name, part) else self(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self(part) for part in value]
        if not isinstance(value, str):
            return value
        if _ENTRY.fullmatch(value):
            return self._entries.setdefault(value, f"entry {len(self._entries)}")
        return _OWN.sub("*", value.replace(self._directory, "*"))


def _differs(name: str, value: Any) -> bool:
    return name in _OF_A_RUN or (name == "id" and "call" in str(value))


def test_every_call_has_the_same_result(
    pi_supervisor: Supervisor, pi_homes: Callable[[], Path], real_pi: RealPi, tmp_path: Path
) -> None:
    direct = calls(real_pi, real_pi.script, tmp_path / "d", "--offline", PI_CODING_AGENT_DIR=str(pi_homes()))
    attached = calls(
        real_pi,
        ROOT / "fixtures" / "attach_cli.mjs",
        tmp_path / "a",
        "--agent",
        "pi",
        POOL_COMMAND=POOL[0],
        POOL_SOCKET=str(pi_supervisor.socket),
    )
    assert direct[-1] == {"name": "never called", "result": []}
    comparable_direct, comparable_attached = Comparable(tmp_path / "d"), Comparable(tmp_path / "a")
    for number, (theirs, ours) in enumerate(zip(direct, attached, strict=True)):
        assert comparable_attached(ours) == comparable_direct(theirs), number
