"""Durable turns through a real supervisor with the bundled agent, several sessions at once.

``python -m benchmarks.bench_turns`` prints turns a second, CPU of the supervisor and of a worker a turn, the latency of
a single session and, where strace is installed, system calls of the supervisor a turn. ``--against DIR`` measures
another checkout in turns with this one (A B A B), so that both see the same machine.

The client is a process of plain sockets and threads that imports nothing of the project: it costs both sides the same.
"""

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.harness import Result, median, percentile, result
from benchmarks.promises import Promise

_HERE = Path(__file__).resolve().parent.parent
_READY_SECONDS = 30.0
_SETTINGS = "[pool]\nmax = 16\n"
_WARM_TURNS = 20
_STRACED_TURNS = 400
_FEW_TURNS = 300
"""For the latency: one session, one turn after the other."""
_NS = 1e9
_judge = partial(result, promise=Promise.TURN)


_SESSIONS = 8
_TURNS = 1600
_ROUNDS = 3
_AT_MOST_CALLS = {"futex": 8.0, "pwrite64": 10.0, "fcntl": 2.0, "sendto": 6.0}
"""System calls of the supervisor a turn."""


def run() -> list[Result]:
    (rounds,) = compare([_HERE], _SESSIONS, _TURNS, _ROUNDS)
    calls = _system_calls(_HERE, _SESSIONS) or {}
    alone = [sample for each in rounds for sample in each.latencies]
    return [
        _judge("turns, eight sessions", median([each.turns_per_second for each in rounds]), "/s"),
        _judge("CPU of the supervisor", median([each.supervisor_ms for each in rounds]), "ms a turn", at_most=1.0),
        _judge("CPU of the bundled agent", median([each.worker_ms for each in rounds]), "ms a turn", at_most=1.0),
        _judge("one session alone, p50", median(alone), "ms", at_most=0.8),
        _judge("one session alone, p99", percentile(alone, 0.99), "ms", at_most=2.0),
        *(
            _judge(f"{name} of the supervisor", calls.get(name, 0.0), "a turn", at_most=most)
            for name, most in _AT_MOST_CALLS.items()
            if calls
        ),
    ]


class Round(NamedTuple):
    """What one round of load has shown."""

    turns_per_second: float
    supervisor_ms: float
    """CPU of the supervisor a turn."""
    worker_ms: float
    """CPU of all workers a turn."""
    latencies: list[float]
    """Milliseconds of single turns, nothing else going on."""


class Served:
    """A supervisor of some checkout that serves in a folder of its own, and clients for it."""

    def __init__(self, process: psutil.Process, path: Path, sessions: int) -> None:
        self._process = process
        self._sockets = [_connect(path) for _ in range(sessions)]

    def warm_up(self) -> None:
        """Give each session a worker that has answered."""
        self.take_turns(_WARM_TURNS * len(self._sockets))

    def measure(self, turns: int) -> Round:
        """A round of ``turns`` in all, every session with one at a time."""
        workers = self._workers()
        before = _cpu_seconds(self._process), sum(map(_cpu_seconds, workers))
        seconds = self.take_turns(turns)
        after = _cpu_seconds(self._process), sum(map(_cpu_seconds, workers))
        supervisor, worker = ((late - early) * 1e3 / turns for late, early in zip(after, before, strict=True))
        return Round(turns / seconds, supervisor, worker, [self._one_turn() * 1e3 for _ in range(_FEW_TURNS)])

    def take_turns(self, turns: int) -> float:
        """Seconds that ``turns`` turns take, all sessions at once."""
        share = turns // len(self._sockets)
        failures: list[BaseException] = []
        threads = [
            threading.Thread(target=_converse, args=(sock, f"s{number}", share, failures))
            for number, sock in enumerate(self._sockets)
        ]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return time.perf_counter() - begin

    def count_system_calls(self) -> dict[str, float] | None:
        """System calls of the supervisor a turn; None without strace, or where it may not attach."""
        strace = shutil.which("strace")
        if strace is None:
            return None
        with tempfile.NamedTemporaryFile("r") as summary:
            command = [strace, "-c", "-f", "-o", summary.name, "-p", str(self._process.pid)]
            with subprocess.Popen(command, stderr=subprocess.PIPE) as tracer:
                assert tracer.stderr is not None  # opened as a pipe above
                is_attached = b"attached" in tracer.stderr.readline()
                if is_attached:
                    self.take_turns(_STRACED_TURNS)
                tracer.terminate()
            return _calls_per_turn(summary.read()) if is_attached else None

    def close(self) -> None:
        """Hang up."""
        for sock in self._sockets:
            sock.close()

    def _workers(self) -> list[psutil.Process]:
        """Those of the warm sessions; a process of another kind in between costs nothing while it waits."""
        return self._process.children(recursive=True)

    def _one_turn(self) -> float:
        failures: list[BaseException] = []
        begin = time.perf_counter()
        _converse(self._sockets[0], "s0", 1, failures)
        seconds = time.perf_counter() - begin
        if failures:
            raise failures[0]
        return seconds


def _connect(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    return sock


def _converse(sock: socket.socket, session: str, turns: int, failures: list[BaseException]) -> None:
    """Prompt and wait for the answer, ``turns`` times; what goes wrong ends up in ``failures``."""
    request = {"id": "1", "method": "prompt", "params": {"session": session, "text": "ECHO:hi"}}
    line = json.dumps(request).encode() + b"\n"
    try:
        for _ in range(turns):
            sock.sendall(line)
            _await_answer(sock)
    except BaseException as exc:  # noqa: BLE001  # of a thread: reported by the one that waits for it
        failures.append(exc)


def _await_answer(sock: socket.socket) -> None:
    pending = b""
    while True:
        data = sock.recv(65536)
        if not data:
            raise ConnectionError("the supervisor has closed the connection")
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message.get("id") == "1":
                if message.get("error") or message.get("ok") is False or message["result"]["status"] != "ok":
                    raise RuntimeError(f"a turn failed: {line.decode()}")
                return


def _cpu_seconds(process: psutil.Process) -> float:
    """User and system time of all threads, finer than the ticks of ``stat``."""
    total = 0
    for schedule in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
        total += int(schedule.read_text().split()[0])
    return total / _NS


def _calls_per_turn(summary: str) -> dict[str, float]:
    counts = Counter[str]()
    for line in summary.splitlines():
        found = re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line)
        if found and found[2] != "total":
            counts[found[2]] += int(found[1])
    return {name: count / _STRACED_TURNS for name, count in counts.most_common()}


@contextmanager
def serving(checkout: Path, sessions: int) -> Iterator[Served]:
    """Start ``pool run`` of a checkout with its own interpreter, hence its own agent; leaves no process behind."""
    python = checkout / ".venv" / "bin" / "python"
    if not python.exists():
        sys.exit(f"{checkout} has no environment of its own: run `make .venv/.installed` there")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POOL_")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # each start would compile what has no bytecode yet
    with tempfile.TemporaryDirectory(prefix="pool-") as place:
        folder = Path(place)
        (folder / "pool.toml").write_text(_SETTINGS)
        command = [str(python), "-P", "-m", "cli", "run", "--config", str(folder / "pool.toml")]
        command += ["--data-dir", str(folder / "data"), "--socket", str(folder / "s")]
        with subprocess.Popen(command, cwd=checkout, env=environment, stderr=subprocess.PIPE, text=True) as process:
            try:
                _wait_until_ready(process)
                served = Served(psutil.Process(process.pid), folder / "s", sessions)
                yield served
                served.close()
            finally:
                process.terminate()


def _wait_until_ready(process: "subprocess.Popen[str]") -> None:
    """Read its log until it says so, and go on reading in a thread, so that it never waits for us."""
    assert process.stderr is not None  # opened as a pipe by the caller
    said = []
    for line in process.stderr:
        said.append(line)
        if '"event":"ready"' in line:
            break
    else:
        raise RuntimeError("the supervisor did not start: " + "".join(said[-20:]))
    threading.Thread(target=lambda: process.stderr and process.stderr.read(), daemon=True).start()


def compare(checkouts: Sequence[Path], sessions: int, turns: int, rounds: int) -> list[list[Round]]:
    """Rounds of each checkout, in turns, each with a supervisor of its own."""
    measured: list[list[Round]] = [[] for _ in checkouts]
    for _ in range(rounds):
        for checkout, rounds_of_it in zip(checkouts, measured, strict=True):
            with serving(checkout, sessions) as served:
                served.warm_up()
                rounds_of_it.append(served.measure(turns))
    return measured


def _system_calls(checkout: Path, sessions: int) -> dict[str, float] | None:
    with serving(checkout, sessions) as served:
        served.warm_up()
        return served.count_system_calls()


def main() -> int:
    """Print one line for each checkout."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_turns", description=__doc__)
    parser.add_argument("--sessions", type=int, default=_SESSIONS, help="sessions at once, each with a warm worker")
    parser.add_argument("--turns", type=int, default=_TURNS, help="turns of one round")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--against", type=Path, action="append", default=[], metavar="DIR", help="another checkout")
    parser.add_argument("--no-strace", action="store_true", help="do not count system calls")
    arguments = parser.parse_args()
    checkouts = [_HERE, *(other.resolve() for other in arguments.against)]
    measured = compare(checkouts, arguments.sessions, arguments.turns, arguments.rounds)
    calls = [None if arguments.no_strace else _system_calls(checkout, arguments.sessions) for checkout in checkouts]
    names = ["this one", *(str(other) for other in arguments.against)]
    for name, rounds, counts in zip(names, measured, calls, strict=True):
        print(f"{name}: {_summary(rounds, counts)}")
    return 0


def _summary(rounds: Sequence[Round], calls: dict[str, float] | None) -> str:
    latencies = [sample for each in rounds for sample in each.latencies]
    rates, own, workers = (sorted(values) for values in list(zip(*rounds, strict=True))[:3])
    text = (
        f"{statistics.median(rates):.0f} turns/s ({rates[0]:.0f} ... {rates[-1]:.0f}), supervisor "
        f"{statistics.median(own):.2f} ms a turn, worker {statistics.median(workers):.2f} ms a turn, "
        f"alone p50 {median(latencies):.2f} ms, p99 {percentile(latencies, 0.99):.2f} ms"
    )
    if calls:
        shown = ", ".join(f"{name} {count:.1f}" for name, count in calls.items() if count >= 0.05)
        text += f"\n  system calls a turn: {shown}"
    return text


if __name__ == "__main__":
    sys.exit(main())
