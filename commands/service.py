"""``pool service``: run the supervisor by the service manager: systemd, or launchd on macOS."""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from commands.groups import CommandGroup
from commands.options import connection_options, json_option, load_with_flags, print_answer, working_directory
from commands.service_units import (
    DEFAULT_NAME,
    InstalledUnit,
    ServiceSpec,
    check_name,
    launchd_plist,
    ours,
    plan_install,
    served_directory,
    systemd_unit,
)
from errors import PoolError, UsageError
from wire.files import replace_file
from wire.terminal import clean

if TYPE_CHECKING:
    from settings.schema import Settings

_END_SECONDS = 30
"""Beside drain and kill ladder: SIGKILL, sweep, the store, last words."""
_LARGEST_UNIT = 64 * 1024
_BOOTED = Path("/run/systemd/system")
_NO_SYSTEMD = "this machine does not run systemd; `pool run --detach` starts a supervisor in the background"
_LINGERING = Path("/var/lib/systemd/linger")

_name_option = click.option("--name", default=DEFAULT_NAME, show_default=True, metavar="NAME", help="Its name.")
_system_option = click.option("--system", "is_system", is_flag=True, help="A service of the machine (root), not yours.")


@click.group(cls=CommandGroup)
def service() -> None:
    """Run the supervisor by systemd (launchd on macOS): install, uninstall, status."""


class _Manager(NamedTuple):
    """A service manager: where its definitions lie, what they are called, and its commands."""

    directory: Path
    suffix: str
    control: tuple[str, ...]
    is_launchd: bool

    @classmethod
    def of(cls, *, is_system: bool) -> "_Manager":
        """The one of this user, or of the machine."""
        if sys.platform == "darwin":
            directory = Path("/Library/LaunchDaemons") if is_system else Path.home() / "Library" / "LaunchAgents"
            return cls(directory, ".plist", ("launchctl",), is_launchd=True)
        config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        directory = Path("/etc/systemd/system") if is_system else config / "systemd" / "user"
        return cls(directory, ".service", ("systemctl", *([] if is_system else ["--user"])), is_launchd=False)

    def path(self, name: str) -> Path:
        """Where the definition of that name lies."""
        return self.directory / f"{name}{self.suffix}"

    def present(self) -> list[InstalledUnit]:
        """The definitions that are there and can be read."""
        found = []
        for path in sorted(self.directory.glob(f"*{self.suffix}")):
            try:
                with path.open(encoding="utf-8") as file:
                    found.append(InstalledUnit(path.name.removesuffix(self.suffix), file.read(_LARGEST_UNIT)))
            except (OSError, UnicodeDecodeError):
                continue  # a link to nothing, a binary list: another program's
        return found

    @property
    def is_there(self) -> bool:
        """Whether this machine runs the manager."""
        return self.is_launchd or _BOOTED.is_dir()

    def check(self, *, is_system: bool) -> None:
        """Raise UsageError where there is no such manager here, or this user may not ask it."""
        if not self.is_there:
            raise UsageError(_NO_SYSTEMD)
        if shutil.which(self.control[0]) is None:
            raise UsageError(f"there is no {self.control[0]} on PATH")
        if is_system and os.geteuid() != 0:
            raise UsageError("--system needs root; without it, the service is yours alone")
        if not (self.is_launchd or is_system or os.environ.get("XDG_RUNTIME_DIR")):
            user = "there is no service manager of this user here ($XDG_RUNTIME_DIR is not set)"
            raise UsageError(f"{user}; log in as that user, or install with --system as root")

    def run(self, *words: str) -> None:
        """Give it a command; raises PoolError with its words where it fails."""
        done = subprocess.run([*self.control, *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = clean((done.stderr or done.stdout).strip()) or f"code {done.returncode}"
            raise PoolError(f"`{' '.join([*self.control, *words])}` failed: {said}")

    def start(self, name: str, *, is_changed: bool) -> None:
        """Start it now and at each boot or login; one that runs goes on, but for launchd where it ``is_changed``."""
        if not self.is_launchd:
            self.run("daemon-reload")
            self.run("enable", "--now", f"{name}.service")
            return
        if is_changed:
            self.stop(name)  # launchd reads a definition only when it loads it
        if not self._is_loaded(name):
            self.run("bootstrap", self._domain, str(self.path(name)))

    def stop(self, name: str) -> None:
        """Stop it now, and start it no more."""
        if not self.is_launchd:
            self.run("disable", "--now", f"{name}.service")
        elif self._is_loaded(name):
            self.run("bootout", f"{self._domain}/{name}")

    def _is_loaded(self, name: str) -> bool:
        """Whether launchd knows it: one that could not be loaded, or was unloaded by hand, it does not."""
        return _ask([*self.control, "print", f"{self._domain}/{name}"]).returncode == 0

    @property
    def _domain(self) -> str:
        return "system" if self.directory == Path("/Library/LaunchDaemons") else f"gui/{os.getuid()}"


@service.command("install")
@connection_options
@click.option("--min", "min_workers", type=int, metavar="N", help="Idle workers to keep (pool.min).")
@click.option("--max", "max_workers", type=int, metavar="N", help="Worker processes at most (pool.max).")
@_name_option
@_system_option
@click.option("--print", "prints", is_flag=True, help="Print the definition and change nothing.")
def install(
    *,
    socket: str | None,
    config: str | None,
    data_dir: str | None,
    min_workers: int | None,
    max_workers: int | None,
    name: str,
    is_system: bool,
    prints: bool,
) -> None:
    """Install the supervisor as a service and start it, now and at each login (with --system: boot).

    The options are recorded, with the settings file that is found and the data directory. A second time, it updates
    the definition. Put variables that the settings name (secret_env, rpc.env_passthrough) into DATA_DIR/service.env,
    a line NAME=VALUE each (systemd only).
    """
    settings = load_with_flags(config, data_dir, machine=os.environ, min_workers=min_workers, max_workers=max_workers)
    place = _recorded_options(socket, config, settings)
    limits = _flags(min=min_workers, max=max_workers)
    spec = _spec(check_name(name), settings, place, limits, is_system=is_system)
    manager = _Manager.of(is_system=is_system)
    text = launchd_plist(spec) if manager.is_launchd else systemd_unit(spec)
    if prints:
        click.echo(text, nl=False)
        return
    manager.check(is_system=is_system)
    plan = plan_install(spec, text, manager.present())
    if plan == "new":
        _check_not_running(Path(spec.data_dir))
    _write(manager, spec, text, plan)
    _say(manager, spec, plan)


def _recorded_options(socket: str | None, config: str | None, settings: "Settings") -> tuple[str, ...]:
    """What finds the same supervisor from anywhere: absolute paths."""
    from settings.location import find_settings_file

    file = find_settings_file(config, os.environ, working_directory())
    named = socket or os.environ.get("POOL_SOCKET")
    return _flags(
        config=None if file is None else file.absolute(),
        data_dir=settings.data_dir,
        socket=Path(named).expanduser().absolute() if named else None,
    )


def _flags(**values: Any) -> tuple[str, ...]:
    given = {name: value for name, value in values.items() if value is not None}
    return tuple(word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value)))


def _spec(
    name: str, settings: "Settings", options: tuple[str, ...], limits: tuple[str, ...], *, is_system: bool
) -> ServiceSpec:
    script = Path(sys.executable).parent / "pool"
    rpc = settings.rpc
    ladder = rpc.abort_grace + rpc.eof_grace + rpc.term_grace
    return ServiceSpec(
        name=name,
        program=(str(script),) if os.access(script, os.X_OK) else (sys.executable, "-P", "-m", "cli"),
        options=options,
        limits=limits,
        data_dir=settings.data_dir,
        search_path=os.environ.get("PATH", os.defpath),
        stop_seconds=round(settings.pool.drain_timeout + ladder) + _END_SECONDS,
        is_system=is_system,
    )


def _check_not_running(data_dir: Path) -> None:
    """Raise UsageError where a supervisor that is no service already serves the directory."""
    from doors.locations import is_listening, read_lock_holder

    holder = read_lock_holder(data_dir)
    if holder is not None and is_listening(Path(holder.socket)):
        message = f"a supervisor (pid {holder.pid}) already serves the data directory {data_dir}"
        raise UsageError(f"{message}; `pool stop` ends it, then install again")


def _write(manager: _Manager, spec: ServiceSpec, text: str, plan: str) -> None:
    from doors.locations import make_private_dir

    if plan != "unchanged":
        make_private_dir(Path(spec.data_dir))  # where the service begins
        manager.directory.mkdir(parents=True, exist_ok=True)
        path = manager.path(spec.name)
        replace_file(path, text.encode())
        path.chmod(0o644)
    manager.start(spec.name, is_changed=plan == "updated")


def _say(manager: _Manager, spec: ServiceSpec, plan: str) -> None:
    holds = "was started with that again" if manager.is_launchd else "`pool restart` makes it hold"
    words = {"new": "is installed and runs", "unchanged": "is unchanged", "updated": f"is updated; {holds}"}
    click.echo(f"the service {spec.name} {words[plan]} ({clean(manager.path(spec.name))})")
    if not (manager.is_launchd or spec.is_system):
        user = pwd.getpwuid(os.getuid()).pw_name
        if not (_LINGERING / user).exists():
            click.echo(
                f"it ends when you log out, and starts when you log in; to keep it: loginctl enable-linger {user}"
            )


@service.command("uninstall")
@_name_option
@_system_option
def uninstall(name: str, *, is_system: bool) -> None:
    """Stop the service and remove its definition; the data directory stays."""
    manager = _Manager.of(is_system=is_system)
    manager.check(is_system=is_system)
    unit = next((unit for unit in manager.present() if unit.name == name), None)
    if unit is None or served_directory(unit.text) is None:
        _refuse_unknown(manager, name)
    manager.stop(name)
    manager.path(name).unlink()
    if not manager.is_launchd:
        manager.run("daemon-reload")
    click.echo(f"the service {name} is removed; its data stays in {clean(served_directory(unit.text))}")


@service.command("status")
@_system_option
@json_option
@click.pass_context
def status(ctx: click.Context, *, is_system: bool, as_json: bool) -> None:
    """List the services with their data directories and states; exit code 3 where none is active."""
    manager = _Manager.of(is_system=is_system)
    if not manager.is_there:
        click.echo(f"no service is active: {_NO_SYSTEMD}", err=True)
        ctx.exit(3)
    manager.check(is_system=is_system)
    units = list(ours(manager.present()))
    rows = [(unit, _state(manager, unit.name), served_directory(unit.text)) for unit in units]
    lines = [f"{unit.name}: {state}, data directory {clean(directory)}" for unit, state, directory in rows]
    text = "\n".join(lines) or "no service is installed; `pool service install` does it"
    answer = [{"name": unit.name, "state": state, "data_dir": directory} for unit, state, directory in rows]
    print_answer(answer, text, as_json=as_json)
    ctx.exit(0 if any(state.startswith("active") for _, state, _ in rows) else 3)


def _state(manager: _Manager, name: str) -> str:
    """In one phrase that begins with ``active`` where it runs."""
    if manager.is_launchd:
        done = _ask([*manager.control, "list", name]).stdout
        return "active" if '"PID"' in done else "not running"
    shown = _ask([*manager.control, "show", f"{name}.service", "--property=ActiveState,SubState,MainPID,UnitFileState"])
    facts = dict(line.partition("=")[::2] for line in shown.stdout.splitlines())
    more = f", pid {facts['MainPID']}" if facts.get("MainPID", "0") != "0" else ""
    enabled = facts.get("UnitFileState") or "-"
    return f"{facts.get('ActiveState', 'unknown')} ({facts.get('SubState', '-')}{more}), {enabled}"


def _ask(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _refuse_unknown(manager: _Manager, name: str) -> NoReturn:
    there = ", ".join(unit.name for unit in ours(manager.present()))
    raise UsageError(f"no service {name} was installed by `pool service install`; there is: {there or 'none'}")
