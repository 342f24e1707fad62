"""A real supervisor as its clients see it: a ping beside a bare pipe, and a durable run beside a ping."""

import tempfile
from pathlib import Path

from benchmarks.bench_socket import ping
from benchmarks.door_server import DoorServer
from benchmarks.harness import Result, median, percentile, result, timed
from benchmarks.promises import Promise
from benchmarks.supervisor import STREAMING_AGENT, running
from doors.control.client import ControlClient

_RUNS = 1000


def run() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="pool-") as place, running(Path(place), STREAMING_AGENT) as supervisor:
        server = DoorServer(supervisor.process, supervisor.socket, 0)
        return [*ping(server, Promise.PING), *_durable_runs(supervisor.socket)]


def _durable_runs(path: Path) -> list[Result]:
    with ControlClient(path) as client:
        prompt = {"session": "warm", "text": "hello"}
        client.call("prompt", prompt)
        runs = [timed(lambda: client.call("prompt", prompt)) * 1e3 for _ in range(_RUNS)]
        pings = [timed(lambda: client.call("ping")) * 1e3 for _ in range(_RUNS)]
    usual, most = (median(pings), "ms ping"), (percentile(pings, 0.99), "ms ping")
    return [
        result("p99", percentile(runs, 0.99), "ms", promise=Promise.DURABLE_RUN, beside=most, at_most=5),
        result("p50", median(runs), "ms", promise=Promise.DURABLE_RUN, beside=usual),
    ]
