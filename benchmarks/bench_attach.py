"""``pool attach``: what a request takes through it, beside the worker alone and a round trip of the control socket.

Also beside two programs in its place that only copy bytes, as it is two programs on the way: its own, the supervisor.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.harness import Result, median, percentile, result, timed
from benchmarks.programs import AGENT, Program, program
from benchmarks.supervisor import running
from doors.control.client import ControlClient

_POOL = str(Path(sys.executable).parent / "pool")
_COPY = (sys.executable, "-P", str(Path(__file__).with_name("copy_program.py")))
_ROUNDS = 10
_TRIPS = 100
_STARTS = 7
_PIECES = 20_000
_SETTINGS = "[pool]\nmin = 2\n"


def run() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="pool-") as folder, running(Path(folder), _SETTINGS) as supervisor:
        os.environ["POOL_SOCKET"] = str(supervisor.socket)
        return [*_requests(supervisor.socket), *_starts(), *_streams()]


def _requests(socket: Path) -> list[Result]:
    """One request; in turns, so that all four see the same machine."""
    alone: list[float] = []
    copied: list[float] = []
    attached: list[float] = []
    pings: list[float] = []
    with (
        _ready(AGENT) as agent,
        _ready((*_COPY, "plain", *_COPY, "trio", *AGENT)) as copy,
        _ready(_attach("bench")) as front,
        ControlClient(socket) as client,
    ):
        for _ in range(_ROUNDS):
            alone += agent.ping_pong(_TRIPS)
            copied += copy.ping_pong(_TRIPS)
            attached += front.ping_pong(_TRIPS)
            pings += [timed(lambda: client.call("ping")) * 1e6 for _ in range(_TRIPS)]
    added, name = median(attached) - median(alone), "what attach adds to a request, p50"
    bare = (median(copied) - median(alone), "us two that only copy")
    socket_trip = (median(pings), "us round trip of the control socket")
    whole = (percentile(alone, 0.99), "us alone")
    return [
        result("a request through attach, p50", median(attached), "us", beside=(median(alone), "us alone")),
        result(name, added, "us", beside=socket_trip, ratio_at_most=2),
        result(name, added, "us", beside=bare),
        result("a request through attach, p99", percentile(attached, 0.99), "us", beside=whole),
    ]


def _starts() -> list[Result]:
    """From nothing to the first line, with a warm worker, beside a command that asks one question and leaves."""
    attach = median([_first_line(_attach("bench")) for _ in range(_STARTS)])
    agent = median([_first_line(AGENT) for _ in range(_STARTS)])
    status = median([timed(_list_workers) * 1e3 for _ in range(_STARTS)])
    return [
        result("start of attach to its first line", attach, "ms", beside=beside)
        for beside in ((agent, "ms agent alone"), (status, "ms pool workers"))
    ]


def _list_workers() -> None:
    subprocess.run([_POOL, "workers"], stdout=subprocess.DEVNULL, check=True)


def _first_line(command: Sequence[str]) -> float:
    begin = time.perf_counter()
    with _ready(command):
        return (time.perf_counter() - begin) * 1e3


def _streams() -> list[Result]:
    """One turn in many pieces."""
    with _ready(AGENT) as agent, _ready(_attach("stream")) as front:
        alone, through = (_PIECES / timed(partial(_stream, each)) for each in (agent, front))
    return [result("events of a turn through attach", through, "/s", beside=(alone, "/s alone"))]


def _stream(each: Program) -> None:
    each.say(b'{"id":"s","method":"prompt","params":{"text":"PIECES=%d"}}\n' % _PIECES)
    each.wait_for(b'{"id":"s"')


def _attach(session: str) -> list[str]:
    return [_POOL, "attach", "--mode", "rpc", "--session", session]


@contextmanager
def _ready(command: Sequence[str]) -> Iterator[Program]:
    """One that has said that it is ready."""
    with program(command) as started:
        started.wait_for(b'{"event":"ready"')
        yield started
