"""How soon ``pool run`` serves, over nothing and over what an earlier life has left, and what short commands cost.

Beside each stands a bare Python that imports what cannot be left out. Of each figure the least of some rounds counts.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.bench_store import fill_store
from benchmarks.harness import Result, result
from benchmarks.promises import Promise
from benchmarks.supervisor import STREAMING_AGENT, running
from doors.control.client import ControlClient

_ROUNDS = 5
_HTTP = '[http]\nbind = "127.0.0.1:0"\n'


class _Use(NamedTuple):
    """What a process took, in seconds."""

    wall: float
    cpu: float


def run() -> list[Result]:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every start compiles what it imports
    with tempfile.TemporaryDirectory(prefix="pool-") as place:
        return [*_starts(Path(place)), *_commands(Path(place, "commands"))]


# --- pool run ---------------------------------------------------------------------------------------------------------


def _starts(place: Path) -> list[Result]:
    full = place / "full"
    (full / "data").mkdir(parents=True)
    fill_store(full / "data" / "pool.db")
    bare, empty, http, after_stop, stop, after_kill = _least_of(
        lambda: _use_of([sys.executable, "-c", "import trio, msgspec"]).wall,
        lambda: _start(place / "empty"),
        lambda: _start(place / "http", _HTTP),
        lambda: _start(full),
        lambda: _stop(full),
        lambda: _start_after_kill(full),
    )
    imports, nothing = (bare, "s import of trio and msgspec"), (empty, "s over an empty store")
    return [
        result("empty store, to the first answer", empty, "s", promise=Promise.START, beside=imports, at_most=0.35),
        result("the same with HTTP", http, "s", promise=Promise.START, beside=imports, at_most=0.55),
        result("full store, after a clean stop", after_stop, "s", promise=Promise.START, beside=nothing, at_most=0.5),
        result("full store, after kill -9 (all of it is checked)", after_kill, "s", beside=nothing),
        result("full store, from `shutdown` to the end of the process", stop, "s"),
    ]


def _start(where: Path, more: str = "") -> float:
    """Seconds from nothing to the answer of a first ping."""
    started = time.perf_counter()
    with running(where, STREAMING_AGENT + more) as supervisor, ControlClient(supervisor.socket) as client:
        client.call("ping")
        return time.perf_counter() - started


def _stop(where: Path) -> float:
    with running(where, STREAMING_AGENT) as supervisor, ControlClient(supervisor.socket) as client:
        started = time.perf_counter()
        client.call("shutdown")
        supervisor.process.wait()
        return time.perf_counter() - started


def _start_after_kill(where: Path) -> float:
    with running(where, STREAMING_AGENT) as supervisor:
        supervisor.process.kill()
    return _start(where)


# --- commands ---------------------------------------------------------------------------------------------------------


def _commands(where: Path) -> list[Result]:
    with running(where, STREAMING_AGENT) as supervisor:
        pool = ["-P", "-m", "cli"]
        flags = ["--config", str(where / "pool.toml"), "--socket", str(supervisor.socket)]
        commands = (
            ["-c", "import click, msgspec"],
            [*pool, "--help"],
            [*pool, "prompt", "-s", "alice", "ECHO:hi", *flags],
            [*pool, "status", *flags],
        )
        taken = _least_of(*(partial(_cpu_milliseconds, command) for command in commands))
    beside = (taken[0], "ms import of click and msgspec")
    bars = {"pool --help": 60, "pool prompt": 90, "pool status": 120}
    return [
        result(f"{name}, CPU", value, "ms", promise=Promise.COMMANDS, beside=beside, at_most=limit)
        for (name, limit), value in zip(bars.items(), taken[1:], strict=True)
    ]


def _cpu_milliseconds(arguments: Sequence[str]) -> float:
    return _use_of([sys.executable, *arguments]).cpu * 1e3


def _least_of(*measures: Callable[[], float]) -> list[float]:
    """Measured in turns, so that a busy moment of the machine meets all of them; the first round writes bytecode."""
    rounds = [[measure() for measure in measures] for _ in range(1 + _ROUNDS)][1:]
    return [min(samples) for samples in zip(*rounds, strict=True)]


def _use_of(command: Sequence[str]) -> _Use:
    started = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return _Use(time.perf_counter() - started, usage.ru_utime + usage.ru_stime)
