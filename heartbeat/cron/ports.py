"""What scheduled tasks ask of the rest: to run, to speak up in a conversation, to tell somebody, to be kept."""

from datetime import tzinfo
from typing import Protocol

import msgspec

from heartbeat.cron.jobs import Names
from heartbeat.delivery.channel import Alert
from heartbeat.ports import Documents
from heartbeat.run_ports import BeatAnswer, BeatRequest, Monitor

__all__ = ["Alerts", "Clock", "CronPorts", "Runs", "Voice"]


class Runs(Protocol):
    """The gateway, as an isolated job sees it (a ``RunPort`` is one)."""

    async def run(self, request: BeatRequest) -> BeatAnswer:
        """Run it to its end, within its timeout. The same ``run_id`` again means the same run, also after a restart.

        A run that fails is an answer; PoolError where it is not even accepted. Cancelling the call aborts the run.
        """
        ...


class Voice(Protocol):
    """System events and wakes, together."""

    def speak(self, *, agent: str, session: str, text: str, context: str) -> None:
        """Queue a system event of kind ``cron`` for the session, and wake the agent there with reason ``cron``.

        It counts from the call on, in the same transaction of the store as what is kept right after it. Never blocks.
        Raises UsageError where ``problem`` has something to say.
        """
        ...

    def problem(self, *, agent: str, session: str) -> str | None:
        """Why the agent would not be woken there, and what to do; None = it would be."""
        ...

    def heard_at(self, *, agent: str, session: str) -> float | None:
        """When the agent is woken for what is said now, in Unix time; None = at once."""
        ...


class Alerts(Protocol):
    """The courier."""

    def accept(self, alert: Alert) -> None:
        """Take it over: deliver it to its target sooner or later, once for its id. Kept in the same step; never blocks.

        Raises UsageError for a target that makes no sense, which no job has.
        """
        ...


class Clock(Protocol):
    """The calendar's clock."""

    def __call__(self) -> float:
        """Unix time in seconds. It may be set, unlike the event loop's."""
        ...


class CronPorts(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, as the application joins them. ``local``: the machine's zone (``zones.machine_zone``)."""

    documents: Documents
    runs: Runs
    voice: Voice
    alerts: Alerts
    monitor: Monitor
    names: Names
    wall: Clock
    local: tzinfo
