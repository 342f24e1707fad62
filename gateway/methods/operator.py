"""Methods about the pool as a whole, its workers and the supervisor: status, explain, pause, drain, stop."""

from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import trio

from errors import UsageError
from gateway.autonomy import Autonomy, AutonomyStats
from gateway.caller import Caller
from gateway.events import BusStatistics
from gateway.gateway import Gateway
from gateway.lanes.messages import LanesSnapshot
from gateway.requests import (
    DrainRequest,
    EmptyRequest,
    ExplainRequest,
    LogReadRequest,
    LogTailRequest,
    NodeDrainRequest,
    NodeRequest,
    ScaleRequest,
    WorkerRequest,
)
from gateway.runs.figures import AgentRuns, AgentUsage
from gateway.turns.approvals import PendingPermission
from gateway.turns.holds import HoldStats
from heartbeat.system_events import SystemEventStats
from pool import PoolStatistics, stimuli
from pool.group_figures import GroupFigures, figures_of_groups
from pool.nodes import NodeStatus
from pool.snapshot import SessionSnapshot
from pool.statistics import ProfileLatencies
from pool.worker_logs import LogChanges
from router.keys import normalize_session_key
from store.records import StoreStatistics
from wire.log_file import SUPERVISOR_LOG, log_names
from wire.log_page import LogFilePage, read_page


class GatewayStats(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's part of the status."""

    runs: int
    """Live runs."""
    sessions: int
    """Known sessions."""
    lanes: LanesSnapshot
    holds: HoldStats
    """Workers that callers hold or wait for."""
    permissions: list[PendingPermission]
    system_events: SystemEventStats
    events: BusStatistics
    autonomy: AutonomyStats
    store: StoreStatistics


class StatusDocument(PoolStatistics, frozen=True, kw_only=True):
    """``supervisor``: pid, uptime in seconds, version, paths. ``groups``: of the cluster; none where there is none."""

    groups: tuple[GroupFigures, ...] = ()
    gateway: GatewayStats
    supervisor: dict[str, Any]


class MetricsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What ``GET /metrics`` shows: the status, and what adds up over time, by agent and profile or model."""

    status: StatusDocument
    latencies: list[ProfileLatencies]
    runs: list[AgentRuns]
    usage: list[AgentUsage]


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of the supervisor's log, oldest first. Positions are bytes since the start of the supervisor.

    ``cursor``: where to read on from. ``truncated``: there were more lines, before these. ``reset``: the position asked
    for was another supervisor's.
    """

    cursor: int
    size: int
    lines: list[str]
    truncated: bool
    reset: bool


class ClusterPort(Protocol):
    """The nodes of the cluster, as the methods see them."""

    def nodes(self) -> list[NodeStatus]:
        """Every node, this machine first."""
        ...

    def drain(self, name: str, seconds: float | None) -> None:
        """Empty a node; it takes nothing before ``resume``. Raises UsageError."""
        ...

    def resume(self, name: str) -> None:
        """Let a node take workers again. Raises UsageError."""
        ...


class SupervisorPort(Protocol):
    """The supervisor, as the methods see it."""

    def facts(self) -> dict[str, Any]:
        """pid, uptime in seconds, version, paths."""
        ...

    def config(self) -> msgspec.Raw:
        """The settings that hold, as JSON in the shape of their file, secrets hidden."""
        ...

    def log_tail(self, cursor: int | None, limit: int, max_bytes: int) -> LogPage:
        """The latest lines of the log, of those after ``cursor``."""
        ...

    def log_changes(self) -> LogChanges:
        """Which logs grow, of workers and of the supervisor."""
        ...

    def log_directory(self) -> Path:
        """Where the log files lie."""
        ...

    def cluster(self) -> ClusterPort | None:
        """The nodes of the cluster; None where the settings speak of no other machine."""
        ...

    async def scale(self, workers: int) -> dict[str, Any]:
        """Have at most that many workers until the supervisor ends. Raises UsageError."""
        ...

    def plan_restart(self) -> bool:
        """Start again at the end; False where only a service manager can. Raises SettingsError."""
        ...

    async def reload(self) -> dict[str, Any]:
        """Read the settings file again: what holds from now on, what waits for a restart. Raises SettingsError."""
        ...


def _read_log(directory: Path, log: str, **asked: Any) -> LogFilePage:
    """Raises UsageError for a log that is not kept: a name leads to no other file."""
    if log not in (SUPERVISOR_LOG, *log_names(directory)):
        raise UsageError(f"no log {log!r} is kept; logs.list names those that are")
    return read_page(directory, log, **asked)


_LOG_READERS = 2
"""Files that are read at a time: a slow disk holds up those who read logs, and no one else."""


class OperatorMethods:
    """Each takes decoded parameters and the caller; what it returns is encoded as the result."""

    def __init__(self, gateway: Gateway, supervisor: SupervisorPort, autonomy: Autonomy) -> None:
        self._gateway = gateway
        self._autonomy = autonomy
        self._pool = gateway.pool
        self._supervisor = supervisor
        self._log_readers = trio.CapacityLimiter(_LOG_READERS)

    async def status(self, _params: EmptyRequest, _caller: Caller) -> StatusDocument:
        """Everything at one moment: the pool, its workers and waiters, sessions, runs, events, the store."""
        statistics, gateway = self._pool.statistics(), self._gateway
        figures = GatewayStats(
            runs=gateway.run_registry.live,
            sessions=len(gateway.sessions),
            lanes=gateway.scheduler.lanes.snapshot(),
            holds=gateway.holds.stats(),
            permissions=gateway.pending_permissions.snapshot(),
            system_events=gateway.system_events.stats(),
            events=gateway.bus.statistics(),
            autonomy=self._autonomy.stats(),
            store=gateway.store.statistics(),
        )
        facts = msgspec.structs.asdict(statistics)
        sessions = tuple(map(self._with_queued, statistics.sessions))
        return StatusDocument(
            **{**facts, "sessions": sessions},
            groups=self._groups(),
            gateway=figures,
            supervisor=self._supervisor.facts(),
        )

    def _groups(self) -> tuple[GroupFigures, ...]:
        cluster = self._supervisor.cluster()
        return () if cluster is None else figures_of_groups(cluster.nodes())

    async def metrics(self, params: EmptyRequest, caller: Caller) -> MetricsDocument:
        """The status with the histograms and sums since the start."""
        status, figures = await self.status(params, caller), self._gateway.run_registry.figures
        latencies = self._pool.latencies.histograms(status.profiles)
        return MetricsDocument(status=status, latencies=latencies, runs=figures.runs(), usage=figures.usage())

    def _with_queued(self, session: SessionSnapshot) -> SessionSnapshot:
        """The pool's session, with the runs that wait behind another of the same session counted as waiting."""
        queued = self._gateway.scheduler.depth(session.key)
        return msgspec.structs.replace(session, waiting=session.waiting + queued)

    async def stop_worker(self, params: WorkerRequest, _caller: Caller) -> Any:
        """End a worker now."""
        self._pool.submit(stimuli.StopWorker(params.worker))
        return {"worker": params.worker, "stopping": True}

    async def recycle_worker(self, params: WorkerRequest, _caller: Caller) -> Any:
        """Replace a worker at its next turn boundary."""
        self._pool.submit(stimuli.RecycleWorker(params.worker))
        return {"worker": params.worker, "recycling": True}

    def nodes(self, _params: EmptyRequest, _caller: Caller) -> list[NodeStatus]:
        """Every machine of the cluster, with those that were lost or refused; without a cluster there is none."""
        cluster = self._supervisor.cluster()
        return [] if cluster is None else cluster.nodes()

    def drain_node(self, params: NodeDrainRequest, _caller: Caller) -> Any:
        """Start nothing more on a node: idle workers end now, others with their turns; ``nodes.resume`` undoes it."""
        self._cluster().drain(params.node, params.timeout)
        return {"node": params.node, "draining": True}

    def resume_node(self, params: NodeRequest, _caller: Caller) -> Any:
        """Start workers on a node again."""
        self._cluster().resume(params.node)
        return {"node": params.node, "draining": False}

    def _cluster(self) -> ClusterPort:
        cluster = self._supervisor.cluster()
        if cluster is None:
            raise UsageError("the settings speak of no other machines; see [cluster]")
        return cluster

    async def explain(self, params: ExplainRequest, _caller: Caller) -> Any:
        """How well every worker fits a session or an agent, and what rules it out."""
        session = None if params.session is None else normalize_session_key(params.session)
        profile = await self._gateway.profile_of(session) if session is not None else None
        if profile is None or params.agent is not None or params.role is not None:
            entry = None if session is None else self._gateway.sessions.get(session)
            usual = self._gateway.profile_cache.parts.router.default_agent if entry is None else entry.agent
            profile = await self._gateway.profile_cache.get(params.agent or usual, params.role or "default")
        report = None if session is None else self._pool.report_of(session)
        found = self._pool.explain(session, profile)
        group = next((each for each in self._groups() if each.group == profile.group), None)
        return {
            "session": session,
            "profile": {"signature": profile.short, "agent": profile.agent, "role": profile.role, "cwd": profile.cwd},
            "seen": self._pool.agent_records.find(profile.agent),
            **({} if report is None else {"report": report}),
            **({} if group is None else {"group": str(group)}),
            "workers": found.workers,
            "wait": found.wait or self._own_wait(session),
        }

    def _own_wait(self, session: str | None) -> dict[str, Any] | None:
        """The wait of a session whose next turn does not ask for a worker yet: its lane, or its own turn, is first."""
        scheduler = self._gateway.scheduler
        queued = 0 if session is None else scheduler.depth(session)
        if session is None or not queued:
            return None
        needs = scheduler.why_waiting(session) or "the turn that runs in the session has to end"
        for call in self._gateway.pending_permissions.pending(session)[:1]:
            needs += f" (it waits for a person: pool approve -s {session} {call.id})"
        why = f"{queued} {'message waits' if queued == 1 else 'messages wait'} in the session"
        return {"place": None, "waiting": queued, "why": why, "needs": needs}

    async def pause(self, _params: EmptyRequest, _caller: Caller) -> Any:
        """Grant no more workers."""
        self._pool.submit(stimuli.Pause())
        return {"paused": True}

    async def resume(self, _params: EmptyRequest, _caller: Caller) -> Any:
        """Undo ``pause`` or ``drain``."""
        self._pool.submit(stimuli.Resume())
        return {"paused": False}

    async def drain(self, params: DrainRequest, _caller: Caller) -> Any:
        """Take nothing new, let turns end, stop all workers."""
        return {"drained": await self._pool.drain(params.timeout)}

    def config(self, _params: EmptyRequest, _caller: Caller) -> Any:
        """The settings that hold, in the shape of their file, secrets hidden."""
        return {"config": self._supervisor.config()}

    async def log_tail(self, params: LogTailRequest, _caller: Caller) -> LogPage:
        """The latest lines of the supervisor's log."""
        return self._supervisor.log_tail(params.cursor, params.limit, params.max_bytes)

    async def list_logs(self, _params: EmptyRequest, _caller: Caller) -> Any:
        """The logs that are kept: of the supervisor, then of workers, the one that has written last first."""
        names = await trio.to_thread.run_sync(log_names, self._supervisor.log_directory(), limiter=self._log_readers)
        return {"logs": [SUPERVISOR_LOG, *reversed(names)]}

    async def read_log(self, params: LogReadRequest, _caller: Caller) -> LogFilePage:
        """A page of a log file. The files of workers that have ended are kept too, as ``rpc.log_workers`` says."""
        fields = msgspec.structs.asdict(params)
        read = partial(_read_log, self._supervisor.log_directory(), fields.pop("log"), **fields)
        return await trio.to_thread.run_sync(read, limiter=self._log_readers)

    async def watch_logs(self, _params: EmptyRequest, caller: Caller) -> None:
        """Push ``logs_changed{logs}`` at once, and whenever logs have grown: their names; until the caller leaves."""
        with self._supervisor.log_changes().watch() as watch:
            names: list[str] = []
            while True:
                await caller.push("logs_changed", {"request": caller.request_id, "logs": names})
                names = await watch.wait()

    async def scale(self, params: ScaleRequest, _caller: Caller) -> Any:
        """Change ``pool.max`` until the supervisor ends."""
        return await self._supervisor.scale(params.max)

    async def restart(self, _params: EmptyRequest, _caller: Caller) -> Any:
        """Stop the supervisor and start it again in its process; ``restarting`` false: its service manager must."""
        service = self._supervisor.facts()["service"]
        if not self._supervisor.plan_restart():
            return {"restarting": False, "service": service, "waits_for": []}
        self._gateway.shut_down()
        return {"restarting": True, "service": None, "waits_for": self._gateway.shutdown_blockers()}

    async def shutdown(self, _params: EmptyRequest, _caller: Caller) -> Any:
        """Stop the supervisor."""
        self._gateway.shut_down()
        return {"stopping": True, "waits_for": self._gateway.shutdown_blockers()}
