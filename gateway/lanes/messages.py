"""Stimuli and actions of the lane machine, its snapshot, and the texts that models and callers read. Pure.

A *run* is one accepted message; a *turn* is one prompt to a worker and serves one run, or several that were merged or
steered into it. Both are opaque unique names: the scheduler names the runs, the machine the turns.

The texts' own words stand in square brackets, so that a model can tell them from what people wrote.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from gateway.settings import QueueSettings
from wire.messages import QueueMode


class Submit(msgspec.Struct, frozen=True, kw_only=True):
    """A run was accepted. Ends in exactly one of: StartTurn, Steer (whose turn answers for it), RejectRun, Withdraw.

    ``mode``: what to do when the session is busy. ``lane``: the named lane that bounds it too. ``exclusive``: never
    merged with others and never steered (it holds the session, or carries more than text). ``may_steer``: whether the
    session's running turn takes steers now (it streams, and no compaction is under way).
    """

    run: str
    session: str
    text: str
    mode: QueueMode
    priority: int = 5
    lane: str = "main"
    exclusive: bool = False
    may_steer: bool = False


class SteerRejected(msgspec.Struct, frozen=True):
    """The worker did not take the steer: the run becomes a follow-up, ahead of what came after it."""

    turn: str
    run: str


class TurnEnded(msgspec.Struct, frozen=True):
    """The turn is over, however it ended. ``unconsumed``: steers it took and never saw; they become follow-ups."""

    turn: str
    unconsumed: tuple[str, ...] = ()


class Withdraw(msgspec.Struct, frozen=True):
    """The caller takes a waiting run back; no action follows for it. Unknown and running ones: no-op."""

    run: str


class Clear(msgspec.Struct, frozen=True):
    """Reject every waiting run of the session as ``cleared``; a running turn goes on."""

    session: str


class Tick(msgspec.Struct, frozen=True):
    """Time has passed: sent at ``next_wakeup``."""


class Reconfigure(msgspec.Struct, frozen=True):
    """New limits; what waits already stays."""

    settings: QueueSettings


LaneStimulus = Submit | SteerRejected | TurnEnded | Withdraw | Clear | Tick | Reconfigure


class StartTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Begin a turn that answers for ``runs`` (oldest first; among them those of which only a summary is left).

    ``text`` is the prompt: the run's own text, or the merged one. ``TurnEnded`` must follow, whatever happens.
    """

    turn: str
    session: str
    lane: str
    priority: int
    runs: tuple[str, ...]
    text: str


class Steer(msgspec.Struct, frozen=True):
    """Put the run's text into the running turn; answer with SteerRejected when the worker does not take it."""

    turn: str
    run: str


class AbortTurn(msgspec.Struct, frozen=True):
    """End the running turn early: a newer message interrupts it. TurnEnded follows as ever."""

    turn: str


class RejectionReason(StrEnum):
    """Why a run will not have a turn."""

    FULL = "full"
    """The session's queue is full and its overflow policy refuses new messages."""
    DROPPED = "dropped"
    """The queue was full and this was its oldest message (policy ``old``)."""
    EVICTED = "evicted"
    """Too many messages wait in all, and this one had the lowest priority."""
    INTERRUPTED = "interrupted"
    """A newer message with mode ``interrupt`` replaced it."""
    CLEARED = "cleared"
    """The session's queue was cleared."""


class RejectRun(msgspec.Struct, frozen=True):
    """The run ends here, without a turn; ``text`` says why, for its caller."""

    run: str
    reason: RejectionReason
    text: str


LaneAction = StartTurn | Steer | AbortTurn | RejectRun


class LaneStats(msgspec.Struct, frozen=True, kw_only=True):
    """One named lane in use."""

    name: str
    limit: int | None
    """Turns that may run at once; None = bounded by the pool only."""
    running: int
    waiting: int
    """Sessions that wait for a slot."""


class SessionLaneStats(msgspec.Struct, frozen=True, kw_only=True):
    """One busy session."""

    session: str
    state: str
    turn: str | None
    runs: tuple[str, ...]
    """Those the running turn was begun for."""
    steered: int
    """Messages handed to the running turn since."""
    waiting: int
    """Messages that wait whole."""
    summarized: int
    """Messages of which a line is left."""


class LanesSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything, consistent with itself."""

    running: int
    """Turns."""
    waiting: int
    """Messages without a turn, the summarized ones among them."""
    lanes: tuple[LaneStats, ...]
    """By name."""
    sessions: tuple[SessionLaneStats, ...]
    """Those that have been busy longest first."""


SUMMARY_LENGTH = 160
"""Characters that are left of a summarized message."""
MAX_SUMMARY_LINES = 20
"""Summarized messages that a prompt shows; of more, the latest."""


def summary_line(text: str) -> str:
    """The beginning of a message as one line of at most 160 characters."""
    line = " ".join(text.split(maxsplit=SUMMARY_LENGTH)) or "(no text)"  # this many words fill the line
    return line if len(line) <= SUMMARY_LENGTH else line[: SUMMARY_LENGTH - 1].rstrip() + "…"


def merge_messages(texts: Sequence[str], lines: Sequence[str]) -> str:
    """One prompt out of several whole messages, or of lines of summarized ones; both oldest first."""
    parts = [_heading(len(texts), len(lines))]
    if lines:
        parts.append(_summary_list(lines))
    if len(texts) == 1:
        parts.append(f"[In full]\n{texts[0]}")
    else:
        parts += [f"[{number} of {len(texts)}]\n{text}" for number, text in enumerate(texts, 1)]
    return "\n\n".join(parts)


def _heading(whole: int, dropped: int) -> str:
    came = "1 message" if whole + dropped == 1 else f"{whole + dropped} messages"
    came = f"{came} came in while you were busy"
    read = "Read everything before you act: a later message may correct or take back an earlier one."
    if not dropped:
        return f"[{came}, in this order. {read}]"
    if not whole:
        return (
            f"[{came} and had to be dropped, because too many waited. Only the first words are left; "
            "do what can be done from them, and ask for what is missing.]"
        )
    cut = (
        "1 was dropped but for its first words" if dropped == 1 else f"{dropped} were dropped but for their first words"
    )
    kept = "1 follows in full" if whole == 1 else f"{whole} follow in full"
    return f"[{came}, too many to keep: {cut}, {kept}. {read}]"


def _summary_list(lines: Sequence[str]) -> str:
    shown = [f"- {line}" for line in lines[-MAX_SUMMARY_LINES:]]
    more = len(lines) - len(shown)
    if more:
        shown.append(f"and {more} more, older than these")
    return "\n".join([f"[Dropped: {len(lines)}]", *shown])


def rejection_text(reason: RejectionReason, session: str, *, cap: int, pending: int) -> str:
    """Why a run of ``session`` ends without a turn, in a sentence for its caller."""
    match reason:
        case RejectionReason.FULL:
            return (
                f"session {session} has {cap} messages waiting already (gateway.queue.cap); "
                "wait until one has been answered, or abort the running turn"
            )
        case RejectionReason.DROPPED:
            return f"too many newer messages wait in session {session} (gateway.queue.cap); this one gave way to them"
        case RejectionReason.EVICTED:
            return (
                f"{pending} messages wait in all (gateway.queue.pending), and of the least important ones this was "
                "the latest; try again later"
            )
        case RejectionReason.INTERRUPTED:
            return f"a newer message interrupted session {session} and took this one's place"
        case RejectionReason.CLEARED:
            return f"the waiting messages of session {session} were cleared"
