"""Figures of one client, for status, health and benchmarks."""

import msgspec

__all__ = ["ClientStatistics"]


class ClientStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one client at one moment.

    ``late_answers`` had nobody waiting (deadline, cancelled, unknown or repeated id) and were dropped.
    ``contaminated`` counts lines that were no message, an unfinished last line included. While ``backpressured`` the
    worker's output is not read because a subscriber is full: answers, also to pings, cannot arrive;
    ``held_back`` counts how often that began.
    ``last_output`` is the monotonic time of the worker's last bytes, None before the first ones.
    """

    requests: int
    answers: int
    late_answers: int
    timeouts: int
    events: int
    contaminated: int
    bytes_in: int
    bytes_out: int
    pending: int
    queued_bytes: int
    backpressured: bool
    last_output: float | None
    held_back: int = 0
