"""A real ``pool run`` in a process of its own, for the benchmarks that measure the whole way."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from app.child import SupervisorProcess
from benchmarks import stream_worker

STREAMING_AGENT = f"""
[agents.main]
command = ["{sys.executable}", "-P", "{Path(stream_worker.__file__)}"]
"""
"""Settings of an agent that costs next to nothing, so that what is measured is ours."""


class Supervisor(NamedTuple):
    """One that serves."""

    process: psutil.Process
    socket: Path

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
def running(where: Path, settings: str) -> Iterator[Supervisor]:
    """Start one in the folder ``where`` and wait until it serves; at the end, until it has ended."""
    where.mkdir(exist_ok=True)
    with SupervisorProcess(where, settings) as process:
        yield Supervisor(psutil.Process(process.pid), process.socket)
