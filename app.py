"""Puts the rooms together: one supervisor, from its lock on the data directory to its last worker's end."""

import os
import signal
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import trio

from doors.control import serve_control
from doors.live import Narrator
from doors.lock import DataDirLock
from errors import PoolError
from gateway.handlers import Handlers
from gateway.service import Gateway, open_gateway
from pool import LocalLauncher, Pool
from pool.stimuli import Prewarmed
from profiles import CapabilityProfile
from rpc.guard import keep_guard
from rpc.orphans import Reaper, become_subreaper, sweep_adopted, sweep_previous
from rpc.statefile import StateFile, StateFileCorrupt
from settings import Settings

__all__ = ["Supervisor", "run"]


def run(settings: Settings, *, data_dir: Path, socket: Path, live: bool) -> int:
    """Run a supervisor in the foreground until it is told to stop; returns the process's exit code.

    Args:
        settings: everything that can be set.
        data_dir: transcripts, logs, state; one supervisor at a time.
        socket: where the control socket is bound.
        live: draw one line of figures on the terminal instead of writing log lines.

    Raises:
        PoolError: the data directory is in use, the socket cannot be bound, the settings do not fit this machine.
    """
    with DataDirLock(data_dir, socket), Narrator(live=live) as narrator:
        supervisor = Supervisor(settings, data_dir=data_dir, socket=socket, narrator=narrator)
        try:
            trio.run(supervisor.run)
        except* PoolError as group:
            raise _first_of(group) from None
        return 0


def _first_of(group: BaseExceptionGroup[PoolError]) -> PoolError:
    """The error itself; nurseries wrap it in as many groups as they are deep."""
    error = group.exceptions[0]
    return _first_of(error) if isinstance(error, BaseExceptionGroup) else error


class Supervisor:
    """One supervisor's life. The caller holds the lock on ``data_dir``."""

    def __init__(self, settings: Settings, *, data_dir: Path, socket: Path, narrator: Narrator) -> None:
        self._settings = settings
        self._data_dir = data_dir
        self._socket = socket
        self._narrator = narrator
        self._started_at = time.time()
        self._stop_wanted = trio.Event()
        self._hurry = trio.Event()

    async def run(self) -> None:
        """Clean up after an earlier supervisor, serve until told to stop, leave nothing behind."""
        state_file = self._data_dir / "workers.json"
        await self._sweep_previous(state_file)
        launcher = LocalLauncher(self._settings.rpc, data_dir=self._data_dir, subreaper=become_subreaper())
        children, cgroup = launcher.children, launcher.cgroup
        state = StateFile(state_file, launcher.instance, children, cgroup=cgroup.path if cgroup else None)
        try:
            async with trio.open_nursery() as outliving:
                await outliving.start(Reaper(children).run)
                await outliving.start(state.keep)
                await outliving.start(self._keep_guard, launcher)
                await outliving.start(self._listen_to_signals)
                await self._serve(launcher)
                await sweep_adopted(children)
                outliving.cancel_scope.cancel()
        finally:
            launcher.close()

    async def _sweep_previous(self, state_file: Path) -> None:
        try:
            report = await sweep_previous(state_file)
        except StateFileCorrupt as exc:
            aside = _set_aside(state_file)
            self._narrator.log("state_file_set_aside", {"reason": exc.message, "kept_as": str(aside)})
        else:
            if report.killed:
                self._narrator.log("previous_workers_swept", {"killed": len(report.killed)})

    async def _keep_guard(
        self, launcher: LocalLauncher, *, task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED
    ) -> None:
        def report_loss(reason: str) -> None:
            self._narrator.log("guard_lost", {"reason": reason})

        await keep_guard(
            launcher.instance, launcher.cgroup, launcher.children, on_lost=report_loss, task_status=task_status
        )

    async def _serve(self, launcher: LocalLauncher) -> None:
        settings = self._settings
        async with (
            Pool(settings.pool, launcher=launcher, on_event=self._narrator.log) as pool,
            open_gateway(pool, settings.gateway, settings, data_dir=self._data_dir) as gateway,
            trio.open_nursery() as nursery,
        ):
            handlers = Handlers(gateway, self._facts)
            await nursery.start(serve_control, handlers, self._socket)
            pool.tell(Prewarmed(self._warm_profiles(gateway)))
            nursery.start_soon(self._listen_to_doors, gateway)
            self._narrator.ready(self._socket, self._data_dir)
            nursery.start_soon(self._narrator.follow, pool.statistics)
            await self._stop_wanted.wait()
            self._narrator.log("stopping", {"turns_in_flight": pool.statistics().pool.leased})
            await self._drain(pool)
            nursery.cancel_scope.cancel()

    def _warm_profiles(self, gateway: Gateway) -> tuple[tuple[CapabilityProfile, int], ...]:
        """What to keep warm: as configured, else ``min`` of the default agent in the default role."""
        pool = self._settings.pool
        if pool.prewarm:
            return tuple((gateway.profile(warm.agent, warm.role), warm.count) for warm in pool.prewarm)
        return ((gateway.profile("main", "default"), pool.min),) if pool.min else ()

    def _facts(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "uptime": time.time() - self._started_at,
            "version": version("agent-pool"),
            "socket": str(self._socket),
            "data_dir": str(self._data_dir),
        }

    async def _drain(self, pool: Pool) -> None:
        """Let turns in flight end, up to ``drain_timeout``; a second signal hurries."""
        async with trio.open_nursery() as nursery:

            async def hurry() -> None:
                await self._hurry.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(hurry)
            await pool.drain()
            nursery.cancel_scope.cancel()

    async def _listen_to_doors(self, gateway: Gateway) -> None:
        await gateway.shutdown_requested.wait()
        self._stop_wanted.set()

    async def _listen_to_signals(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until the last worker is gone: a signal that is not caught would end us before what we have started."""
        with trio.open_signal_receiver(*_stop_signals()) as signals:
            task_status.started()
            async for _ in signals:
                (self._hurry if self._stop_wanted.is_set() else self._stop_wanted).set()


def _stop_signals() -> tuple[signal.Signals, ...]:
    """What asks us to stop; the end of the terminal does not where ``nohup`` has said so."""
    always = (signal.SIGTERM, signal.SIGINT)
    return always if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*always, signal.SIGHUP)


def _set_aside(path: Path) -> Path:
    """Keep a damaged file for whoever wants to look at it."""
    return path.replace(path.with_name(path.name + ".damaged"))
