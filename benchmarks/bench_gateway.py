"""A real supervisor as its clients see it: a ping beside a bare pipe, and a durable run beside a ping."""

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.bench_socket import ping
from benchmarks.harness import Result, median, percentile, result
from benchmarks.promises import Promise
from benchmarks.supervisor import STREAMING_AGENT, running
from doors.control.client import ControlClient

_RUNS = 1000


def run() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="pool-") as place, running(Path(place), STREAMING_AGENT) as supervisor:
        return [*ping(supervisor.process.pid, supervisor.socket, Promise.PING), *_durable_runs(supervisor.socket)]


def _durable_runs(path: Path) -> list[Result]:
    with ControlClient(path) as client:
        client.call("prompt", {"session": "warm", "text": "hello"})
        runs = [_time(client, "prompt", {"session": "warm", "text": "hello"}) for _ in range(_RUNS)]
        pings = [_time(client, "ping", {}) for _ in range(_RUNS)]
    return [
        result(
            "p99",
            percentile(runs, 0.99),
            "ms",
            promise=Promise.DURABLE_RUN,
            baseline=percentile(pings, 0.99),
            baseline_name="ms ping",
            at_most=5,
        ),
        result(
            "p50",
            median(runs),
            "ms",
            promise=Promise.DURABLE_RUN,
            baseline=median(pings),
            baseline_name="ms ping",
        ),
    ]


def _time(client: ControlClient, method: str, params: dict[str, Any]) -> float:
    started = time.perf_counter()
    client.call(method, params)
    return (time.perf_counter() - started) * 1e3
