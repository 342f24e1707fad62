"""Definitions of a service for systemd and launchd, and what an installation does to those that are there. Pure."""

import plistlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from errors import UsageError

DEFAULT_NAME = "agent-pool"
_MARK = "X-AgentPool-DataDir"
"""A key that service managers ignore: the data directory that the service serves."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
WATCHDOG_SECONDS = 30
START_SECONDS = 300
"""Recovery of a large store included."""


class ServiceSpec(NamedTuple):
    """What is to be installed.

    ``program``: what ``pool`` is here, as words; ``options``: the options by which a command finds the supervisor;
    ``limits``: further ones of ``pool run``; ``search_path``: where agents' programs are looked for;
    ``stop_seconds``: the longest that an orderly end takes.
    """

    name: str
    program: tuple[str, ...]
    options: tuple[str, ...]
    limits: tuple[str, ...]
    data_dir: str
    search_path: str
    stop_seconds: int
    is_system: bool


class InstalledUnit(NamedTuple):
    """A definition that is there: its name, its text."""

    name: str
    text: str


def check_name(name: str) -> str:
    """The name of a service; raises UsageError for what no service manager takes."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be the name of a service: letters, digits and . _ - only")
    return name


def systemd_unit(spec: ServiceSpec) -> str:
    """The text of a unit of systemd."""
    run = _command([*spec.program, "run", *spec.options, *spec.limits])
    return f"""\
# Written by `pool service install`, which also updates it; `systemctl edit` adds to it.
[Unit]
Description=pool, a supervisor of coding agents ({_literal(spec.data_dir)})
{_MARK}={spec.data_dir}

[Service]
Type=notify
ExecStart={run}
ExecReload={_command([*spec.program, "reload", *spec.options])}
WorkingDirectory={_literal(spec.data_dir)}
Environment={_quoted(f"PATH={spec.search_path}")}
EnvironmentFile=-{_literal(spec.data_dir)}/service.env
UMask=0077
# A supervisor whose event loop hangs is ended and started again.
WatchdogSec={WATCHDOG_SECONDS}
Restart=on-failure
RestartSec=2
# Settings that cannot be used are for a person to mend.
RestartPreventExitStatus=2
TimeoutStartSec={START_SECONDS}
# pool.drain_timeout, then the kill ladder.
TimeoutStopSec={spec.stop_seconds}
# The supervisor ends its workers itself; what is left is killed with it.
KillMode=mixed
# A cgroup for each worker; a worker that runs out of memory ends alone.
Delegate=yes
OOMPolicy=continue

[Install]
WantedBy={"multi-user.target" if spec.is_system else "default.target"}
"""


def launchd_plist(spec: ServiceSpec) -> str:
    """The text of an agent (of root: a daemon) of launchd."""
    log = f"{spec.data_dir}/logs/supervisor.log"
    definition = {
        "Label": spec.name,
        _MARK: spec.data_dir,
        "ProgramArguments": [*spec.program, "run", *spec.options, *spec.limits],
        "WorkingDirectory": spec.data_dir,
        "EnvironmentVariables": {"PATH": spec.search_path},
        "Umask": 0o077,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ExitTimeOut": spec.stop_seconds,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    return plistlib.dumps(definition, sort_keys=False).decode()


def served_directory(text: str) -> str | None:
    """The data directory that a definition of ours serves; None for another program's."""
    found = re.search(rf"^{_MARK}=(.*)$", text, re.MULTILINE)
    if found is not None:
        return found[1]
    if _MARK not in text:
        return None
    try:
        definition = plistlib.loads(text.encode())
    except (plistlib.InvalidFileException, ValueError):
        return None
    directory = definition.get(_MARK) if isinstance(definition, Mapping) else None
    return directory if isinstance(directory, str) else None


def plan_install(spec: ServiceSpec, text: str, present: Sequence[InstalledUnit]) -> str:
    """``new``, ``updated`` or ``unchanged``. Raises UsageError where it would take another's place or directory.

    ``text``: the definition that is to be there. ``present``: those that are.
    """
    for unit in present:
        directory = served_directory(unit.text)
        if unit.name == spec.name and directory != spec.data_dir:
            whose = "is another program's" if directory is None else f"serves the data directory {directory}"
            raise UsageError(f"the service {unit.name} {whose}; give this one another name with --name")
        if unit.name != spec.name and directory == spec.data_dir:
            message = f"the service {unit.name} already serves the data directory {spec.data_dir}"
            raise UsageError(f"{message}; `pool service uninstall --name {unit.name}` removes it")
        if unit.name == spec.name:
            return "unchanged" if unit.text == text else "updated"
    return "new"


def ours(present: Sequence[InstalledUnit]) -> Iterator[InstalledUnit]:
    """Those that ``pool service install`` has written."""
    return (unit for unit in present if served_directory(unit.text) is not None)


def _command(words: Sequence[str]) -> str:
    """A command line as systemd reads it: no word is split, no variable is replaced."""
    return " ".join(_quoted(word).replace("$", "$$") for word in words)


def _quoted(word: str) -> str:
    text = _literal(word).replace("\\", "\\\\").replace('"', '\\"')
    return text if re.fullmatch(r"[\w@%/.:,+=-]+", text) else f'"{text}"'


def _literal(text: str) -> str:
    """Without specifiers; raises UsageError for what no line of a unit can hold."""
    if not text.isprintable():
        raise UsageError(f"{text!r} cannot stand in the definition of a service: it has control characters")
    return text.replace("%", "%%")
