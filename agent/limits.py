"""The bounds of a worker: times in seconds, sizes in bytes or items."""

import msgspec

from wire.framing import DEFAULT_MAX_LINE_BYTES


class WorkerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Passed in at the start; tests pass smaller ones."""

    max_steps: int = 50
    """Model calls in one run."""
    run_timeout: float = 600.0
    """A longer run ends with stop_reason ``timeout``."""
    compaction_timeout: float = 120.0
    """Seconds that the summary of an old conversation may take."""
    context_reserve: int = 16_384
    """Tokens of a model's context that are left for its answer; a fuller conversation is compacted first."""
    parallel_tools: int = 3
    queued_inputs: int = 100
    """Steers, and follow-ups, that may wait; more are refused."""
    queued_jobs: int = 1000
    """Requests that may wait for an aborted run to end; more are refused."""
    queued_processes: int = 50
    """Requests about background commands that may wait at once; more are refused."""
    recorded_events: int = 2000
    """Events kept for a prompt's result; later ones are only counted."""
    line_bytes: int = DEFAULT_MAX_LINE_BYTES
    """The longest line that stdin may bring; a longer one ends the worker."""
    output_soft: int = 256 * 1024
    """Bytes waiting for the reader of stdout at which a run pauses."""
    output_hard: int = 8 * 1024 * 1024
    """The same for taking further requests."""
    end_flush: float = 0.5
    """How long the last output may take at the end of stdin or after a signal."""
    shutdown_flush: float = 5.0
    """The same after the method ``shutdown``."""
