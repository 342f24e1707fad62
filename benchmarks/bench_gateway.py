"""The whole way through a real supervisor: a durable run, a stream of events to one subscriber, memory, the start."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks import stream_worker
from benchmarks.bench_store import fill
from benchmarks.harness import Result, median, percentile, result
from doors.control_client import ControlClient

_POOL = (sys.executable, "-P", "-m", "cli")
_PIECES = 400_000
_RUNS = 500
_SESSIONS = 10_000
_EVENTS = 1_000_000
_LIMIT = 60.0
_SETTINGS = f"""
[pool]
max = 2
[agents.main]
command = ["{sys.executable}", "-P", "{Path(stream_worker.__file__)}"]
"""


def run() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="pool-bench-") as place:
        where = Path(place)
        (where / "pool.toml").write_text(_SETTINGS)
        with _supervisor(where) as process:
            figures = [*_durable_runs(where), *_events(where), *_memory(where, process)]
        return [*figures, *_start(where)]


@contextmanager
def _supervisor(where: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A real ``pool run`` over the data directory ``where``, ready."""
    command = [*_POOL, "run", "--config", str(where / "pool.toml"), "--data-dir", str(where), *_socket(where)]
    with (where / "log").open("ab") as log, subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL) as process:
        try:
            _wait_ready(where, process)
            yield process
        finally:
            process.terminate()
            process.wait(_LIMIT)


def _socket(where: Path) -> list[str]:
    return ["--socket", str(where / "s")]


def _wait_ready(where: Path, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _LIMIT
    while process.poll() is None and time.monotonic() < deadline:
        if (where / "s").exists():
            return
        time.sleep(0.005)
    raise RuntimeError((where / "log").read_text())


# --- one run ----------------------------------------------------------------------------------------------------------


def _durable_runs(where: Path) -> list[Result]:
    with ControlClient(where / "s") as client:
        client.call("prompt", {"session": "warm", "text": "hello"})
        runs = [_time(client, "prompt", {"session": "warm", "text": "hello"}) for _ in range(_RUNS)]
        pings = [_time(client, "ping", {}) for _ in range(_RUNS)]
    baseline = median(pings)
    return [
        result(
            "durable warm run through the socket, p50", median(runs), "ms", baseline=baseline, baseline_name="ms ping"
        ),
        result("durable warm run through the socket, p99", percentile(runs, 0.99), "ms", at_most=5),
    ]


def _time(client: ControlClient, method: str, params: dict[str, Any]) -> float:
    started = time.perf_counter()
    client.call(method, params)
    return (time.perf_counter() - started) * 1e3


# --- many events ------------------------------------------------------------------------------------------------------


def _events(where: Path) -> list[Result]:
    """One worker streams; one subscriber takes it all, and looks no closer than at the number of events."""
    _stream(where, _PIECES)  # the worker makes its blocks
    rates = [_stream(where, _PIECES) for _ in range(3)]
    bare = _cat(_PIECES)
    return [
        result(
            "events through the socket to one subscriber",
            max(rates),
            "1/s",
            baseline=bare,
            baseline_name="1/s the worker's bytes through a pipe",
            at_least=500_000,
        )
    ]


def _stream(where: Path, pieces: int) -> float:
    """Events a second from the prompt to the last piece."""
    with ControlClient(where / "s") as listener, ControlClient(where / "s") as client:
        subscription = listener.subscribe({"session": "stream", "channels": ["progress"]})
        started = time.perf_counter()
        accepted = client.call("agent", {"session": "stream", "text": str(pieces), "queue": "followup"})
        seen = 0
        for events in subscription:
            seen += bytes(events).count(b'"type":"text_chunk"')
            if seen >= pieces:
                break
        taken = time.perf_counter() - started
        client.call("agent.wait", {"run_id": accepted["run_id"]})
    return pieces / taken


def _cat(pieces: int) -> float:
    """The same worker, read by somebody who does nothing with it."""
    command = (sys.executable, "-P", str(Path(stream_worker.__file__)))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        taken = 0.0  # of the second prompt; the first one warms the worker
        request = b'{"id":"%d","method":"prompt","params":{"text":"%d"}}\n'
        for number in range(2):
            started = time.perf_counter()
            worker.stdin.write(request % (number, pieces))
            while b'"id": "%d"' % number not in (data := os.read(worker.stdout.fileno(), 1 << 20)) and (
                b'"id":"%d"' % number not in data
            ):
                pass
            taken = time.perf_counter() - started
        worker.stdin.close()
    return pieces / taken


# --- memory and start -------------------------------------------------------------------------------------------------


def _memory(where: Path, process: "subprocess.Popen[bytes]") -> list[Result]:
    """10,000 sessions known, 1,000,000 events through: in all, and whether more still grows it."""
    with ControlClient(where / "s") as client:
        for number in range(_SESSIONS):
            client.call("prompt", {"session": f"s{number}", "text": "hello"})
        for _ in range(_EVENTS // _PIECES + 1):
            client.call("prompt", {"session": "stream", "text": str(_PIECES)}, timeout=_LIMIT)
        rss = psutil.Process(process.pid).memory_info().rss / 2**20
        for _ in range(_EVENTS // _PIECES + 1):
            client.call("prompt", {"session": "stream", "text": str(_PIECES)}, timeout=_LIMIT)
        later = psutil.Process(process.pid).memory_info().rss / 2**20
    return [
        result("memory with 10,000 sessions and 1,000,000 events through", rss, "MiB", at_most=150),
        result("the same a million events later", later, "MiB", baseline=rss, baseline_name="MiB", ratio_at_most=1.05),
    ]


def _start(where: Path) -> list[Result]:
    """Of a supervisor over what the others have left, and a million events, after a clean stop: until it serves."""
    fill(where / "pool.db", _EVENTS)
    samples = []
    for _ in range(3):
        started = time.perf_counter()
        with _supervisor(where):
            samples.append(time.perf_counter() - started)
    return [result("start over 10,000 sessions and 1,000,000 events", min(samples), "s", at_most=1)]
