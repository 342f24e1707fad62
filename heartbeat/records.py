"""Records of beats, and the deduplication of alerts: the same alert about the same events once a day. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import blake2b

import msgspec

from heartbeat.answers import AlertAnswer, BeatKind
from heartbeat.gates import SkipReason
from heartbeat.ports import BeatRequest
from heartbeat.wake import BeatTarget, WakeReason


class BeatOutcome(StrEnum):
    """The result of a beat."""

    SKIPPED = "skipped"
    """A gate was shut."""
    SILENT = "silent"
    """Nothing to report."""
    REPEATED = "repeated"
    """The same text about the same events was shown within a day; never for commands and tasks."""
    ALERT = "alert"
    FAILED = "failed"


class BeatReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One beat, or why it did not run. ``at`` is Unix time, ``took`` in seconds.

    ``skipped``: the shut gate. ``error``: what failed. ``problem``: a defect of the configuration.
    ``text``: the beginning of the answer. ``events``: their number. ``alert``: its id.
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


def unrun_beat(
    target: BeatTarget,
    reason: WakeReason,
    at: float,
    *,
    skipped: SkipReason | None = None,
    problem: str = "",
    error: str = "",
) -> BeatReport:
    """The report of a beat without a run: skipped, or (with ``error``) ended by a defect. ``at`` is Unix time."""
    outcome = BeatOutcome.FAILED if error else BeatOutcome.SKIPPED
    agent, session = target
    return BeatReport(
        agent=agent,
        session=session,
        reason=reason,
        outcome=outcome,
        at=at,
        skipped=skipped,
        problem=problem,
        error=error,
    )


class BeatInProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A beat with events, kept from before its run until they are acknowledged; the next supervisor continues it.

    ``subject`` identifies the events. ``attempt`` counts from 0. ``has_failed``: it has ended and its events are still
    pending; it is kept for the number of the next attempt only.
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
    """The kept state of an agent. ``paused``: until when (Unix time) the flood guard holds events, by session."""

    last: BeatReport | None = None
    paused: dict[str, float] = {}


class HeartbeatStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an agent. Times are Unix times, counts since the start of the supervisor.

    ``every``: its own interval in seconds, 0 = none. ``wake``: events wake it. ``next_due`` None = never by the clock.
    ``last_skip``: the latest refused beat. ``paused``: until when the flood guard holds events, by session.
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
    """One agent's alerts of the last 24 hours, at most 200; beyond that the oldest is dropped.

    Times are Unix seconds and survive the supervisor. A clock that is set back silences nothing for more than a day.
    """

    def __init__(self, shown_at: Mapping[str, float] | None = None, *, most: int = _MAX_ALERTS) -> None:
        """``shown_at``: that of the previous supervisor."""
        self._max_entries = most
        self._shown_at = dict(sorted((shown_at or {}).items(), key=lambda item: item[1])[-most:])

    @property
    def shown_at(self) -> dict[str, float]:
        """When each alert was shown, by its digest."""
        return dict(self._shown_at)

    def is_repeat(self, session: str, alert: AlertAnswer, wall: float, *, about: str = "") -> bool:
        """Whether the session had the same text within a day. Alerts with files never repeat.

        ``about``: the text of the beat's events. The same text about other events is new.
        """
        at = self._shown_at.get(_digest(session, about, alert.text))
        return not alert.has_media and at is not None and abs(wall - at) < _DAY

    def record(self, session: str, alert: AlertAnswer, wall: float, *, about: str = "") -> None:
        """Record an alert that is shown now. A repetition does not extend the day."""
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
