"""What the end of a worker's process means: its cause, and whether it is started again. Pure."""

from pool.records import WorkerRecord
from pool.stimuli import FailureKind, StopReason
from pool.transitions import WorkerState

REPLACEMENT_REASONS = frozenset({"age", "turns", "rss", "recycle"})
"""Reasons to retire for which another worker of the kind takes the place."""


def needs_restart(worker: WorkerRecord, *, crashed: bool) -> bool:
    """Whether the lost worker is to be started again, also where no request waits for it."""
    if worker.outdated:
        return False
    if worker.state is WorkerState.STARTING or worker.failure is FailureKind.START:
        return worker.is_restart
    if crashed or worker.stop_reason is StopReason.FAILED:
        return not worker.replaced
    return (
        worker.stop_reason is StopReason.RETIRED and worker.retire_reason in REPLACEMENT_REASONS and not worker.replaced
    )


def exit_cause(worker: WorkerRecord) -> str:
    """Why the process ended: what it failed at, why we stopped it, or ``crashed``."""
    if worker.failure is not None:
        return worker.failure.value
    return worker.stop_reason.value if worker.stop_reason is not None else "crashed"
