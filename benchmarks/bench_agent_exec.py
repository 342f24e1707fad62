"""What the agent's ``exec`` costs: a hundred thousand lines beside the same shell command read by a bare loop."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import trio

from agent.processes.registry import ProcessRegistry
from agent.tools.base import ToolContext
from agent.tools.exec import ExecInput, ExecTool
from benchmarks.harness import Result, median, result

_LINES = 100_000
_ROUNDS = 15
_SPREAD_SECONDS = 1.0
_READ_BYTES = 64 * 1024
_MIB = 1024 * 1024


def run() -> list[Result]:
    text = "the quick brown fox jumps over the lazy dog. " * 2
    with tempfile.TemporaryDirectory() as directory:
        path, script = Path(directory, "lines"), Path(directory, "slowly.py")
        path.write_text("".join(f"{number:06d} {text}\n" for number in range(_LINES)))
        script.write_text(_SLOW_WRITER)
        return trio.run(_measure, f"cat {path}", f"{sys.executable} {script}", path.stat().st_size / _MIB)


async def _measure(command: str, slow_command: str, size: float) -> list[Result]:
    async with trio.open_nursery() as nursery:
        registry = ProcessRegistry()
        await nursery.start(registry.run)
        call = _caller(registry)
        await call("true")
        before = psutil.Process().memory_info().rss
        bare, ours = [], []
        for _ in range(_ROUNDS):  # in turn, so that whatever else the machine does weighs on both
            bare.append(_bare(command))
            ours.append((await call(command))[0])
        grown = (psutil.Process().memory_info().rss - before) / _MIB
        seconds, updates = await call(slow_command)
        nursery.cancel_scope.cancel()
    return [
        result(
            f"exec: {_LINES:,} lines ({size:.1f} MiB)",
            median(ours) * 1000,
            "ms",
            beside=(median(bare) * 1000, "ms bare read of the same command"),
            ratio_at_most=2.0,
        ),
        result("exec: growth of RSS by all that", grown, "MiB", at_most=5.0),
        result("exec: updates a second, lines over a second", updates / seconds, "/s", at_most=21.0),
    ]


_SLOW_WRITER = (
    "import time\n"
    f"for number in range({_LINES // 100}):\n"
    "    print(*range(100), sep=chr(10), flush=True)\n"
    f"    time.sleep({_SPREAD_SECONDS / (_LINES // 100)})\n"
)


def _caller(registry: ProcessRegistry) -> Callable[[str], Awaitable[tuple[float, int]]]:
    """A call of the tool; seconds, and the number of its updates."""

    async def call(command: str) -> tuple[float, int]:
        updates: list[object] = []
        context = ToolContext("/", dict(os.environ), registry, updates.append)
        start = time.perf_counter()
        await ExecTool().run(ExecInput(command=command), context)
        return time.perf_counter() - start, len(updates)

    return call


def _bare(command: str) -> float:
    start = time.perf_counter()
    with subprocess.Popen(["/bin/bash", "-c", command], stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        while os.read(process.stdout.fileno(), _READ_BYTES):
            pass
    return time.perf_counter() - start
