"""Why a worker will answer no more: from what ended the reading of its output to the error its callers are told."""

from typing import Any

from errors import PoolError, ProtocolViolation, WorkerExited, WorkerStartFailed
from rpc.transport import ExitStatus
from wire.veil import Veil

__all__ = ["MAX_REASON", "fault_of", "why_ended", "why_not_ready"]

MAX_REASON = 16_384
"""Characters that an error repeats of a worker's reason, once its secrets are hidden."""


def why_ended(worker: str, cause: ProtocolViolation | ExitStatus, stderr_tail: str, veil: Veil) -> PoolError:
    """The error for a worker that has exited, or broken the protocol. What it said is in the cause as it said it."""
    facts: dict[str, Any] = {"worker": worker, "stderr_tail": stderr_tail or None}
    if isinstance(cause, ExitStatus):
        facts = {"worker": worker, "status": str(cause), "exit_code": cause.code, "signal": cause.signal, **facts}
        return WorkerExited(f"worker {worker} {cause}", **facts)
    reason = veil.beginning(str(cause), MAX_REASON)
    violation = ProtocolViolation(f"worker {worker} broke the protocol: {reason}", **facts)
    violation.__cause__ = cause.__cause__
    return violation


def why_not_ready(
    worker: str, ended: PoolError | None, refusal: str | None, timeout: float, stderr_tail: str, *, veil: Veil
) -> WorkerStartFailed:
    """The error for a worker that never took a request: its ``refusal``, what ``ended`` it, or that it took too long.

    ``details["refused"]`` is True where it said itself that it cannot.
    """
    reason = veil.beginning(refusal or f"it was not ready after {timeout:g} s", MAX_REASON)
    details: dict[str, Any] = {"stderr_tail": stderr_tail or None, "refused": True if refusal else None}
    if ended is not None:
        reason, details = ended.message.removeprefix(f"worker {worker} "), ended.details
    return WorkerStartFailed(f"worker {worker} did not start: {reason}", **{**details, "worker": worker})


def fault_of(dialect: str, exc: Exception) -> ProtocolViolation:
    """The worker's fault as it is; anything else is a fault of ours that its output met, and stays attached."""
    if isinstance(exc, ProtocolViolation):
        return exc
    violation = ProtocolViolation(f"the {dialect} dialect failed on the output: {type(exc).__name__}: {exc}")
    violation.__cause__ = exc
    return violation
