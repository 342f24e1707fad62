"""Active run, steers, follow-ups.

Which run is in progress, and who may say that it is over: only whoever began it, and not its successor's.

What waits for the running turn: steers for its next model call, follow-ups for its end.
"""

import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import trio

from agent.models.base import ToolDefinition
from agent.output import WorkerOutput
from wire.messages import AnswerOptions, Breakpoint, ImageContent, TextParams


class AgentRun(msgspec.Struct, eq=False, kw_only=True):
    """One prompt that was accepted, and how to abort it; it is its own handle in the registry.

    ``results`` are those of ``client_tools`` that a former run was left with; ``history_turns``, ``from_session`` and
    ``answer`` are the prompt's. ``closing``: nothing that comes in from now on would be read by it.
    ``breakpoint``: tells where in its step it is.
    """

    run_id: str
    text: str
    images: list[ImageContent] = []
    client_tools: dict[str, ToolDefinition] = {}
    results: list[dict[str, Any]] = []
    history_turns: int | None = None
    from_session: str | None = None
    answer: AnswerOptions | None = None
    scope: trio.CancelScope = msgspec.field(default_factory=trio.CancelScope)
    aborting: bool = False
    closing: bool = False
    step_count: int = 0
    breakpoint: Callable[[], Breakpoint] = lambda: "PRE_MODEL"

    def abort(self) -> None:
        """End it at the next possible moment; harmless when repeated, or before it has begun."""
        self.aborting = True
        self.scope.cancel()


class ActiveRunTracker:
    """The active run of a worker. ``say`` tells ``state_changed``: processing (run_started | run_replaced), idle."""

    def __init__(self, say: Callable[[str, dict[str, Any]], Any]) -> None:
        self._emit = say
        self._active: AgentRun | None = None
        self.latest: AgentRun | None = None

    @property
    def active(self) -> AgentRun | None:
        """The run in progress, or the next one, where that already waits for the end of an aborted one."""
        return self._active

    @property
    def busy(self) -> bool:
        """Whether a run is in progress that could still take something in."""
        return self._active is not None and not self._active.aborting and not self._active.closing

    def set_active_run(self, run: AgentRun) -> None:
        """This one is it from now on; a run that it replaces can end nothing but itself."""
        reason = "run_started" if self._active is None else "run_replaced"
        self._active = self.latest = run
        self._emit("state_changed", {"state": "processing", "reason": reason, "run_id": run.run_id})

    def clear_active_run(self, run: AgentRun) -> bool:
        """It is over; whether it was the active one. What waits for that waits in the ``Lane``."""
        if self._active is not run:
            active = "none" if self._active is None else self._active.run_id
            sys.stderr.write(f"agent: handle_mismatch: run {run.run_id} ended, the active run is {active}\n")
            return False
        self._active = None
        self._emit("state_changed", {"state": "idle", "reason": "run_completed", "run_id": run.run_id})
        return True


class InputQueueFull(Exception):
    """Too many inputs wait already."""


class InputQueue:
    """Two bounded queues; every change is told by a ``queue_update`` event."""

    def __init__(self, output: WorkerOutput, limit: int) -> None:
        self._output = output
        self._limit = limit
        self._steers: deque[TextParams] = deque()
        self._follow_ups: deque[TextParams] = deque()

    def __len__(self) -> int:
        return len(self._steers) + len(self._follow_ups)

    def steer(self, text: TextParams) -> None:
        """For the next model call. Raises InboxFull."""
        self._put(self._steers, text)

    def follow_up(self, text: TextParams) -> None:
        """For when the turn would have ended. Raises InboxFull."""
        self._put(self._follow_ups, text)

    def pop_steers(self) -> list[TextParams]:
        """All that wait, oldest first."""
        taken = list(self._steers)
        self._steers.clear()
        if taken:
            self._emit_update()
        return taken

    def pop_follow_up(self) -> TextParams | None:
        """The oldest one."""
        if not self._follow_ups:
            return None
        taken = self._follow_ups.popleft()
        self._emit_update()
        return taken

    def has_steers(self) -> bool:
        """Whether a model call would find something new."""
        return bool(self._steers)

    def clear(self) -> int:
        """Throw everything away; how much it was."""
        count = len(self)
        self._steers.clear()
        self._follow_ups.clear()
        if count:
            self._emit_update()
        return count

    def _put(self, queue: deque[TextParams], text: TextParams) -> None:
        if len(queue) >= self._limit:
            raise InputQueueFull
        queue.append(text)
        self._emit_update()

    def _emit_update(self) -> None:
        self._output.emit("queue_update", {"steers": len(self._steers), "follow_ups": len(self._follow_ups)})
