"""What a supervisor takes with 64 real workers, 10,000 sessions and a million events, and whether more still grows it.

Every session has a turn of its own with the bundled agent's scripted model, 64 at a time. The events are the pieces of
long answers, a worker each, read by one subscriber of everything: they take the whole way from pipe to socket.
"""

import tempfile
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from benchmarks.harness import Result, result
from benchmarks.promises import Promise
from benchmarks.supervisor import Supervisor, running
from doors.control_client import ControlClient, Stream

_WORKERS = 64
_SESSIONS = 10_000
_EVENTS = 1_000_000
_PIECES = 15_625
"""Of one answer: each worker gives one of them for a million."""
_LIMIT = 120
_SETTINGS = f"""
[pool]
max = {_WORKERS}
spawn_burst = {_WORKERS}
worker_memory = "64MiB"
"""


def run() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="pool-") as place, running(Path(place), _SETTINGS) as supervisor:
        at_start = supervisor.memory()
        _begin_sessions(supervisor)
        workers = _workers(supervisor)
        known = supervisor.memory()
        events = _stream(supervisor)
        through = supervisor.memory()
        more = _stream(supervisor)
        later, peak = supervisor.memory(), supervisor.peak_memory()
    return [
        _megabytes(f"at the end, {workers} workers, {_SESSIONS:,} sessions, {events + more:,} events", later, at_start),
        _megabytes("the most it ever had", peak, at_start),
        result(
            f"of it, grown by the last {more:,} events",
            later,
            "MiB",
            promise=Promise.MEMORY,
            baseline=through,
            baseline_name=f"MiB after {events:,}",
            ratio_at_most=1.05,
        ),
        result(
            f"with {_SESSIONS:,} sessions, before the events",
            known,
            "MiB",
            baseline=at_start,
            baseline_name="MiB at start",
        ),
    ]


def _megabytes(name: str, value: float, at_start: float) -> Result:
    return result(
        name, value, "MiB", promise=Promise.MEMORY, baseline=at_start, baseline_name="MiB at start", at_most=150
    )


def _begin_sessions(supervisor: Supervisor) -> None:
    _prompt(supervisor, ((f"s{number}", "hello") for number in range(_SESSIONS)))


def _workers(supervisor: Supervisor) -> int:
    with ControlClient(supervisor.socket) as client:
        return int(client.call("status")["pool"]["total"])


def _stream(supervisor: Supervisor) -> int:
    """Put a million events through; how many it were."""
    with ControlClient(supervisor.socket) as listener:
        seen = _Seen(listener)
        _prompt(supervisor, ((f"s{number}", f"PIECES={_PIECES}") for number in range(_EVENTS // _PIECES)))
        return seen.wait()


def _prompt(supervisor: Supervisor, prompts: Iterable[tuple[str, str]]) -> None:
    """As many runs at a time as there are workers; their outcomes are waited for, their events are not read here."""
    waiting: deque[Stream] = deque()
    with ControlClient(supervisor.socket) as client:
        for session, text in prompts:
            if len(waiting) == _WORKERS:
                _finish(waiting.popleft())
            run = client.call("agent", {"session": session, "text": text})["run_id"]
            waiting.append(client.stream("agent.wait", {"run_id": run, "timeout_ms": _LIMIT * 1000}, timeout=_LIMIT))
        while waiting:
            _finish(waiting.popleft())


def _finish(stream: Stream) -> None:
    for _ in stream:
        """Nothing is told but the outcome."""
    if stream.result["status"] != "ok":
        raise AssertionError(stream.result)


class _Seen:
    """Counts text pieces in a thread of its own, from its beginning until all are there."""

    def __init__(self, listener: ControlClient) -> None:
        self._subscription = listener.subscribe({"channels": ["progress"]})
        self._pieces = 0
        self._thread = threading.Thread(target=self._count)
        self._thread.start()

    def _count(self) -> None:
        for events in self._subscription:
            self._pieces += bytes(events).count(b'"text_chunk"')
            if self._pieces >= _EVENTS:
                return

    def wait(self) -> int:
        """How many there were."""
        self._thread.join(_LIMIT)
        if self._thread.is_alive():
            raise AssertionError(f"only {self._pieces:,} pieces arrived; {self._subscription.reason}")
        return self._pieces
