"""``pool attach``: what a request takes through it, beside the worker alone and a round trip of the control socket.

Also beside two programs in its place that only copy bytes, as it is two programs on the way: its own, the supervisor.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from benchmarks.harness import Result, median, percentile, result
from benchmarks.supervisor import running
from doors.control.client import ControlClient

_POOL = str(Path(sys.executable).parent / "pool")
_AGENT = [sys.executable, "-P", "-m", "agent", "--mode", "rpc", "--no-session"]
_COPY = [sys.executable, "-P", str(Path(__file__).with_name("copy_program.py"))]
_ROUNDS = 10
_TRIPS = 100
_STARTS = 7
_PIECES = 20_000
_SETTINGS = "[pool]\nmin = 2\n"


def run() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="pool-") as folder, running(Path(folder), _SETTINGS) as supervisor:
        os.environ["POOL_SOCKET"] = str(supervisor.socket)
        return [*_requests(supervisor.socket), *_starts(), *_streams()]


# --- one request ------------------------------------------------------------------------------------------------------


def _requests(socket: Path) -> list[Result]:
    """In turns, so that all four see the same machine."""
    alone: list[float] = []
    copied: list[float] = []
    attached: list[float] = []
    pings: list[float] = []
    with (
        _program(_AGENT) as agent,
        _program([*_COPY, "plain", *_COPY, "trio", *_AGENT]) as copy,
        _program(_attach("bench")) as front,
        ControlClient(socket) as client,
    ):
        for _ in range(_ROUNDS):
            alone += [_ping(agent) for _ in range(_TRIPS)]
            copied += [_ping(copy) for _ in range(_TRIPS)]
            attached += [_ping(front) for _ in range(_TRIPS)]
            pings += [_timed(lambda: client.call("ping")) for _ in range(_TRIPS)]
    added = median(attached) - median(alone)
    name = "us round trip of the control socket"
    return [
        result(
            "a request through attach, p50", median(attached), "us", baseline=median(alone), baseline_name="us alone"
        ),
        result(
            "what attach adds to a request, p50",
            added,
            "us",
            baseline=median(pings),
            baseline_name=name,
            ratio_at_most=2,
        ),
        result(
            "what attach adds to a request, p50",
            added,
            "us",
            baseline=median(copied) - median(alone),
            baseline_name="us two that only copy",
        ),
        result(
            "a request through attach, p99",
            percentile(attached, 0.99),
            "us",
            baseline=percentile(alone, 0.99),
            baseline_name="us alone",
        ),
    ]


def _ping(program: "subprocess.Popen[bytes]") -> float:
    stdin, stdout = _pipes(program)

    def ask() -> None:
        stdin.write(b'{"id":1,"method":"ping"}\n')
        stdout.readline()

    return _timed(ask)


# --- the start --------------------------------------------------------------------------------------------------------


def _starts() -> list[Result]:
    """From nothing to the first line, with a warm worker, beside a command that asks one question and leaves."""
    attach = median([_first_line(_attach("bench")) for _ in range(_STARTS)])
    agent = median([_first_line(_AGENT) for _ in range(_STARTS)])
    status = median(
        [
            _timed(lambda: subprocess.run([_POOL, "workers"], stdout=subprocess.DEVNULL, check=True))
            for _ in range(_STARTS)
        ]
    )
    return [
        result(
            "start of attach to its first line",
            attach / 1000,
            "ms",
            baseline=agent / 1000,
            baseline_name="ms agent alone",
        ),
        result(
            "start of attach to its first line",
            attach / 1000,
            "ms",
            baseline=status / 1000,
            baseline_name="ms pool workers",
        ),
    ]


def _first_line(command: list[str]) -> float:
    begin = time.perf_counter()
    with _program(command):
        return (time.perf_counter() - begin) * 1e6


# --- a stream ---------------------------------------------------------------------------------------------------------


def _streams() -> list[Result]:
    """One turn in many pieces."""
    with _program(_AGENT) as agent, _program(_attach("stream")) as front:
        alone, through = (_PIECES / (_stream(program) / 1e6) for program in (agent, front))
    return [result("events of a turn through attach", through, "/s", baseline=alone, baseline_name="/s alone")]


def _stream(program: "subprocess.Popen[bytes]") -> float:
    stdin, stdout = _pipes(program)

    def ask() -> None:
        stdin.write(b'{"id":"s","method":"prompt","params":{"text":"PIECES=%d"}}\n' % _PIECES)
        while not stdout.readline().startswith(b'{"id":"s"'):
            pass

    return _timed(ask)


# --- processes --------------------------------------------------------------------------------------------------------


def _attach(session: str) -> list[str]:
    return [_POOL, "attach", "--mode", "rpc", "--session", session]


@contextmanager
def _program(command: list[str]) -> "Iterator[subprocess.Popen[bytes]]":
    """One that has said that it is ready."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as program:
        stdin, stdout = _pipes(program)
        program.stdout = os.fdopen(os.dup(stdout.fileno()), "rb")
        stdout.close()
        try:
            if not program.stdout.readline().startswith(b'{"event":"ready"'):
                raise AssertionError(f"{command[0]} is not ready")
            yield program
        finally:
            stdin.close()


def _pipes(program: "subprocess.Popen[bytes]") -> tuple[IO[bytes], IO[bytes]]:
    assert program.stdin is not None
    assert program.stdout is not None
    return program.stdin, program.stdout


def _timed(act: Callable[[], object]) -> float:
    """Microseconds."""
    begin = time.perf_counter()
    act()
    return (time.perf_counter() - begin) * 1e6
