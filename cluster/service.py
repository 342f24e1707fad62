"""All of the cluster in one supervisor: where nodes dial, the engines, their desk, and where workers go."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio

from cluster.engines.configured import configured_engines
from cluster.engines.engine import DialTarget, Engine, EngineLost
from cluster.home import NodeDesk
from cluster.launcher import ClusterLauncher
from cluster.listener import LifeCertificate, serve_nodes
from cluster.placement import ClusterPlacement, NodeDrain
from cluster.settings import ClusterSettings
from cluster.shared import SharedDirectory
from errors import PoolError
from pool.launcher import LocalLauncher
from pool.nodes import NodeStatus
from pool.settings import PoolSettings
from pool.shell import Pool
from wire.addresses import outgoing_address, parse_bind
from wire.tokens import read_token

_MIN_PAUSE, _MAX_PAUSE = 1.0, 60.0  # seconds between two runs of an engine, doubled for each one that was short


class ClusterService:
    """The nodes of one supervisor. ``launcher`` starts the pool's workers; ``run`` as long as the pool has any.

    Args:
        settings: as checked. limits: those of the pool.
        local: starts workers here.
        emit: called with ``(event, data)``.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        limits: PoolSettings,
        *,
        local: LocalLauncher,
        emit: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._settings, self._limits = settings, limits
        self._engines = configured_engines(settings)
        self._emit = emit
        self._placement = ClusterPlacement(settings, worker_memory=limits.worker_memory, on_drained=self._on_drained)
        self._desk = NodeDesk(
            local.data_dir,
            lease=float(settings.lease),
            margin=float(settings.fence_margin),
            silence=float(settings.silence),
            watcher=self._placement,
            emit=self._emit_of_node,
            read_token=self._read_token,
            shared=SharedDirectory(local.data_dir) if settings.transcripts == "shared" else None,
        )
        self.launcher = ClusterLauncher(local, self._placement)
        self._group_full = trio.Event()

    async def run(self, pool: Pool, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the nodes of a pool until cancelled; started once they may dial. Raises PoolError."""
        self._placement.connect(pool.submit)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._desk.run)
            nursery.start_soon(self._placement.run)
            if self._settings.listen:
                await self._listen(nursery)
            for engine in self._engines:
                nursery.start_soon(self._keep, engine)
            if self._engines:
                nursery.start_soon(self._tell_demand, pool.slot_demand)
            task_status.started()

    async def _listen(self, nursery: trio.Nursery) -> None:
        host, port = parse_bind(self._settings.listen)
        certificate = await trio.to_thread.run_sync(LifeCertificate.make)
        try:
            port = await nursery.start(serve_nodes, self._desk, certificate, host, port)
        except OSError as exc:
            text = f"cannot listen for nodes on {self._settings.listen} (cluster.listen): {exc.strerror or exc}"
            raise PoolError(text) from exc
        self._desk.dial = DialTarget(outgoing_address(host), port, certificate.fingerprint)
        self._emit("cluster_ready", {"address": self._desk.dial.address, "fingerprint": certificate.fingerprint})

    async def _keep(self, engine: Engine) -> None:
        """Run an engine; again after a pause where it could not go on."""
        pause = _MIN_PAUSE / 2
        while True:
            began = trio.current_time()
            try:
                await engine.run(self._desk)
            except EngineLost as exc:
                was_short = trio.current_time() - began < _MAX_PAUSE
                pause = min(2 * pause, _MAX_PAUSE) if was_short else _MIN_PAUSE
                self._emit("engine_lost", {"engine": engine.name, "reason": exc.message, "again_in": pause})
                await trio.sleep(pause)
            else:
                return

    def on_pool_event(self, event: str, data: dict[str, Any]) -> None:
        """Take an event of the pool, and pass it on."""
        if event == "group_full":
            self._group_full.set()
        self._emit(event, data)

    async def _tell_demand(self, demand: Callable[[], dict[str, int]]) -> None:
        """While requests wait for slots, say now and then how many; none at last."""
        while True:
            await self._group_full.wait()
            self._group_full = trio.Event()
            wanted: dict[str, int] | None = None
            while wanted != {}:
                await trio.sleep(self._settings.ray.scale_after)
                wanted = demand()
                for engine in self._engines:
                    with suppress(EngineLost):  # its own run says so
                        await engine.want(wanted)

    def _read_token(self) -> str:
        return read_token(Path(self._settings.token_file)) if self._settings.token_file else ""

    def _emit_of_node(self, event: str, data: dict[str, Any]) -> None:
        slots, most = self._placement.total_slots(), self._limits.max
        if event == "node_joined" and slots > most:
            data |= {"note": f"pool.max = {most} is less than the {slots} slots of all nodes"}
        self._emit(event, data)

    def _on_drained(self, name: str, drain: NodeDrain) -> None:
        self._emit("node_drained", {"node": name})
        if drain.ends:
            self._desk.dismiss(name, "it was drained")
            self._placement.forget_drain(name)

    # --- what is asked ------------------------------------------------------------------------------------------------

    @property
    def local_slots(self) -> int:
        """Workers that this machine may run."""
        return self._settings.local_slots

    def reconfigure(self, settings: ClusterSettings, limits: PoolSettings) -> None:
        """Take what may change in a running supervisor: slots here, the rate of starts, the token's file."""
        self._settings, self._limits = settings, limits
        self._placement.reconfigure(settings, limits.worker_memory)

    def nodes(self) -> list[NodeStatus]:
        """Every node, this machine first."""
        return [*self._placement.nodes(), *self._desk.absent()]

    def drain(self, name: str, seconds: float | None) -> None:
        """Empty a node, which stays linked and takes nothing before ``resume``. Raises UsageError."""
        self._placement.drain(name, seconds, ends=False)

    def resume(self, name: str) -> None:
        """Let a node take workers again. Raises UsageError."""
        self._placement.resume(name)
