"""One turn as the gateway's services see it, without what runs it."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

import trio

from errors import PoolError
from gateway.lanes.messages import StartTurn
from gateway.runs.run import Run
from gateway.sessions.session_entry import SessionEntry
from gateway.turns.media import Media
from gateway.turns.replies import NoReplyFilter, ReplyShaper, ReplyStyle
from pool import Lease
from wire.messages import PromptResult, TokenUsage
from wire.timers import Timer


class EndReason(StrEnum):
    """Why a turn is ended early."""

    ABORTED = "aborted"
    """A caller aborted it."""
    INTERRUPTED = "interrupted"
    """A newer message took its place."""
    TIMEOUT = "timeout"
    """Its deadline passed."""
    STOPPED = "stopped"
    """The supervisor stops, and the turn waits for a person."""


class TurnState:
    """One turn as the gateway's services see it: what it answers, on which worker, and what has come of it."""

    entry: SessionEntry | None = None
    """Its session, which stays known while it is in a turn; None where there was no room for it."""
    is_steerable = False
    lease: Lease | None = None
    """The hold on its worker while it has one."""
    worker: str | None = None
    """The worker it has, or had last."""
    copies: dict[str, Media] | None = None
    """Files of its answer by their names, copied from the node of its worker; None: the worker is here."""
    level: str | None = None
    waited: float | None = None
    model: str | None = None
    """The model that its worker was asked for; None = the program's own."""
    usage = TokenUsage()
    """What the worker has used so far."""
    result: PromptResult | None = None
    error: PoolError | None = None
    end_error: PoolError | None = None
    """Where it was to be ended early, the error for that, also if it completed before."""
    end_reason: EndReason | None = None
    alarm: Timer | None = None
    """That of its deadline, while its prompt runs."""
    _wait_scope: trio.CancelScope | None = None

    def __init__(self, start: StartTurn, runs: list[Run], held: Lease | None) -> None:
        """``held``: a lease that its caller took and will give back."""
        self.id = start.turn
        self.session = start.session
        self.priority = start.priority
        self.text = start.text
        self.held = held
        self.runs = runs
        """The runs that it answers for; steered ones are added."""
        self.leader = runs[0]
        self.deadline = max(run.deadline for run in runs)
        self.event_ids: list[str] = []
        """The system events in its prompt, by their ids."""
        self.unconsumed: list[Run] = []
        """Steered runs that it never saw; they need a turn of their own."""
        self.discarded: list[Run] = []
        """Steered runs that it never saw and that end with it, because it was to be ended early."""

    def begin_reply(self, style: ReplyStyle) -> None:
        """Begin its answer, in this style."""
        self.style = style
        self.shaper = ReplyShaper(style)
        self.no_reply_filter = NoReplyFilter()

    @contextmanager
    def cancel_when_ending(self) -> Iterator[None]:
        """For what may take its time while the worker is listened to: cut short where the turn is to be ended."""
        with trio.CancelScope() as scope:
            self._wait_scope = scope
            if self.end_reason is not None:
                scope.cancel()
            yield
