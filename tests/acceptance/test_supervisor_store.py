"""``pool run`` whose disk refuses every write for a while, and ``pool run`` over a store that is damaged."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import trio

from tests.acceptance.line_client import connected
from tests.acceptance.listener import Listener
from tests.acceptance.supervisor import Supervisor, running_supervisor

pytestmark = pytest.mark.process

TWO_READY = '[pool]\nmin = 2\nmax = 2\nprewarm = [{ agent = "main", count = 2 }]\n'


@contextmanager
def refusing_disk(pid: int) -> Iterator[None]:
    """The process cannot write to any file; programs that it has started before can."""
    process = psutil.Process(pid)
    usual, most = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (0, most))
    try:
        yield
    finally:
        process.rlimit(psutil.RLIMIT_FSIZE, (usual, most))


def lines(supervisor: Supervisor, event: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in supervisor.log if f'"event":"{event}"' in line]


async def test_while_its_disk_refuses_every_write_prompts_are_answered_and_afterwards_nothing_is_missing(
    tmp_path: Path,
) -> None:
    settings = tmp_path / "pool.toml"
    settings.write_text(TWO_READY)
    with running_supervisor(tmp_path / "d", "--config", str(settings)) as supervisor:
        listener = Listener()
        async with connected(supervisor.socket, listener.hear, seconds=20) as client:
            await client.call("subscribe", since=0)
            await listener.wait_for("worker_ready", 2)
            with refusing_disk(supervisor.process.pid):
                for number in range(4):
                    await client.call("agent", session="ab"[number % 2], text=f"text-{number}", run=f"r{number}")
                    answer = await client.call("agent.wait", run_id=f"r{number}")
                    assert f"text-{number}" in answer["text"]
                assert (await client.call("status"))["gateway"]["store"]["degraded"]
            await listener.wait_for("store_recovered")
            await trio.to_thread.run_sync(supervisor.wait_for_log, "store_recovered")
            troubles = [event["data"] for event in listener.find("error")]
            assert [(trouble["severity"], trouble["phase"]) for trouble in troubles] == [("error", "system")]
            assert "disk I/O error" in troubles[0]["message"]
            assert (len(listener.find("store_degraded")), len(lines(supervisor, "store_degraded"))) == (1, 1)
            assert (await client.call("status"))["gateway"]["store"]["lost"] == 0
        supervisor.process.kill()
        supervisor.wait()
    told = Counter(event["seq"] for event in listener.events if not event["type"].startswith("text_"))
    assert set(told.values()) == {1}
    with running_supervisor(tmp_path / "d", "--config", str(settings)) as supervisor:
        again = Listener()
        async with connected(supervisor.socket, again.hear, seconds=20) as client:
            for number in range(4):
                outcome = await client.call("agent.wait", run_id=f"r{number}", timeout_ms=0)
                assert f"text-{number}" in outcome["text"]
            await client.call("subscribe", since=0)
            await again.wait_for("recovered")
            assert told.keys() <= {event["seq"] for event in again.events}
            assert '"text-1"' in (await client.call("prompt", session="b", text="RECALL"))["text"]


def _overwrite(path: Path) -> None:
    path.write_bytes(b"this is no database" * 100)


def _blot(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[200:] = b"\xff" * (len(content) - 200)
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [_overwrite, _blot])
def test_a_damaged_store_is_set_aside_and_the_supervisor_begins_anew(tmp_path: Path, damage: Any) -> None:
    with running_supervisor(tmp_path) as supervisor:
        supervisor.prompt("alice", "hello")
    damage(tmp_path / "pool.db")
    with running_supervisor(tmp_path) as supervisor:
        (line,) = lines(supervisor, "store_set_aside")
        assert str(tmp_path / "pool.db.damaged-") in line["reason"]
        assert line["level"] == "warning"
        assert "(turn 1)" in supervisor.prompt("alice", "good morning")
        assert "(turn 2" in supervisor.prompt("alice", "good morning")
    assert len(list(tmp_path.glob("pool.db.damaged-*Z"))) == 1
    with running_supervisor(tmp_path) as supervisor:
        assert lines(supervisor, "store_set_aside") == []
        assert "good morning" in supervisor.prompt("alice", "RECALL")
