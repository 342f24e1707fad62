"""Settings of scheduled tasks: ``[cron]`` and ``[cron.jobs.NAME]``."""

from datetime import datetime
from enum import StrEnum

import msgspec

from wire.units import Seconds

_LONGEST_TEXT = 32_768
_LONGEST_TIMEOUT = 86_400.0
_MAX_RUNNING = 1000


class JobMode(StrEnum):
    """Where a job is done."""

    MAIN = "main"
    """In the conversation it belongs to: the agent is woken there and told its text."""
    ISOLATED = "isolated"
    """In a session of its own, ``cron:NAME``; what the agent answers is delivered."""


class CronJobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One task, due by exactly one of ``cron``, ``every`` and ``at``."""

    text: str
    """What the agent is told to do."""
    cron: str | None = None
    """``minute hour day-of-month month day-of-week``; a sixth field in front is the second."""
    every: Seconds | None = None
    """Every so often, counted from ``anchor``."""
    at: datetime | None = None
    """Once."""
    tz: str = ""
    """IANA name of the time zone of ``cron``, and of a time without an offset; empty = the machine's own."""
    anchor: datetime | None = None
    """Where ``every`` counts from; unset = in settings midnight UTC, else when the job was added."""
    mode: JobMode = JobMode.MAIN
    agent: str | None = None
    """Unset = ``router.default_agent``."""
    session: str | None = None
    """The conversation it belongs to: mode ``main`` speaks there, and ``last`` means where that one last spoke.

    Unset = the agent's main conversation.
    """
    delivery: str | None = None
    """Mode ``isolated``: who gets the answer, as the ``target`` of heartbeats; unset = ``last``."""
    timeout: Seconds | None = None
    """Mode ``isolated``: how long a run may wait for a worker and take; unset = ``"10m"``."""
    keep: bool = False
    """Mode ``isolated``: each run goes on with the conversation of the runs before; if not, it begins a new one."""
    delete_after_run: bool | None = None
    """After a due run that went well it is gone (in settings: never due again); unset = where it is due only once."""
    enabled: bool = True

    def __post_init__(self) -> None:
        """Refuse what contradicts itself. ValueError, so that the key at fault can be named."""
        self._check_schedule()
        if not self.text.strip() or len(self.text) > _LONGEST_TEXT:
            msg = f"text has {len(self.text.strip())} characters; a job needs something to do, in 1 to {_LONGEST_TEXT}"
            raise ValueError(msg)
        if self.mode is JobMode.MAIN and (self.delivery is not None or self.timeout is not None):
            msg = 'delivery and timeout are for mode = "isolated"; in mode "main" those of the agent\'s heartbeat hold'
            raise ValueError(msg)
        if self.mode is JobMode.MAIN and self.keep:
            msg = 'keep is for mode = "isolated"; in mode "main" the session\'s conversation goes on anyway'
            raise ValueError(msg)
        if self.timeout is not None and not 0 < self.timeout <= _LONGEST_TIMEOUT:
            msg = f'timeout = {self.timeout!r} is no time for a run; write something from "1s" to "1d"'
            raise ValueError(msg)

    def _check_schedule(self) -> None:
        given = [name for name in ("cron", "every", "at") if getattr(self, name) is not None]
        if len(given) != 1:
            msg = f"a job is due by one of cron, every and at; this one has {' and '.join(given) or 'none of them'}"
            raise ValueError(msg)
        if self.anchor is not None and self.every is None:
            msg = "anchor is for every alone"
            raise ValueError(msg)


class CronSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[cron]``: tasks that are due by the clock."""

    max_running: int = 1
    """Isolated runs at the same time; what else is due waits for its turn."""
    jobs: dict[str, CronJobSettings] = {}
    """By name. Jobs that ``pool cron add`` makes are kept beside these."""

    def __post_init__(self) -> None:
        """Refuse a limit that lets nothing run."""
        if not 1 <= self.max_running <= _MAX_RUNNING:
            msg = f"max_running = {self.max_running} is out of range; write a number from 1 to {_MAX_RUNNING}"
            raise ValueError(msg)
