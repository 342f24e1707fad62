"""What a supervisor takes with 64 real workers, 10,000 sessions and a million events, and whether more still grows it.

Every session has a turn with the bundled agent's scripted model, 64 at a time, and each answer comes in 100 pieces: a
million events, which one subscriber of everything reads. Five further millions come in few long answers, so that what
is kept of answers, for those who ask later, is full after the first of them: less of that is kept here than ordinarily.
"""

import tempfile
import threading
from collections import deque
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from benchmarks.harness import Result, result
from benchmarks.promises import Promise
from benchmarks.supervisor import Supervisor, running
from doors.control.client import ControlClient, RequestStream

_WORKERS = 64
_SESSIONS = 10_000
_LONG_ANSWERS = 5 * _WORKERS
_EVENTS = 1_000_000
_LIMIT = 120
_SETTINGS = f"""
[pool]
max = {_WORKERS}
spawn_burst = {_WORKERS}
worker_memory = "64MiB"
[gateway]
outcome_bytes = "8MiB"
"""


def run() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="pool-") as place, running(Path(place), _SETTINGS) as supervisor:
        at_start = supervisor.memory()
        _stream(supervisor, _SESSIONS)
        workers, through = _workers(supervisor), supervisor.peak_memory()
        after = {millions: _memory_after_another(supervisor) for millions in range(2, 7)}
    judge = partial(result, promise=Promise.MEMORY)
    most = f"the most with {workers} workers, {_SESSIONS:,} sessions, {_EVENTS:,} events"
    beside = (after[2], f"MiB after {2 * _EVENTS:,}")
    return [
        judge(most, through, "MiB", beside=(at_start, "MiB at start"), at_most=150),
        judge(f"after {4 * _EVENTS:,} events", after[4], "MiB", at_most=150),
        judge(f"after {6 * _EVENTS:,} events", after[6], "MiB", beside=beside, ratio_at_most=1.01),
    ]


def _memory_after_another(supervisor: Supervisor) -> float:
    """After a million more, in long answers."""
    _stream(supervisor, _LONG_ANSWERS)
    return supervisor.memory()


def _workers(supervisor: Supervisor) -> int:
    with ControlClient(supervisor.socket) as client:
        return int(client.call("status")["pool"]["total"])


def _stream(supervisor: Supervisor, sessions: int) -> None:
    """Put a million events through, as the answers of this number of sessions."""
    with ControlClient(supervisor.socket) as listener:
        seen = _Seen(listener)
        text = f"PIECES={_EVENTS // sessions}"
        _prompt(supervisor, ((f"s{number}", text) for number in range(sessions)))
        seen.wait()


def _prompt(supervisor: Supervisor, prompts: Iterable[tuple[str, str]]) -> None:
    """As many runs at a time as there are workers; their outcomes are waited for, their events are not read here."""
    waiting: deque[RequestStream] = deque()
    with ControlClient(supervisor.socket) as client:
        for session, text in prompts:
            if len(waiting) == _WORKERS:
                _finish(waiting.popleft())
            run = client.call("agent", {"session": session, "text": text})["run_id"]
            waiting.append(client.stream("agent.wait", {"run_id": run, "timeout_ms": _LIMIT * 1000}, timeout=_LIMIT))
        while waiting:
            _finish(waiting.popleft())


def _finish(stream: RequestStream) -> None:
    for _ in stream:
        """Only the outcome is published."""
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

    def wait(self) -> None:
        """Until they are there."""
        self._thread.join(_LIMIT)
        if self._thread.is_alive():
            raise AssertionError(f"only {self._pieces:,} pieces arrived; {self._subscription.reason}")
