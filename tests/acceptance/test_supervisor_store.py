"""``pool run`` whose disk refuses every write for a while, and ``pool run`` over a store that is damaged."""

from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.acceptance.supervisor import running_supervisor

pytestmark = pytest.mark.process


def test_while_its_disk_refuses_every_write_prompts_are_answered_and_afterwards_nothing_is_missing(
    tmp_path: Path,
) -> None:
    """Nor after a kill; and a store that is damaged then is set aside."""
    keys = [f"r{number}" for number in range(4)]
    with running_supervisor(tmp_path, settings="[pool]\nmin = 2\nmax = 2\n") as supervisor:
        supervisor.wait_for_log("worker_ready", 2)  # programs that are there already can write
        process = psutil.Process(supervisor.pid)
        usual, most = process.rlimit(psutil.RLIMIT_FSIZE)
        process.rlimit(psutil.RLIMIT_FSIZE, (0, most))
        for number, key in enumerate(keys):
            supervisor.begin("ab"[number % 2], f"text-{number}", run=key)
            assert f"text-{number}" in supervisor.outcome(key)["text"]
        assert supervisor.status()["gateway"]["store"]["degraded"]
        process.rlimit(psutil.RLIMIT_FSIZE, (usual, most))
        supervisor.wait_for_log("store_recovered")
        (trouble,) = [event["data"] for event in supervisor.told("error")]
        assert (trouble["severity"], trouble["phase"]) == ("error", "system")
        assert "disk I/O error" in trouble["message"]
        assert (len(supervisor.told("store_degraded")), len(supervisor.logged("store_degraded"))) == (1, 1)
        assert supervisor.status()["gateway"]["store"]["lost"] == 0
        before = Counter(event["seq"] for kind in ("run:accepted", "done") for event in supervisor.told(kind))
        assert (len(before), set(before.values())) == (8, {1})
        supervisor.kill()
    with running_supervisor(tmp_path) as supervisor:
        assert [supervisor.outcome(key)["text"].count(f"text-{n}") for n, key in enumerate(keys)] == [1] * 4
        after = Counter(event["seq"] for kind in ("run:accepted", "done") for event in supervisor.told(kind))
        assert after == before
        assert '"text-1"' in supervisor.prompt("b", "RECALL")
    content = bytearray((tmp_path / "pool.db").read_bytes())
    content[200:] = b"\xff" * (len(content) - 200)
    (tmp_path / "pool.db").write_bytes(bytes(content))
    with running_supervisor(tmp_path) as supervisor:
        (line,) = supervisor.logged("store_set_aside")
        assert (line["level"], str(tmp_path / "pool.db.damaged-") in line["reason"]) == ("warning", True)
        assert "(turn 1)" in supervisor.prompt("a", "good morning")
    with running_supervisor(tmp_path) as supervisor:
        assert supervisor.logged("store_set_aside") == []
        assert "good morning" in supervisor.prompt("a", "RECALL")
    assert len(list(tmp_path.glob("pool.db.damaged-*Z"))) == 1
