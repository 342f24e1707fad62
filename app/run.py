"""From the settings to a supervisor that runs: the lock, the log, the service manager, the event loop."""

import os
from collections.abc import Callable
from pathlib import Path

import trio

from app.console import ConsoleLog
from app.detach import take_ready_fd
from app.hardening import tighten_modes
from app.host import ServiceManager
from app.log_file import LogFile
from app.supervisor import Supervisor
from doors.locations import DataDirLock
from errors import unwrap_exception_groups
from settings.schema import Settings
from store.store import set_switch_interval
from wire.log_file import LOG_DIR
from wire.redaction import secret_values


def run(
    settings: Settings, *, data_dir: Path, socket: Path, live: bool, reread: Callable[[int | None], Settings]
) -> bool:
    """Run a supervisor in the foreground until it is stopped; returns whether it is to be started again.

    Otherwise the process is to end. It ignores the signals that ask for it.

    Args:
        settings: everything that can be set.
        data_dir: transcripts, logs, state; one supervisor at a time.
        socket: where the control socket is bound.
        live: stderr is a terminal: draw one line of figures there, and only what is no routine above it.
        reread: reads the settings again, the same way, with another ``pool.max`` where that is given; raises
            SettingsError.

    Raises:
        PoolError: the data directory is in use, the socket cannot be bound, the settings do not fit this machine.
    """
    ready_fd = take_ready_fd(os.environ)
    with (
        DataDirLock(data_dir, socket),
        LogFile(data_dir / LOG_DIR) as file,
        ConsoleLog(live=live, settings=settings.log, file=file) as console,
        ServiceManager(os.environ, console.log, ready_fd=ready_fd) as manager,
    ):

        def read_again(max_workers: int | None) -> Settings:
            fresh = reread(max_workers)
            console.hide(_secrets(fresh))
            return fresh

        console.hide(_secrets(settings))
        if open_names := tighten_modes(data_dir):
            console.log("modes_tightened", {"names": open_names})
        supervisor = Supervisor(
            settings, data_dir=data_dir, socket=socket, live=live, console=console, manager=manager, reread=read_again
        )
        set_switch_interval()
        with unwrap_exception_groups():
            trio.run(supervisor.run)
        return supervisor.is_to_restart


def _secrets(settings: Settings) -> list[str]:
    """What webhooks are signed with, and what is secret of agents' environments."""
    hooks = settings.delivery.webhooks.values()
    return [
        *(value for agent in settings.agents.values() for value in secret_values(agent.env.items(), agent.secret_env)),
        *(secret for hook in hooks if (secret := hook.secret or os.environ.get(hook.secret_env, ""))),
    ]
