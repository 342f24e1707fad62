"""What is known of beats: what came of them, what of them is kept over a restart, how an agent stands."""

from enum import StrEnum

import msgspec

from heartbeat.gates import SkipReason
from heartbeat.kinds import BeatKind
from heartbeat.reasons import Reason
from heartbeat.run_ports import BeatRequest
from heartbeat.wake import Target

__all__ = ["AgentRecord", "AgentStatus", "BeatReport", "Begun", "Outcome"]


class Outcome(StrEnum):
    """What came of a beat."""

    SKIPPED = "skipped"
    """There was to be none."""
    SILENT = "silent"
    """Nothing to tell."""
    REPEATED = "repeated"
    """The same text about the same events was shown within the last day; never for commands and tasks."""
    ALERT = "alert"
    FAILED = "failed"


class BeatReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One beat, or why there was none. ``at`` is Unix time, ``took`` in seconds.

    ``skipped``: which gate was shut. ``error``: what failed. ``problem``: something an operator should see to.
    ``text``: the beginning of what the agent said. ``events``: how many it was told. ``alert``: the id.
    """

    agent: str
    session: str
    reason: Reason
    outcome: Outcome
    at: float
    took: float = 0.0
    skipped: SkipReason | None = None
    error: str = ""
    problem: str = ""
    text: str = ""
    events: int = 0
    run_id: str = ""
    alert: str = ""


class Begun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A beat that tells events, from before its run until they are acknowledged; a later life goes on with it.

    ``subject`` names what it is about: the same events have the same. ``attempt`` counts from 0. ``has_failed``: it is
    over and its events are still to be told; it is known for the number of the next attempt only.
    """

    subject: str
    reason: Reason
    request: BeatRequest
    at: float
    attempt: int = 0
    events: tuple[str, ...] = ()
    kind: BeatKind = BeatKind.PLAIN
    summary: str = ""
    problem: str = ""
    has_failed: bool = False

    @property
    def target(self) -> Target:
        """Whose beat it is."""
        return Target(self.request.agent, self.request.session)


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of an agent. ``paused``: until when (Unix time) the flood guard holds events of a session."""

    last: BeatReport | None = None
    paused: dict[str, float] = {}


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent stands. Times are Unix times, counts since the start of the supervisor.

    ``every``: its own interval in seconds, 0 = none. ``wake``: events wake it. ``next_due`` None = never by the clock.
    ``last_skip``: the latest beat that
    was not to be. ``paused``: until when the flood guard holds events, by session.
    """

    agent: str
    every: float
    wake: bool
    next_due: float | None
    running: tuple[str, ...]
    last_beat: BeatReport | None
    last_skip: BeatReport | None
    counts: dict[Outcome, int]
    paused: dict[str, float]
    warning: str
