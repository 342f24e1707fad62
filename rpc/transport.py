"""The interface between a client and its worker (bytes in, bytes out, one exit), its errors and its figures.

``rpc.process`` implements it for a local process, the tests for memory buffers. Nothing above this interface may assume
that the worker is local.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from errors import PoolError, ProtocolViolation, WorkerExited, WorkerStartFailed
from wire.redaction import SecretMask


class ExitStatus(msgspec.Struct, frozen=True):
    """How a worker ended: an exit code, or the number of the signal that killed it; both None when unknown.

    ``reason``: what ended it besides, in words for people ("its node gpu-2 was lost"); "" where nothing is known.
    """

    code: int | None = None
    signal: int | None = None
    reason: str = ""

    @classmethod
    def from_returncode(cls, returncode: int) -> "ExitStatus":
        """Read the convention of ``subprocess``: negative numbers are signals."""
        return cls(signal=-returncode) if returncode < 0 else cls(code=returncode)

    def __str__(self) -> str:
        if self.signal is not None:
            how = f"killed by signal {self.signal}"
        else:
            how = "ended" if self.code is None else f"exited with code {self.code}"
        return f"{how} ({self.reason})" if self.reason else how


class ProcessFacts(msgspec.Struct, frozen=True):
    """What the operating system says of a worker right now."""

    rss: int | None = None
    """Resident bytes of the worker's process."""
    cpu: float | None = None
    """CPU seconds used so far."""
    suspended: bool = False
    """Stopped by a signal (SIGSTOP, a debugger): it cannot answer, but it has not failed by itself."""


Abort = Callable[[], Awaitable[object]]
"""Ends a running turn, if there is one; may raise PoolError."""


class Transport(Protocol):
    """One worker's byte streams. All methods belong to the event loop's thread."""

    async def wait_readable(self) -> None:
        """Wait until ``receive_nowait`` has something to say, or for ``interrupt``; one task at a time."""
        ...

    def interrupt(self) -> None:
        """End the wait for output."""
        ...

    def receive_nowait(self) -> bytes | None:
        """What lies ready, ``b""`` at the end of the stream, None when there is nothing now."""
        ...

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Write as much as fits without waiting; the number of bytes taken. Raises WorkerExited on a closed pipe."""
        ...

    async def wait_writable(self) -> None:
        """Wait until ``send_nowait`` would take at least one byte (or would fail)."""
        ...

    async def wait_exit(self) -> ExitStatus:
        """Wait for the worker's end. May be awaited by any number of tasks, also after the end."""
        ...

    def has_ended(self) -> bool:
        """Whether the worker has ended, perhaps before ``wait_exit`` returns."""
        ...

    def stderr_tail(self) -> str:
        """The last text the worker wrote to stderr, at most 64 KiB."""
        ...


class NodeProcess(Transport, Protocol):
    """A worker's process where it runs: on this machine, or on a node that carries its bytes.

    ``end_reason``: why its owner ends it, for its log. ``mask``: hides its secrets.
    """

    end_reason: str | None
    mask: SecretMask

    @property
    def pid(self) -> int | None:
        """Its process id on its machine."""
        ...

    @property
    def node(self) -> str:
        """The node's name; "" is this machine."""
        ...

    @property
    def ended_in_order(self) -> bool:
        """Whether it ended by itself once its stdin was closed, and left nothing behind."""
        ...

    def facts(self) -> ProcessFacts:
        """Measure it; of a process elsewhere what was measured last. Empty once it is gone."""
        ...

    def on_stderr(self, listener: Callable[[bytes], None] | None) -> None:
        """Pass further stderr lines, without secrets, to one listener; None removes it."""
        ...

    async def keep(self, transcript: str | None) -> None:
        """The worker goes on in that file from now on (None: in none); return when nothing of it can be lost here.

        Raises PoolError where that cannot be promised.
        """
        ...

    async def prepare_resume(self, transcript: str) -> bool:
        """Bring a mended transcript to where the worker will read it; False: there is none. Raises PoolError."""
        ...

    async def fetch(self, path: str, limit: int) -> bytes:
        """At most the first ``limit`` bytes of a regular file in its working directory, ``path`` relative to that.

        Raises OSError, ValueError, WorkerExited where its node is out of reach.
        """
        ...

    async def stop(self, *, abort: Abort | None = None, force: bool = False) -> ExitStatus:
        """End the worker by the kill ladder; return when nothing of it can run any more. ``force``: SIGKILL at once."""
        ...


MAX_REASON_CHARS = 16_384
"""Characters that an error repeats of a worker's reason, once its secrets are hidden."""


def exit_error(worker: str, cause: ProtocolViolation | ExitStatus, stderr_tail: str, mask: SecretMask) -> PoolError:
    """The error for a worker that has exited, or broken the protocol. What it said is in the cause as it said it."""
    facts: dict[str, Any] = {"worker": worker, "stderr_tail": stderr_tail or None}
    if isinstance(cause, ExitStatus):
        facts = {"worker": worker, "status": str(cause), "exit_code": cause.code, "signal": cause.signal, **facts}
        return WorkerExited(f"worker {worker} {cause}", **facts)
    reason = mask.prefix(str(cause), MAX_REASON_CHARS)
    violation = ProtocolViolation(f"worker {worker} broke the protocol: {reason}", **facts)
    violation.__cause__ = cause.__cause__
    return violation


def start_error(
    worker: str, ended: PoolError | None, refusal: str | None, timeout: float, stderr_tail: str, *, mask: SecretMask
) -> WorkerStartFailed:
    """The error for a worker that never took a request: its ``refusal``, what ``ended`` it, or that it took too long.

    ``details["refused"]`` is True where it said itself that it cannot.
    """
    reason = mask.prefix(refusal or f"it was not ready after {timeout:g} s", MAX_REASON_CHARS)
    details: dict[str, Any] = {"stderr_tail": stderr_tail or None, "refused": True if refusal else None}
    if ended is not None:
        reason, details = ended.message.removeprefix(f"worker {worker} "), ended.details
    return WorkerStartFailed(f"worker {worker} did not start: {reason}", **{**details, "worker": worker})


def protocol_error(dialect: str, exc: Exception) -> ProtocolViolation:
    """The worker's fault as it is; anything else is a fault of ours that its output met, and stays attached."""
    if isinstance(exc, ProtocolViolation):
        return exc
    violation = ProtocolViolation(f"the {dialect} dialect failed on the output: {type(exc).__name__}: {exc}")
    violation.__cause__ = exc
    return violation


class ClientStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one client at one moment.

    ``late_answers`` had no pending request (deadline, cancelled, unknown or repeated id) and were dropped.
    ``invalid_lines`` counts lines that were no message, an unfinished last line included. While ``backpressured`` the
    worker's output is not read because a subscriber is full: answers, also to pings, cannot arrive;
    ``backpressure_count`` counts how often that began.
    ``last_output`` is the monotonic time of the worker's last bytes, None before the first ones.
    """

    requests: int
    answers: int
    late_answers: int
    timeouts: int
    events: int
    invalid_lines: int
    bytes_in: int
    bytes_out: int
    pending: int
    queued_bytes: int
    backpressured: bool
    last_output: float | None
    backpressure_count: int = 0
