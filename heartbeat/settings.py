"""Settings of heartbeats: ``[agents.defaults.heartbeat]`` and ``[agents.NAME.heartbeat]``."""

from typing import Annotated

import msgspec

from wire.units import Seconds

_MIN_INTERVAL = 60.0
_LONGEST_TIMEOUT = 86400.0
_LONGEST_PROMPT = 32_768
"""Characters."""
_Chars = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
_Retries = Annotated[int, msgspec.Meta(ge=0, le=10)]


class ActiveHours(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``active_hours``: beats happen from ``start`` (inclusive) to ``end`` (exclusive), ``"HH:MM"``.

    ``end`` may be ``"24:00"``, or before ``start``: over midnight. ``start`` equal to ``end``: never.
    """

    start: str
    end: str
    tz: str = ""
    """IANA name of a time zone; empty = the machine's own."""


class HeartbeatSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Heartbeats: agents that run without a message. Each key can be set again in [agents.NAME.heartbeat]."""

    every: Seconds = Seconds(0)
    """How often an agent beats by the clock, at least ``"1m"``; 0 = never. Each beat is a turn of the model. An agent's
    own interval is up to 10 % shorter or longer, so that not all beat at once."""
    wake: bool = True
    """Whether events wake the agent: the end of a background command or a delegated task, a due scheduled task, ``pool
    events inject``. If not, the session's next turn reports them. At most 30 times an hour in one session."""
    active_hours: ActiveHours | None = None
    """Unset = at any hour."""
    target: str = "last"
    """Where alerts go: ``last`` = the channel of the session's latest message, ``none``, or ``CHANNEL:PEER``."""
    ack_max_chars: _Chars = 300
    """An answer of HEARTBEAT_OK and at most this many characters is no alert."""
    skip_when_busy: bool = True
    """Whether a beat of a busy session is retried a second later; if not, it waits in the queue."""
    timeout: Seconds = Seconds(60)
    """How long a beat may wait for a worker and run."""
    max_retries: _Retries = 2
    """Further attempts after a failed beat; its events stay for the next one in any case."""
    retry_delay: Seconds = Seconds(5)
    """Between two attempts."""
    exec_always_deliver: bool = False
    """Report every ended command and delegated task, even if the agent answers HEARTBEAT_OK."""
    prompt: str = ""
    """The prompt of a beat; empty = the built-in text, as with the next two."""
    exec_prompt: str = ""
    """The prompt when a background command or a delegated task has ended."""
    cron_prompt: str = ""
    """The prompt when scheduled tasks are due."""

    def __post_init__(self) -> None:
        _check(self)


class HeartbeatOverrides(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[agents.NAME.heartbeat]``: an agent's own values; unset = the defaults."""

    every: Seconds | None = None
    wake: bool | None = None
    active_hours: ActiveHours | None = None
    target: str | None = None
    ack_max_chars: _Chars | None = None
    skip_when_busy: bool | None = None
    timeout: Seconds | None = None
    max_retries: _Retries | None = None
    retry_delay: Seconds | None = None
    exec_always_deliver: bool | None = None
    prompt: str | None = None
    exec_prompt: str | None = None
    cron_prompt: str | None = None

    def __post_init__(self) -> None:
        _check(self)


def effective_heartbeat(defaults: HeartbeatSettings, own: HeartbeatOverrides | None) -> HeartbeatSettings:
    """The effective settings of an agent: its own values, else the defaults."""
    if own is None:
        return defaults
    own_values = {name: value for name in own.__struct_fields__ if (value := getattr(own, name)) is not None}
    return msgspec.structs.replace(defaults, **own_values)


def _check(settings: HeartbeatSettings | HeartbeatOverrides) -> None:
    every, timeout = settings.every, settings.timeout
    if every is not None and 0 < every < _MIN_INTERVAL:
        msg = f'every = {every!r} is too often; the shortest is "1m", and every = 0 turns heartbeats off'
        raise ValueError(msg)
    if timeout is not None and not 0 < timeout <= _LONGEST_TIMEOUT:
        msg = f'timeout = {timeout!r} is no time for a beat; write something from "1s" to "1d"'
        raise ValueError(msg)
    if settings.target is not None and not settings.target.strip():
        msg = 'target is empty; write "last", "none" or "CHANNEL:PEER"'
        raise ValueError(msg)
    for name in ("prompt", "exec_prompt", "cron_prompt"):
        if len(getattr(settings, name) or "") > _LONGEST_PROMPT:
            msg = f"{name} is longer than {_LONGEST_PROMPT} characters; put it into the workspace's HEARTBEAT.md"
            raise ValueError(msg)
