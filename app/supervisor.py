"""One supervisor, from its lock on the data directory to the end of its last worker."""

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from app.console import ConsoleLog, Printer
from app.host import ServiceManager, handled_signals, has_terminal, receive_signals
from app.log import ErrorLog
from app.optional import cluster_type, http_server_type, opened_tracer, tracer_type
from app.processes import keep_guard, sweep_last_life
from app.serving import RunningServices, agent_parts, autonomy_settings
from doors.control.server import ControlServer
from errors import PoolError
from gateway.autonomy import Autonomy
from gateway.events import EventBus
from gateway.gateway import Gateway, open_gateway
from gateway.hook_types import GatewayLifecycle
from gateway.hooks import HookRunner, installed_hooks, load_hooks
from gateway.methods.operator import LogPage
from gateway.methods.table import MethodTable
from pool import LocalLauncher, Pool
from pool.agent_records import DOCUMENT_KIND, AgentRecords
from pool.worker_logs import LogChanges
from rpc.orphans import Reaper, become_subreaper, sweep_adopted
from rpc.prompt_files import PROMPT_DIR, remove_leftover_prompts
from rpc.state_file import StateFile
from settings.config_file import show_config
from settings.schema import Settings
from store.records import Loaded
from store.store import open_store
from wire.events import EventType
from wire.log_file import LOG_DIR
from wire.version import VERSION

if TYPE_CHECKING:
    from cluster.service import ClusterService
    from doors.http.server import HttpServer

_NAMED = 20
"""Most sessions that one event names."""
_NO_SESSION = ""
"""The session of events that concern none."""


class Supervisor:
    """One supervisor's life. The caller holds the lock on ``data_dir``."""

    def __init__(
        self,
        settings: Settings,
        *,
        data_dir: Path,
        socket: Path,
        live: bool,
        console: ConsoleLog,
        manager: ServiceManager,
        reread: Callable[[int | None], Settings],
    ) -> None:
        self._settings = settings
        self._data_dir = data_dir
        self._socket = socket
        self._live = live
        self._console = console
        self._service_manager = manager
        self._read_settings = reread
        self._started_at = time.time()
        self._had_terminal = has_terminal()
        self._bus: EventBus | None = None
        self._methods: MethodTable | None = None
        self._services: RunningServices | None = None
        self._server: ControlServer | None = None
        self._http_server_type, self._tracer_type = http_server_type(settings), tracer_type(settings)
        self._cluster_type = cluster_type(settings)
        self._http: HttpServer | None = None
        self._cluster: ClusterService | None = None
        self._log_changes = LogChanges()
        self.is_to_restart = False
        """Whether it was asked to be started again once it has ended."""
        self._stop_requested = trio.Event()
        self._force_stop = trio.Event()

    async def run(self) -> None:
        """Clean up after the previous supervisor, serve until stopped, leave no process behind."""
        state_file = self._data_dir / "workers.json"
        await sweep_last_life(state_file, self._emit)
        remove_leftover_prompts(self._data_dir / PROMPT_DIR)
        launcher = LocalLauncher(
            self._settings.rpc,
            data_dir=self._data_dir,
            subreaper=become_subreaper(),
            attended=self._is_attended,
            log_changes=self._log_changes,
        )
        children, cgroup = launcher.children, launcher.cgroup
        state = StateFile(state_file, launcher.instance, children, cgroup=cgroup.path if cgroup else None)
        try:
            async with trio.open_nursery() as outliving:
                await outliving.start(self._console.wake_readers, self._log_changes)
                await outliving.start(Reaper(children).run)
                await outliving.start(state.run)
                await outliving.start(keep_guard, launcher, self._emit)
                if self._settings.pool.fork_server:
                    await outliving.start(launcher.keep_fork_server, self._emit)
                await outliving.start(self._handle_signals)
                await self._serve(launcher)
                await sweep_adopted(children)
                outliving.cancel_scope.cancel()
        finally:
            launcher.close()

    # --- serving ------------------------------------------------------------------------------------------------------

    async def _serve(self, launcher: LocalLauncher) -> None:
        settings = self._settings
        hooks_file = Path(settings.gateway.hooks) if settings.gateway.hooks else None
        hooks = HookRunner(load_hooks(hooks_file, installed_hooks()), self._emit_hook_failure)
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(
                open_store(self._data_dir / "pool.db", settings.store, on_trouble=self._emit_trouble)
            )
            loaded = store.loaded
            del store.loaded
            bus = EventBus(store, settings.gateway.events, first_seq=loaded.first_seq)
            bus.on("error", ErrorLog(self._console.log).record)
            outlasting = await stack.enter_async_context(trio.open_nursery())
            stack.callback(outlasting.cancel_scope.cancel)
            await outlasting.start(bus.run)
            self._bus = bus
            stack.callback(self._detach_bus)
            records = AgentRecords(
                await store.read_documents(DOCUMENT_KIND), partial(store.put_document, DOCUMENT_KIND)
            )
            pool = await self._open_pool(launcher, records, stack, outlasting)
            tracer = await stack.enter_async_context(opened_tracer(self._tracer_type))
            gateway = await stack.enter_async_context(
                open_gateway(
                    settings.gateway,
                    agent_parts(settings),
                    pool=pool,
                    store=store,
                    bus=bus,
                    hooks=hooks,
                    data_dir=self._data_dir,
                    tracer=tracer,
                )
            )
            self._recover(loaded, gateway)
            del loaded
            autonomy = await self._open_autonomy(gateway, stack)
            serving = self._services = RunningServices(
                settings,
                pool=pool,
                gateway=gateway,
                autonomy=autonomy,
                launcher=launcher,
                cluster=self._cluster,
                reread=self._read_settings,
                emit=self._emit,
            )
            methods = self._methods = MethodTable(gateway, self, autonomy)
            await self._run_until_stopped(serving, methods, hooks)

    async def _open_pool(
        self, launcher: LocalLauncher, records: AgentRecords, stack: AsyncExitStack, outlasting: trio.Nursery
    ) -> Pool:
        """Open the pool, and what serves the nodes, where there may be any, for as long as it has workers."""
        settings, cluster = self._settings, None
        if self._cluster_type is not None:
            cluster = self._cluster_type(settings.cluster, settings.pool, local=launcher, emit=self._emit)
        pool = Pool(
            settings.pool,
            launcher=launcher if cluster is None else cluster.launcher,
            on_event=self._emit if cluster is None else cluster.on_pool_event,
            agent_records=records,
            slots_here=lambda: None if cluster is None else cluster.local_slots,
        )
        await stack.enter_async_context(pool)
        if cluster is not None:
            await outlasting.start(cluster.run, pool)
        self._cluster = cluster
        return pool

    async def _open_autonomy(self, gateway: Gateway, stack: AsyncExitStack) -> Autonomy:
        """Open autonomy, with alerts on the terminal or on standard output."""
        printer = stack.enter_context(Printer(sys.stdout))
        write = self._console.write if self._live and sys.stdout.isatty() else printer.write
        return await Autonomy.open(gateway, autonomy_settings(self._settings), write=write, environ=os.environ)

    def _detach_bus(self) -> None:
        """Send later events to the log alone."""
        self._bus = None

    async def _run_until_stopped(self, serving: RunningServices, methods: MethodTable, hooks: HookRunner) -> None:
        gc.freeze()  # what was imported and loaded stays: no collection has to look at it
        gc.enable()  # `pool run` begins without collections
        async with trio.open_nursery() as nursery:
            self._server = ControlServer(methods, self._socket)
            await nursery.start(self._server.serve)
            await self._open_http(methods, serving, nursery)
            await serving.prewarm()
            nursery.start_soon(self._await_shutdown_request, serving.gateway)
            nursery.start_soon(self._service_manager.keep_alive)
            await hooks.notify("gateway:start", GatewayLifecycle(data_dir=str(self._data_dir)))
            self._console.log("ready", {"socket": str(self._socket), "data_dir": str(self._data_dir)})
            self._service_manager.ready()
            nursery.start_soon(self._console.run_status_line, serving.pool.statistics)
            await serving.gateway.resume_runs()
            nursery.start_soon(serving.autonomy.run)
            await self._stop_requested.wait()
            self._service_manager.stopping()
            serving.gateway.shut_down()
            serving.autonomy.close()
            self._emit_stopping(serving.gateway)
            await self._drain(serving.pool)
            await serving.gateway.scheduler.end_turns_awaiting_person()
            await hooks.notify("gateway:stop", GatewayLifecycle(data_dir=str(self._data_dir)))
            nursery.cancel_scope.cancel()

    async def _open_http(self, methods: MethodTable, serving: RunningServices, nursery: trio.Nursery) -> None:
        if self._http_server_type is not None:
            self._http = self._http_server_type(methods, self._settings.http, self._data_dir, hide=self._console.hide)
            await nursery.start(self._http.serve)
            serving.prepare_http = self._http.prepare
            self._emit("http_ready", self._http.status_fields())

    def _emit_stopping(self, gateway: Gateway) -> None:
        data: dict[str, Any] = {"turns_in_flight": len(gateway.scheduler.turns)}
        if waits_for := gateway.shutdown_blockers():
            settings = self._settings if self._services is None else self._services.settings
            limit = float(settings.pool.drain_timeout)
            data |= {"waits_for": waits_for, "at_most": limit, "hint": "a second signal ends them now"}
        self._emit("stopping", data)

    def _recover(self, loaded: Loaded, gateway: Gateway) -> None:
        if loaded.quarantined is not None:
            self._emit("store_set_aside", {"reason": loaded.quarantined})
        recovery = gateway.recover(loaded)
        if recovery.resumed or recovery.interrupted or not loaded.was_clean:
            counts = {name: getattr(recovery, name) for name in ("sessions", "resumed", "interrupted")}
            self._emit("recovered", counts)
        if recovery.damaged:
            self._emit("sessions_damaged", {"sessions": recovery.damaged})
        if recovery.missing:
            self._emit("transcripts_missing", {"count": len(recovery.missing), "sessions": recovery.missing[:_NAMED]})

    # --- events -------------------------------------------------------------------------------------------------------

    def _emit(self, event: str, data: dict[str, Any]) -> None:
        """Log an event and publish it as a monitor event."""
        self._console.log(event, data)
        if self._bus is not None:
            self._bus.publish(str(data.get("session") or _NO_SESSION), event, data)

    def _emit_trouble(self, event: str, data: dict[str, Any]) -> None:
        self._emit(event, data)
        if self._bus is not None and event == "store_degraded":
            message = f"the store cannot be written and keeps everything in memory: {data['error']}"
            error = {"severity": "error", "phase": "system", "message": message}
            self._bus.publish(_NO_SESSION, EventType.ERROR, error)

    def _emit_hook_failure(self, message: str, facts: dict[str, Any]) -> None:
        self._emit("hook_failed", {"message": message, **facts})

    def _is_attended(self, worker: str) -> bool:
        """Whether a client follows control events of the worker's session."""
        if self._services is None or self._methods is None:
            return False
        session = self._services.pool.session_of(worker)
        return session is not None and self._methods.attended(session)

    # --- what the methods ask -----------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """Facts about the process, for the status."""
        return {
            "pid": os.getpid(),
            "uptime": time.time() - self._started_at,
            "version": VERSION,
            "socket": str(self._socket),
            "data_dir": str(self._data_dir),
            "http": None if self._http is None else self._http.status_fields(),
            "service": self._service_manager.unit,
        }

    def config(self) -> msgspec.Raw:
        """The effective settings as JSON, secrets hidden."""
        assert self._services is not None  # noqa: S101 - methods are called only while we serve
        return msgspec.Raw(show_config(self._services.settings, as_json=True).encode())

    def log_tail(self, cursor: int | None, limit: int, max_bytes: int) -> LogPage:
        """Read the latest log lines."""
        return self._console.tail.read(cursor, limit, max_bytes)

    def log_changes(self) -> LogChanges:
        """Which logs grow."""
        return self._log_changes

    def log_directory(self) -> Path:
        """Where the log files lie."""
        return self._data_dir / LOG_DIR

    def cluster(self) -> "ClusterService | None":
        """The nodes of the cluster; None where there are none."""
        return self._cluster

    async def scale(self, workers: int) -> dict[str, Any]:
        """Change ``pool.max`` until this supervisor ends. Raises UsageError."""
        assert self._services is not None  # noqa: S101 - methods are called only while we serve
        return await self._services.scale(workers)

    def plan_restart(self) -> bool:
        """Look whether the settings would be accepted, and start again at the end; raises SettingsError.

        False where a service manager has started this process: only that one can start it again.
        """
        assert self._services is not None  # noqa: S101 - methods are called only while we serve
        self._services.check_settings()
        self.is_to_restart = self._service_manager.unit is None
        return self.is_to_restart

    async def reload(self) -> dict[str, Any]:
        """Reload the settings file. Raises SettingsError; the old settings stay then."""
        assert self._services is not None  # noqa: S101 - methods are called only while we serve
        self._service_manager.reloading()
        self._rebind_socket()
        try:
            return await self._services.reload()
        finally:
            self._service_manager.ready()

    def _rebind_socket(self) -> None:
        """Bind the socket again if its file was removed; a failure is reported and changes nothing else."""
        if self._server is None:
            return
        try:
            if self._server.rebind():
                self._emit("socket_bound_anew", {"socket": str(self._socket)})
        except PoolError as exc:
            self._emit("socket_lost", {"reason": exc.message})

    # --- the end ------------------------------------------------------------------------------------------------------

    async def _drain(self, pool: Pool) -> None:
        """Let turns in flight end, up to ``drain_timeout``; a second signal hurries."""
        async with trio.open_nursery() as nursery:

            async def hurry() -> None:
                await self._force_stop.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(hurry)
            await pool.drain()
            nursery.cancel_scope.cancel()

    async def _await_shutdown_request(self, gateway: Gateway) -> None:
        await gateway.shutdown_requested.wait()
        self._stop_requested.set()

    async def _handle_signals(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until the last worker is gone: a signal that is not caught would end us before what we have started."""
        with receive_signals(*handled_signals()) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGHUP and not (self._had_terminal and not has_terminal()):
                    await self._reload_by_signal()
                else:
                    (self._force_stop if self._stop_requested.is_set() else self._stop_requested).set()

    async def _reload_by_signal(self) -> None:
        if self._services is None:
            return  # it has not begun to serve: what it reads is the file as it is now
        try:
            await self.reload()
        except PoolError as exc:
            self._emit("reload_refused", {"reason": exc.message})
