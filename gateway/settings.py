"""The ``[gateway]`` settings: queues, limits, events; and what the gateway adds to agents' system prompts."""

from enum import StrEnum

import msgspec

from gateway.turns.media import MEDIA_TYPES
from wire.messages import QueueMode
from wire.units import AtLeast64KiB, ByteCount, NonNegativeInt, PositiveInt, Seconds


class Overflow(StrEnum):
    """What is dropped when a session's queue is full."""

    SUMMARIZE = "summarize"
    """The oldest message; one line of it is kept for the next turn, which answers for it."""
    OLD = "old"
    """The oldest message."""
    NEW = "new"
    """The new message is refused."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[gateway.queue]``: what happens to messages while their session is busy."""

    mode: QueueMode = QueueMode.STEER
    channels: dict[str, QueueMode] = {}
    """Another mode for messages of one channel."""
    debounce: Seconds = Seconds(0.5)
    """Collected messages wait until none has come for this long, at most four times as long."""
    cap: PositiveInt = 20
    """Messages that may wait in one session."""
    overflow: Overflow = Overflow.SUMMARIZE
    pending: PositiveInt = 10_000
    """Messages that may wait in all; above, the lowest priority is evicted."""
    lanes: dict[str, PositiveInt] = msgspec.field(default_factory=lambda: {"cron": 1, "subagent": 8})
    """Turns of a named lane that may run at once; lanes without an entry (as ``main``) are bounded by the pool only."""


class DedupeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[gateway.dedupe]``: the same message handed over twice by a channel starts one run."""

    window: Seconds = Seconds(60)
    """0 = never."""
    entries: PositiveInt = 1000


class EventSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[gateway.events]``: what of the event stream is kept in memory."""

    ring: AtLeast64KiB = ByteCount(16 * 1024 * 1024)
    """Recent events, text pieces one by one; older ones come from the store, their text as snapshots."""


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of what happens between a door and a worker."""

    queue: QueueSettings = QueueSettings()
    dedupe: DedupeSettings = DedupeSettings()
    events: EventSettings = EventSettings()
    idempotency_window: Seconds = Seconds(300)
    """How long the same key means the same run, counted from its acceptance; a live run is never forgotten."""
    outcome_age: Seconds = Seconds(600)
    """How long the outcome of an ended run can be asked for."""
    outcomes: PositiveInt = 5000
    """Number of outcomes that are kept, the latest ones."""
    outcome_bytes: AtLeast64KiB = ByteCount(64 * 1024 * 1024)
    """Bytes of outcomes that are kept; the latest one in any case."""
    pending_bytes: AtLeast64KiB = ByteCount(256 * 1024 * 1024)
    """Bytes of all messages that wait or run; a new one above that is refused."""
    runs: PositiveInt = 100_000
    """Runs known at once, live and ended; a new one is refused when all of them are live."""
    sessions: PositiveInt = 100_000
    """Sessions remembered; above, the one used longest ago is forgotten, first of those that have no transcript."""
    hooks: str = ""
    """A Python file with the gateway's hooks; empty = none."""
    dm_history_limit: dict[str, PositiveInt] = {}
    """By channel: in direct messages there the model sees this many of the latest user messages, whatever its agent's
    ``history_turns`` says. Agents of dialect ``pi`` always see all."""
    delegate_depth: NonNegativeInt = 3
    """How deep delegated tasks may delegate."""
    delegate_fan_out: PositiveInt = 8
    """Delegated tasks of one session that may run at once."""


class CurrentSettings:
    """The gateway's settings in force. Its parts share one object and read it at use; a reload sets ``value``."""

    def __init__(self, value: GatewaySettings) -> None:
        self.value = value


class GatewayPrompts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[agents.gateway_prompts]``: which conventions are explained to agents."""

    heartbeat: bool | None = None
    """Heartbeats, and how an agent reports that all is well; unset = to agents whose heartbeat is on (``every``)."""
    cron: bool | None = None
    """Scheduled tasks; unset = to agents that have some in these settings, or whose heartbeat is on."""
    media: bool = True
    """How an answer hands over files; the lines that do are read in any case."""


_HEARTBEAT = """\
## Heartbeats

From time to time you are woken by a heartbeat: a message that no person has written. If the workspace holds a file
HEARTBEAT.md, read it and do what it asks, no more; do not take up again what earlier conversation has settled.
- Nothing needs attention: answer with HEARTBEAT_OK alone. That word at the beginning or the end of an answer
  means "all is well", and the answer is not shown.
- Something does: say what it is, in a few sentences and without HEARTBEAT_OK. It is delivered as an alert."""

_CRON = """\
## Scheduled tasks

A line that begins with [SYSTEM] [CRON:id] says that the scheduled task of that id is due; its text follows. Do every
task that is listed, then report what came of each, by its id. When all went well and there is nothing to report, answer
HEARTBEAT_OK instead. The schedule is kept for you: do not wait, and do not set timers of your own."""

_MEDIA = """\
## Files in answers

To hand over a file with your answer, put this on a line of its own, once for each file:
MEDIA:path/to/file
The path is relative to the workspace, lies inside it, and names a file that exists when you answer; absolute paths, ..
and URLs are not followed. The line is taken out of the text, and the file is sent beside it.
Types that can be sent: {types}."""


def build_gateway_prompt(prompts: GatewayPrompts, *, is_woken: bool = False, has_tasks: bool = False) -> str | None:
    """The sections that are wanted, a blank line between them; None when none is. The same text for the same input.

    ``is_woken``: the agent's heartbeat is on; ``has_tasks``: tasks are scheduled for it.

    The text is part of what a worker is started with, so it names nothing that changes from session to session.
    """
    sections = (
        (is_woken if prompts.heartbeat is None else prompts.heartbeat, _HEARTBEAT),
        (is_woken or has_tasks if prompts.cron is None else prompts.cron, _CRON),
        (prompts.media, _MEDIA.format(types=", ".join(suffix.removeprefix(".") for suffix in MEDIA_TYPES))),
    )
    return "\n\n".join(text for is_wanted, text in sections if is_wanted) or None
