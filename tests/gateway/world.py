"""A whole gateway over a real pool: workers made of memory, a store that the test controls, the test's own clock."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import msgspec
import trio
from trio.testing import wait_all_tasks_blocked

from gateway.autonomy import Autonomy, AutonomySettings
from gateway.events import EventBus
from gateway.gateway import Gateway, Recovery, open_gateway
from gateway.hook_types import HookTable
from gateway.hooks import HookRunner
from gateway.methods.operator import LogPage
from gateway.methods.table import MethodTable
from gateway.runs.run import Run, RunOutcome
from gateway.runs.trace import Tracer
from gateway.sessions.agent_profiles import AgentParts
from gateway.settings import GatewayPrompts, GatewaySettings
from pool import Pool
from pool.nodes import NodeStatus
from pool.settings import PoolSettings
from pool.worker_logs import LogChanges
from profiles import AgentSettings, ProfilesSettings, RoleSettings
from router.settings import RouterSettings
from router.source import MessageSource
from store.records import DocumentKey, Loaded, RunKey, RunRow, SessionRow, StoreStatistics
from store.store import Store
from tests.gateway.callers import RecordingCaller
from tests.gateway.events.stand_in import MemoryStore
from tests.gateway.workers import GatewayLauncher, GatewayWorker
from wire.messages import ErrorBody
from wire.units import decode_unit

PROFILES = ProfilesSettings(
    agents={"ops": AgentSettings(append_system_prompt="Operate."), "quick": AgentSettings(timeout_seconds=None)},
    roles={"writer": RoleSettings(append_system_prompt="Write.")},
)


def telegram(**more: Any) -> MessageSource:
    """Where a direct message of a person comes from."""
    return MessageSource(**{"channel": "telegram", "chat_type": "dm", "chat_id": "7", "sender_id": "7", **more})


class Heard(list[Any]):
    """``listen`` is a hook that keeps what it hears."""

    async def listen(self, event: object) -> None:
        self.append(event)


def error_of(outcome: RunOutcome) -> ErrorBody:
    """The error of a run that has one."""
    assert outcome.error is not None
    return outcome.error


class WholeStore(MemoryStore):
    """A stand-in for all of the store. ``written``: what would be found after a crash now; the rest is in memory."""

    def __init__(self, first_seq: int = 1) -> None:
        super().__init__(first_seq)
        self.sessions: dict[str, SessionRow] = {}
        self.runs: dict[RunKey, RunRow] = {}
        self.documents: dict[DocumentKey, bytes] = {}
        self.written: tuple[dict[str, SessionRow], dict[RunKey, RunRow], dict[DocumentKey, bytes]] = ({}, {}, {})
        self.has_room = trio.Event()
        self.has_room.set()

    def transaction(self) -> AbstractContextManager[None]:
        """What a flush finds is from one moment anyway."""
        return nullcontext()

    def put_session(self, row: SessionRow) -> None:
        self.sessions[row.key] = row

    def delete_session(self, key: str) -> None:
        self.sessions.pop(key, None)

    def put_run(self, row: RunRow) -> None:
        self.runs[row.principal, row.session, row.run_id] = row

    def delete_runs(self, runs: Iterable[RunKey]) -> None:
        for key in runs:
            self.runs.pop(key, None)

    def put_document(self, kind: str, key: str, body: bytes | None) -> None:
        if body is None:
            self.documents.pop((kind, key), None)
        else:
            self.documents[kind, key] = body

    async def read_documents(self, kind: str) -> dict[str, bytes]:
        await trio.lowlevel.checkpoint()
        return {key: body for (of, key), body in self.documents.items() if of == kind}

    async def flush(self) -> bool:
        at_the_call = (dict(self.sessions), dict(self.runs), dict(self.documents))
        is_durable = await super().flush()
        if is_durable:
            self.written = at_the_call
        return is_durable

    def commit(self) -> bool:
        is_durable = super().commit()
        if is_durable:
            self.written = (dict(self.sessions), dict(self.runs), dict(self.documents))
        return is_durable

    async def wait_room(self) -> None:
        await self.has_room.wait()

    def statistics(self) -> StoreStatistics:
        return StoreStatistics(
            rows_waiting=0, bytes_waiting=0, rows_written=0, degraded=self.is_degraded, lost=0, last_error=None
        )

    def states(self) -> dict[str, str]:
        """How far each run has come that would be found after a crash now, by its id."""
        return {run_id: row.state.value for (_, _, run_id), row in self.written[1].items()}

    def after_a_crash(self) -> "WholeStore":
        """What the next life finds if this one ended at this moment, without any last word."""
        store = WholeStore(self.noted + 1_000_000)
        sessions, runs, documents = self.written
        store.sessions, store.runs, store.documents = dict(sessions), dict(runs), dict(documents)
        store.rows = [row for row in self.rows if row.seq <= self.durable_upto]
        return store

    def after_a_stop(self) -> "WholeStore":
        """The same after a clean stop: everything was written."""
        store = WholeStore(self.noted + 1)
        store.sessions, store.runs, store.rows = dict(self.sessions), dict(self.runs), list(self.rows)
        store.documents = dict(self.documents)
        return store

    @property
    def loaded(self) -> Loaded:
        return Loaded(
            sessions=list(self.sessions.values()),
            runs=list(self.runs.values()),
            first_seq=self.first_seq,
            quarantined=None,
            was_clean=True,
        )


class Machines:
    """Implements ``ClusterPort``: nodes that are said to be there."""

    def __init__(self, *known: NodeStatus) -> None:
        self.known = [*known]
        self.drained: dict[str, float | None] = {}

    def nodes(self) -> list[NodeStatus]:
        return self.known

    def drain(self, name: str, seconds: float | None) -> None:
        self.drained[name] = seconds

    def resume(self, name: str) -> None:
        del self.drained[name]


MACHINES = (
    NodeStatus(name="", engine="local", state="up", slots=4, used=1),
    NodeStatus(name="gpu-1", group="gpu", engine="ssh", state="up", slots=2, used=2),
    NodeStatus(name="gpu-2", group="gpu", engine="ssh", state="draining", slots=8, used=1),
    NodeStatus(name="gpu-3", group="gpu", engine="ssh", state="lost", until=7.5),
)


class Supervisor:
    """Implements ``SupervisorPort``. ``machines``: the cluster; None = there is none."""

    machines: Machines | None = None

    def __init__(self) -> None:
        self.changes = LogChanges()
        self.logs = Path("/nowhere")

    def facts(self) -> dict[str, Any]:
        return {"pid": 1, "service": None}

    def config(self) -> msgspec.Raw:
        agents = {"main": {"model": "large", "provider": "acme"}, "ops": {"model": None}}
        return msgspec.Raw(msgspec.json.encode({"agents": agents, "http": {"token": "***"}}))

    def log_tail(self, cursor: int | None, limit: int, max_bytes: int) -> LogPage:
        lines = [f"line {number}" for number in range(limit)]
        return LogPage(cursor=max_bytes, size=max_bytes, lines=lines, truncated=False, reset=cursor is not None)

    def log_changes(self) -> LogChanges:
        return self.changes

    def cluster(self) -> Machines | None:
        return self.machines

    def log_directory(self) -> Path:
        return self.logs

    async def scale(self, workers: int) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {"max": workers, "before": 1}

    def plan_restart(self) -> bool:
        return True

    async def reload(self) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {"reloaded": True}


class World:
    """One life of a gateway with everything around it."""

    def __init__(
        self,
        gateway: Gateway,
        autonomy: Autonomy,
        launcher: GatewayLauncher,
        nursery: trio.Nursery,
        recovery: Recovery | None,
    ) -> None:
        self.gateway = gateway
        self.autonomy = autonomy
        self.launcher = launcher
        self.nursery = nursery
        self.recovery = recovery
        self.store: WholeStore
        self.hooks: HookRunner
        self.warnings: list[str] = []
        self.printed: list[str] = []
        self.supervisor = Supervisor()
        self.log_changes = self.supervisor.changes
        self.methods = MethodTable(gateway, self.supervisor, autonomy)
        self.caller = RecordingCaller(nursery)
        self._events = gateway.bus.open_cursor()

    async def call(self, method: str, caller: RecordingCaller | None = None, /, **params: Any) -> Any:
        """What a front end is answered."""
        raw = msgspec.Raw(msgspec.json.encode(params))
        return msgspec.json.decode(msgspec.json.encode(await self.methods.call(method, raw, caller or self.caller)))

    async def send(self, text: str, session: str | None = "alice", **params: Any) -> Run:
        """Have a message accepted; the run, whatever has become of it."""
        if "source" in params:
            session = None
        accepted = await self.call("agent", text=text, **({"session": session} if session else {}), **params)
        return self.run(accepted["run_id"], accepted["session"])

    async def begin(self, text: str, session: str | None = "alice", **params: Any) -> Run:
        """The same, and let everything happen that can happen now."""
        run = await self.send(text, session, **params)
        await wait_all_tasks_blocked()
        return run

    async def hanging(self, **params: Any) -> GatewayWorker:
        """Begin a turn of alice's that runs until the test ends it; the worker that has it."""
        await self.begin("hang", **params)
        return self.launcher.running("hang")

    async def ask(self, text: str, session: str | None = "alice", **params: Any) -> RunOutcome:
        """Send a message and wait for its outcome."""
        run = await self.send(text, session, **params)
        with trio.fail_after(3600):
            return await run.wait()

    def run(self, run_id: str, session: str | None = None) -> Run:
        return self.gateway.run_registry.find(self.caller.principal, run_id, session)

    def state(self, session: str = "alice") -> str:
        entry = self.gateway.sessions.get(session)
        assert entry is not None
        return entry.status.value

    async def events(self, *types: str) -> list[dict[str, Any]]:
        """What was published since the last call, those of these types; first lets happen what can happen now."""
        await wait_all_tasks_blocked()
        found: list[dict[str, Any]] = []
        while self._events.position < self.gateway.bus.head:
            found += msgspec.json.decode(b"[" + (await self._events.read()).body + b"]")
        return [event for event in found if not types or event["type"] in types]

    def assert_at_rest(self, session: str = "alice") -> None:
        """Nobody waits, nothing runs, the next message would begin at once."""
        assert self.state(session) == "READY"
        assert self.gateway.run_registry.live == 0
        scheduler = self.gateway.scheduler
        assert session not in {busy.session for busy in scheduler.lanes.snapshot().sessions}
        assert scheduler.lanes.snapshot().running == 0
        kept = (scheduler._turns, scheduler._starting, scheduler._runs, scheduler._timers, scheduler._rejected)
        assert not any((*kept, scheduler._alarms))


@asynccontextmanager
async def open_world(
    data_dir: Path,
    *,
    store: WholeStore | Store | None = None,
    launcher: GatewayLauncher | None = None,
    hooks: HookTable | None = None,
    profiles: ProfilesSettings = PROFILES,
    router: RouterSettings | None = None,
    workers: int = 2,
    clock: Callable[[], float] | None = None,
    autonomy: AutonomySettings | None = None,
    environ: Mapping[str, str] | None = None,
    tracer: Tracer | None = None,
    **settings: Any,
) -> AsyncIterator[World]:
    """A life that begins with what ``store`` has; ``settings`` are the gateway's. Leaving the block ends it."""
    kept = cast("Store", store or WholeStore())
    launcher = launcher or GatewayLauncher()
    warnings, printed = list[str](), list[str]()
    loaded = kept.loaded
    launcher.taken = frozenset(row.transcript for row in loaded.sessions)
    wall = clock or (lambda: 1_000_000 + trio.current_time())
    parts = AgentParts(profiles=profiles, router=router or RouterSettings(), prompts=GatewayPrompts())
    options = msgspec.convert(settings, GatewaySettings, dec_hook=decode_unit)
    runner = HookRunner(hooks or {}, lambda message, _facts: warnings.append(message))
    bus = EventBus(kept, options.events, first_seq=loaded.first_seq, clock=wall)
    async with trio.open_nursery() as outlasting:
        await outlasting.start(bus.run)
        async with (
            Pool(PoolSettings(min=0, max=workers), launcher=launcher, memory_bytes=1 << 40) as pool,
            open_gateway(
                options,
                parts,
                pool=pool,
                store=kept,
                bus=bus,
                hooks=runner,
                data_dir=data_dir,
                clock=wall,
                tracer=tracer,
            ) as gateway,
            trio.open_nursery() as connections,
        ):
            recovery = gateway.recover(loaded) if loaded.runs or loaded.sessions else None
            alone = await Autonomy.open(
                gateway, autonomy or AutonomySettings(), write=printed.append, environ=environ or {}, clock=wall
            )
            await gateway.resume_runs()
            connections.start_soon(alone.run)
            world = World(gateway, alone, launcher, connections, recovery)
            world.hooks = runner
            world.store, world.warnings, world.printed = cast("WholeStore", kept), warnings, printed
            yield world
            connections.cancel_scope.cancel()
        outlasting.cancel_scope.cancel()
