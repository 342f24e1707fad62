"""``pool run`` on the machine of Ray's head, and sessions that talk to it whatever dies meanwhile."""

import json
import os
import re
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import trio

from tests.acceptance.line_client import LineClient, Lost, Refused, connected
from tests.acceptance.supervisor import LONGEST_YIELD_MS, Supervisor, tool
from tests.cluster.ray_cluster import RAY_VENV, SLOTS, RayCluster

_RECALL_EVERY, _LONG_EVERY = 5, 10  # turns, and sessions whose turns take long
LONG_TURN = 10  # seconds, more than a lost node has
_NONCE = re.compile(r"\bn\d+x\d+x\b")


def settings_of(cluster: RayCluster, **more: str) -> str:
    """A settings file for a supervisor beside the head."""
    ray = {"address": cluster.address, "python": str(RAY_VENV / "python"), **more}
    lines = [f"{name} = {json.dumps(value)}" for name, value in ray.items()]
    return f"""
[pool]
min = 0
max = 24
[agents.main]
group = "here"
[agents.main.env]
CANARY = "canary-of-an-agent"
[cluster]
listen = "{cluster.head.address}:0"
local_slots = 0
lease = "6s"
silence = "3s"
fence_margin = "2s"
[cluster.groups.here]
labels = {{ site = "here" }}
[cluster.ray]
node_command = ["{RAY_VENV / "pool"}", "node"]
{chr(10).join(lines)}
reserve = {{ GPU = {SLOTS} }}
scale = true
scale_after = "2s"
"""


def is_long(session: str) -> bool:
    """Whether a session's turns take longer than the lease of a node."""
    return int(session[1:]) % _LONG_EVERY == 0


class HeadSupervisor(Supervisor):
    """A ``pool run`` among the head's processes."""

    def __init__(self, cluster: RayCluster, settings: str, env: dict[str, str] | None = None) -> None:
        file = cluster.directory / "pool.toml"
        file.write_text(settings)
        self._head = cluster.head
        pairs = [f"{name}={value}" for name, value in {**cluster.env, **(env or {})}.items()]
        wrapper = [*cluster.head.enter, "env", "-i", *pairs]
        super().__init__(cluster.data_dir, "--config", str(file), wrapper=wrapper)

    def signal(self, number: int) -> None:
        for pid in self._head.pids_of("-m cli run"):
            os.kill(pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> None:
        """End it in good order."""
        self.signal(signal.SIGTERM)
        assert self.wait(60) == 0, self.log_tail()

    def close(self) -> None:
        self.signal(signal.SIGKILL)
        super().close()

    def wait_for(self, event: str, node: str, *, since: int = 0) -> None:
        """Until this has been logged of a node, after the first ``since`` lines of such events."""
        while node not in [line["node"] for line in self.logged(event)[since:]]:
            self.wait_for_log(event, len(self.logged(event)) + 1)


class Talk:
    """Sessions that go on talking, one message after the other, and what they were promised.

    Each turn holds a lock of its session while its tool runs, so that two workers of one session meet.
    """

    def __init__(self, cluster: RayCluster, sessions: int) -> None:
        self.kept: dict[str, list[str]] = {f"s{number}": [] for number in range(sessions)}
        """What each session was acknowledged, in its order."""
        self.runs: list[str] = []
        self.failures: list[tuple[str, str]] = []
        """Code and text of each turn that failed."""
        self.problems: list[str] = []
        self._socket = cluster.data_dir / "control.sock"
        self._locks = cluster.directory / "locks"
        self._locks.mkdir()
        self._client: LineClient | None = None
        self._news = trio.Event()
        self._is_over = False

    @property
    def answers(self) -> int:
        """Turns that went well."""
        return sum(map(len, self.kept.values()))

    async def wait_answers(self, more: int) -> None:
        """Until a number of further turns have gone well."""
        wanted = self.answers + more
        while self.answers < wanted:
            await self._news.wait()

    async def connect(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Talk over this connection until it ends."""
        async with connected(self._socket, lambda _event: None) as client:
            self._client = client
            self._tell()
            task_status.started()
            await client.ended.wait()

    async def run(self) -> None:
        """Talk until ``finish``."""
        async with trio.open_nursery() as nursery:
            for session in self.kept:
                nursery.start_soon(self._talk, session)

    def finish(self) -> None:
        """Let each session say its last, and recall everything."""
        self._is_over = True

    async def _talk(self, session: str) -> None:
        turn = 0
        while not self._is_over:
            turn += 1
            await (self._recall(session, turn) if turn % _RECALL_EVERY == 0 else self._say(session, turn))
        before = len(self.failures)
        await self._recall(session, turn + 1)
        if len(self.failures) > before:
            self.problems.append(f"{session} could not recall at the end: {self.failures[-1]}")

    async def _say(self, session: str, turn: int) -> None:
        nonce = f"n{session[1:]}x{turn}x"
        seconds = LONG_TURN if is_long(session) else 0.05
        lock, overlaps = self._locks / session, self._locks / "overlaps"
        command = f"flock -n {lock} sleep {seconds} || echo {session} {turn} >>{overlaps}"
        if await self._turn(session, nonce, f"{nonce} {tool(command, yield_ms=LONGEST_YIELD_MS)}") is not None:
            self.kept[session].append(nonce)
            self._tell()

    async def _recall(self, session: str, turn: int) -> None:
        text = await self._turn(session, f"r{session[1:]}x{turn}x", "RECALL")
        if text is None:
            return
        heard = _NONCE.findall(text)
        doubled = [nonce for nonce, count in Counter(heard).items() if count > 1]
        strangers = [nonce for nonce in heard if not nonce.startswith(f"n{session[1:]}x")]
        forgotten = [nonce for nonce in self.kept[session] if nonce not in heard]
        if doubled or strangers or forgotten:
            self.problems.append(f"{session}: twice {doubled}, of others {strangers}, forgotten {forgotten}")

    async def _turn(self, session: str, key: str, text: str) -> str | None:
        """The answer to one message; None: its turn failed, which is noted."""
        self.runs.append(key)
        try:
            await self._ask("agent", run=key, session=session, text=text)
            outcome = await self._ask("agent.wait", run_id=key, session=session, timeout_ms=300_000)
        except Refused as exc:
            self.problems.append(f"{key} was refused: {exc}")
            return None
        if outcome["status"] == "ok":
            return str(outcome["text"])
        self.failures.append((outcome["error"]["code"], outcome["error"]["message"]))
        return None

    async def _ask(self, method: str, **params: Any) -> Any:
        """The answer of whichever supervisor lives to give it."""
        lost: LineClient | None = None
        while True:
            while self._client is lost:
                await self._news.wait()
            lost = self._client
            assert lost is not None
            try:
                return await lost.call(method, **params)
            except Lost:
                continue

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def audit(self, data_dir: Path) -> list[str]:
        """All that is wrong, when the supervisor has ended."""
        overlaps = self._locks / "overlaps"
        met = overlaps.read_text().splitlines() if overlaps.exists() else []
        with closing(sqlite3.connect(data_dir / "pool.db")) as connection:
            done = Counter(run for (run,) in connection.execute("SELECT run_id FROM events WHERE type = 'done'"))
        wrong = {key: done[key] for key in self.runs if done[key] != 1}
        return [
            *self.problems,
            *(f"two workers at once in {turn}" for turn in met),
            *(f"{key} has ended {count} times" for key, count in wrong.items()),
        ]
