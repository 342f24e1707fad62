"""What benchmarks of pipes and sockets share: a program behind pipes, ping-pong with it, and where both run."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import echo_worker

AGENT = (sys.executable, "-P", "-m", "agent", "--mode", "rpc", "--no-session")
ECHO = (sys.executable, "-P", str(Path(echo_worker.__file__)))
"""A worker that answers each request at once."""


class Program:
    """A running program and its pipes."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self.stdout = process.stdout
        self._stdin = process.stdin

    def say(self, line: bytes) -> None:
        os.write(self._stdin.fileno(), line)

    def wait_for(self, begin: bytes) -> bytes:
        """The next line that begins like this."""
        for line in self.stdout:
            if line.startswith(begin):
                return line
        raise AssertionError(f"the program ended before it said {begin!r}")

    def ping_pong(self, times: int) -> list[float]:
        """Microseconds of each round trip; nothing of its output may be read in another way."""
        return ping_pong(self._stdin.fileno(), self.stdout.fileno(), times)

    def end_input(self) -> None:
        self._stdin.close()


@contextmanager
def program(command: Sequence[str]) -> Iterator[Program]:
    """It runs from bytecode, as installed programs do; its stdin ends with the block, and the block with its end."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        running = Program(process)
        try:
            yield running
        finally:
            running.end_input()


def ping_pong(write_end: int, read_end: int, times: int) -> list[float]:
    """Microseconds of each request and its answer, without an event loop."""
    taken = []
    for number in range(times):
        begin = time.perf_counter()
        os.write(write_end, b'{"id":"%d","method":"ping","params":{}}\n' % number)
        os.read(read_end, 65536)
        taken.append((time.perf_counter() - begin) * 1e6)
    return taken


@contextmanager
def on_one_cpu() -> Iterator[list[int]]:
    """This process runs on the first of the CPUs that the block is given.

    Where the scheduler puts two ends decides more than the code does (five times, here), so both are placed.
    """
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[:1])
    try:
        yield cpus
    finally:
        os.sched_setaffinity(0, cpus)
