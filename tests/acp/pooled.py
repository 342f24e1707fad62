"""A real ACP agent behind a real ``pool run``: its settings, and what tests ask, kill and look for."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil

from fixtures.acp_real import RealAgent
from tests.acceptance.supervisor import Supervisor, marked_processes
from tests.acp.conftest import ModelServer

GONE_SECONDS = 2.0
"""The time in which all of an agent ends after ``kill -9`` of its supervisor."""
_HANG_SECONDS = 60.0


def settings(most: int, *agents: str) -> str:
    """A ``pool.toml`` of these definitions with ``most`` workers; no deadline depends on how busy the machine is."""
    lines = [
        f'[pool]\nmin = 0\nmax = {most}\nworker_memory = "1GiB"\nstart_timeout = "150s"\nwaiting_timeout = "150s"',
        '[rpc]\nabort_grace = "30s"\nrequest_timeout = "150s"',
    ]
    return "\n".join([*lines, *agents])


def definition(agent: RealAgent, place: Path, port: int, permission_mode: str = "approval") -> str:
    """The agent's part of ``pool.toml``: its home is below ``place``, it works in ``place/project``."""
    start = agent.prepared(place / f"home-{agent.name}", f"http://127.0.0.1:{port}")
    (place / "project").mkdir(exist_ok=True)
    lines = [
        f"[agents.{agent.name}]",
        'dialect = "acp"',
        f"command = {_toml(list(start.command))}",
        f"workspace = {_toml(str(place / 'project'))}",
        f"permission_mode = {_toml(permission_mode)}",
        *([f"mode = {_toml(agent.asking_mode)}"] if agent.asking_mode else []),
        f"[agents.{agent.name}.env]",
        *(f"{name} = {_toml(value)}" for name, value in start.env.items()),
    ]
    return "\n".join([*lines, ""])


def _toml(value: object) -> str:
    return msgspec.json.encode(value).decode()


class Pooled(NamedTuple):
    """One agent of a running supervisor, and the model that it uses."""

    supervisor: Supervisor
    agent: RealAgent
    model: ModelServer
    place: Path

    def begin(self, session: str, text: str) -> str:
        return self.supervisor.begin(session, text, agent=self.agent.name)

    def outcome(self, run: str) -> dict[str, Any]:
        """How the run ends; an agent without a model asks in each turn, and is allowed what it wants."""
        if self.agent.server is None:
            self.decide("approve", run)
        return self.supervisor.outcome(run)

    def ask(self, session: str, text: str) -> str:
        """The answer to a prompt; it must succeed."""
        outcome = self.outcome(self.begin(session, text))
        assert outcome["status"] == "ok", outcome
        return str(outcome["text"])

    def decide(self, verb: str, run: str) -> dict[str, Any]:
        """Answer the run's question, once it asks, from another terminal; the call that it is about."""
        with self.supervisor.following("permission_required") as events:
            event = next(event for event in events if event["run_id"] == run)
        call = dict(event["data"]["call"])
        done = self.supervisor.pool(verb, call["id"], "-s", event["session"])
        assert done.returncode == 0, done.stderr
        return call

    def hang(self, session: str, text: str) -> str:
        """Begin a run, which is in its turn and hears nothing more of its model; its id."""
        run = self.begin(session, text)
        if self.agent.server is None:  # it takes its time in each turn
            self.supervisor.wait_for_turn(session)
        else:
            while text not in self.model.hanging.get(timeout=_HANG_SECONDS):
                continue
        return run

    def pid_of(self, session: str) -> int:
        return int(self.supervisor.worker_of(session)["pid"])

    def strategy(self, session: str) -> str:
        """How the session's conversation went on the last time."""
        return str(self._resumed(session)[-1]["data"]["strategy"])

    def _resumed(self, session: str) -> list[dict[str, Any]]:
        return [event for event in self.supervisor.told("agent_resumed") if event["session"] == session]


def kill_worker(supervisor: Supervisor, session: str) -> int:
    """``kill -9`` of the process that runs a turn of the session; its pid."""
    pid = int(supervisor.wait_for_turn(session)["pid"])
    os.kill(pid, signal.SIGKILL)
    return pid


def all_processes(instance: str, place: Path) -> list[psutil.Process]:
    """What carries the marker of this supervisor, or has a HOME below ``place``; found without any code of ours."""
    found = {process.pid: process for process in marked_processes(instance)}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            home = process.environ().get("HOME", "")
            if home.startswith(f"{place}/") and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = process
    return list(found.values())
