"""The ``[rpc]`` table of the settings file: limits and times of a worker process and its client."""

import msgspec

from wire.units import AtLeastKiB, ByteCount, PositiveInt, PositiveSeconds, Seconds


class RpcSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits and times of the wire."""

    max_line_bytes: AtLeastKiB = ByteCount(64 * 1024 * 1024)
    """A longer line of a worker is a protocol violation."""
    max_contaminated_lines: PositiveInt = 100
    """That many lines in a row which are no message retire the worker."""
    request_timeout: PositiveSeconds = Seconds(30)
    """Deadline of a request that is answered at once (everything but ``prompt`` and ``compact``)."""
    send_queue_bytes: AtLeastKiB = ByteCount(16 * 1024 * 1024)
    """Bytes that may wait for a worker that does not read its stdin; more wait in the caller."""
    subscriber_events: PositiveInt = 65_536
    """Events that may wait for one subscriber before its worker's output is no longer read."""
    subscriber_bytes: ByteCount = ByteCount(64 * 1024 * 1024)
    """The same limit in bytes of worker output."""
    ui_timeout: PositiveSeconds = Seconds(60)
    """An unanswered dialog is cancelled after this.

    Where no front end follows control events, every dialog is cancelled at once."""
    abort_grace: Seconds = Seconds(1)
    """Kill ladder, first rung: how long an aborted turn may take to end; with agents of dialect acp at least 5 s."""
    eof_grace: Seconds = Seconds(1)
    """Second rung: how long a worker may live on with its stdin closed."""
    term_grace: Seconds = Seconds(2)
    """Third rung: how long it may take after SIGTERM; then SIGKILL."""
    log_bytes: AtLeastKiB = ByteCount(1024 * 1024)
    """A worker's stderr log file is rotated at this size; two files are kept."""
    log_workers: PositiveInt = 200
    """Number of workers whose log files are kept, the latest ones."""
    env_passthrough: list[str] = msgspec.field(
        default_factory=lambda: [
            *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR"),
            *("LANG", "LC_ALL", "LC_CTYPE", "TZ"),
        ]
    )
    """Names of the supervisor's environment variables that workers inherit."""
