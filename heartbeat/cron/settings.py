"""Settings of scheduled tasks: ``[cron]`` and ``[cron.jobs.NAME]``."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from wire.units import Seconds

_LONGEST_TEXT = 32_768
_LONGEST_TIMEOUT = 86_400.0


class JobMode(StrEnum):
    """Where a job runs."""

    MAIN = "main"
    """In the conversation it belongs to: a system event wakes the agent there."""
    ISOLATED = "isolated"
    """In a session of its own, ``cron:NAME``; the answer is delivered as an alert."""


class CronJobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One task, due by exactly one of ``cron``, ``every`` and ``at``."""

    text: str
    """The task, as a prompt."""
    cron: str | None = None
    """``minute hour day-of-month month day-of-week``; a sixth field in front is the second, one of each
    minute."""
    every: Seconds | None = None
    """The interval, counted from ``anchor``; ``"1m"`` or more."""
    at: datetime | None = None
    """A single time."""
    tz: str = ""
    """IANA name of the time zone of ``cron``, and of a time without an offset; empty = the machine's own."""
    anchor: datetime | None = None
    """The start of ``every``; unset = midnight UTC in settings, else the time the job was added."""
    mode: JobMode = JobMode.MAIN
    agent: str | None = None
    """Unset = ``router.default_agent``."""
    session: str | None = None
    """The conversation it belongs to: mode ``main`` runs there, and ``last`` means its latest channel.

    Unset = the agent's main conversation.
    """
    delivery: str | None = None
    """Mode ``isolated``: where the answer goes, as the ``target`` of heartbeats; unset = ``last``."""
    timeout: Seconds | None = None
    """Mode ``isolated``: the time for waiting and running; unset = ``"10m"``."""
    keep: bool = False
    """Mode ``isolated``: whether runs share one conversation; if not, each starts a new one."""
    delete_after_run: bool | None = None
    """Whether a successful due run deletes the job (in settings: ends it); unset = only if it is due only once."""
    enabled: bool = True

    def __post_init__(self) -> None:
        """Refuse contradictions. ValueError, so that the key at fault can be named."""
        given = [name for name in ("cron", "every", "at") if getattr(self, name) is not None]
        if len(given) != 1:
            msg = f"a job is due by one of cron, every and at; this one has {' and '.join(given) or 'none of them'}"
            raise ValueError(msg)
        if self.anchor is not None and self.every is None:
            msg = "anchor is for every alone"
            raise ValueError(msg)
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


class CronSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[cron]``: scheduled tasks."""

    max_running: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """Concurrent isolated runs; other due jobs wait."""
    jobs: dict[str, CronJobSettings] = {}
    """By name, in addition to the jobs of ``pool cron add``."""
