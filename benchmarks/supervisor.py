"""A real ``pool run`` in a process of its own, for the benchmarks that measure the whole way."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks import stream_worker

_POOL = (sys.executable, "-P", "-m", "cli")
_LIMIT = 60.0
"""Seconds for a start or an end."""

STREAMING_AGENT = f"""
[agents.main]
command = ["{sys.executable}", "-P", "{Path(stream_worker.__file__)}"]
"""
"""Settings of an agent that costs next to nothing, so that what is measured is ours."""


class Supervisor(NamedTuple):
    """One that serves. ``settings`` and the log lie in the data directory ``where``."""

    process: psutil.Process
    socket: Path
    where: Path

    def memory(self) -> float:
        """Its resident memory in MiB, as it is now."""
        return float(self.process.memory_info().rss) / 2**20

    def peak_memory(self) -> float:
        """The most that it has ever had, in MiB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024

    def http_port(self) -> int:
        """Where its HTTP door listens."""
        ports = [found.laddr.port for found in self.process.net_connections("tcp") if found.status == "LISTEN"]
        if len(ports) != 1:
            raise RuntimeError(f"one port was to be open, and these are: {ports}")
        return int(ports[0])


@contextmanager
def running(where: Path, settings: str, env: Mapping[str, str] | None = None) -> Iterator[Supervisor]:
    """Start one over the data directory ``where`` and wait until it serves; at the end, until it is gone."""
    where.mkdir(exist_ok=True)
    (where / "pool.toml").write_text(settings)
    path = where / "s"
    command = [*_POOL, "run", "--config", str(where / "pool.toml"), "--data-dir", str(where), "--socket", str(path)]
    with _ready_signal(where / "ready") as ready, (where / "log").open("ab") as log:
        environment = {**os.environ, **(env or {}), "NOTIFY_SOCKET": str(where / "ready")}
        with subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL, env=environment) as process:
            try:
                _wait_ready(ready, process, where / "log")
                yield Supervisor(psutil.Process(process.pid), path, where)
            finally:
                process.terminate()
                process.wait(_LIMIT)


@contextmanager
def _ready_signal(path: Path) -> Iterator[socket.socket]:
    """A socket on which the supervisor says that it serves, as it would to a service manager."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind(str(path))
        ready.settimeout(_LIMIT)
        yield ready


def _wait_ready(ready: socket.socket, process: "subprocess.Popen[bytes]", log: Path) -> None:
    try:
        while b"READY=1" not in ready.recv(4096).split(b"\n"):
            pass
    except TimeoutError as exc:
        raise RuntimeError(f"no supervisor, exit status {process.poll()}: {log.read_text()}") from exc
