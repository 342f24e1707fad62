"""How soon a supervisor serves over what an earlier life has left: 10,000 sessions and 1,000,000 events."""

import tempfile
import time
from pathlib import Path

from benchmarks.bench_store import fill_store
from benchmarks.harness import Result, result
from benchmarks.promises import Promise
from benchmarks.supervisor import STREAMING_AGENT, running
from doors.control.client import ControlClient

_ROUNDS = 3


def run() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="pool-") as place:
        empty = min(_start(Path(place, "empty")) for _ in range(_ROUNDS))
        full = Path(place, "full")
        (full / "data").mkdir(parents=True)
        fill_store(full / "data" / "pool.db")
        _start(full)
        samples = [_start(full) for _ in range(_ROUNDS)]
    name, beside = "after a clean stop, to the first request served", (empty, "s over an empty store")
    return [result(name, min(samples), "s", promise=Promise.START, beside=beside, at_most=1.0)]


def _start(where: Path) -> float:
    """Seconds from nothing to the answer of a first ping."""
    started = time.perf_counter()
    with running(where, STREAMING_AGENT) as supervisor, ControlClient(supervisor.socket) as client:
        client.call("ping")
        return time.perf_counter() - started
