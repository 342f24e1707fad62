"""Beat records and alert dedupe. Pure.

What is known of beats: what came of them, what of them is kept over a restart, how an agent stands.

The same alert about the same events is shown once a day; digests of the latest ones. Pure: ``wall`` comes in.
"""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import blake2b

import msgspec

from heartbeat.answers import AlertAnswer, BeatKind
from heartbeat.gates import SkipReason
from heartbeat.ports import BeatRequest
from heartbeat.wake import BeatTarget, WakeReason


class BeatOutcome(StrEnum):
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
    reason: WakeReason
    outcome: BeatOutcome
    at: float
    took: float = 0.0
    skipped: SkipReason | None = None
    error: str = ""
    problem: str = ""
    text: str = ""
    events: int = 0
    run_id: str = ""
    alert: str = ""


class BeatInProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A beat that tells events, from before its run until they are acknowledged; a later life goes on with it.

    ``subject`` names what it is about: the same events have the same. ``attempt`` counts from 0. ``has_failed``: it is
    over and its events are still to be told; it is known for the number of the next attempt only.
    """

    subject: str
    reason: WakeReason
    request: BeatRequest
    at: float
    attempt: int = 0
    events: tuple[str, ...] = ()
    kind: BeatKind = BeatKind.PLAIN
    summary: str = ""
    problem: str = ""
    has_failed: bool = False

    @property
    def target(self) -> BeatTarget:
        """Whose beat it is."""
        return BeatTarget(self.request.agent, self.request.session)


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of an agent. ``paused``: until when (Unix time) the flood guard holds events of a session."""

    last: BeatReport | None = None
    paused: dict[str, float] = {}


class HeartbeatStatus(msgspec.Struct, frozen=True, kw_only=True):
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
    counts: dict[BeatOutcome, int]
    paused: dict[str, float]
    warning: str


_DAY = 86400.0
_MAX_ALERTS = 200


class AlertDedupe:
    """One agent's alerts of the last 24 hours, at most 200 of them: beyond that the oldest is forgotten.

    Times are Unix time in seconds, since the memory outlives the supervisor. A clock that was set back makes nothing
    silent for longer than a day.
    """

    def __init__(self, told: Mapping[str, float] | None = None, *, most: int = _MAX_ALERTS) -> None:
        """``told``: what ``told`` of an earlier life was."""
        self._max_entries = most
        self._shown_at = dict(sorted((told or {}).items(), key=lambda item: item[1])[-most:])

    @property
    def shown_at(self) -> dict[str, float]:
        """When each alert was told, by its digest; to be kept, and handed to the next life."""
        return dict(self._shown_at)

    def is_repeat(self, session: str, alert: AlertAnswer, wall: float, *, about: str = "") -> bool:
        """Whether the session had the same text within a day. Files are always news: their names say little.

        ``about``: the events of the beat, in words. The same text about other events is news.
        """
        at = self._shown_at.get(_digest(session, about, alert.text))
        return not alert.has_media and at is not None and abs(wall - at) < _DAY

    def record(self, session: str, alert: AlertAnswer, wall: float, *, about: str = "") -> None:
        """The alert is shown now. A repetition does not prolong the day."""
        if alert.has_media or self.is_repeat(session, alert, wall, about=about):
            return
        name = _digest(session, about, alert.text)
        self._shown_at.pop(name, None)
        self._shown_at[name] = wall
        self._expire(wall)

    def _expire(self, wall: float) -> None:
        for name in [name for name, at in self._shown_at.items() if abs(wall - at) >= _DAY]:
            del self._shown_at[name]
        while len(self._shown_at) > self._max_entries:
            del self._shown_at[next(iter(self._shown_at))]


def _digest(session: str, about: str, text: str) -> str:
    parts = f"{len(session)}:{session}{len(about)}:{about}{text.strip()}"
    return blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
