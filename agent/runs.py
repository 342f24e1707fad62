"""The active run of a worker, and the inputs that wait for it: steers and follow-ups."""

import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec
import trio

from agent.models.base import ToolDefinition
from agent.output import WorkerOutput
from wire.messages import AnswerOptions, Breakpoint, ImageContent, TextParams


class AgentRun(msgspec.Struct, eq=False, kw_only=True):
    """One accepted prompt, and how to abort it.

    ``results``: those of client tools for the open calls of the run before. ``closing``: it reads no more input.
    ``breakpoint``: where in its step it is. ``environment``: of the commands it runs, beside their own.
    """

    run_id: str
    text: str
    images: list[ImageContent] = []
    client_tools: dict[str, ToolDefinition] = {}
    results: list[dict[str, Any]] = []
    history_turns: int | None = None
    from_session: str | None = None
    answer: AnswerOptions | None = None
    environment: dict[str, str] = {}
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
    """The active run of a worker. Emits ``state_changed``: processing (run_started | run_replaced), idle."""

    def __init__(self, emit: Callable[[str, dict[str, Any]], Any]) -> None:
        self._emit = emit
        self.active: AgentRun | None = None
        """The run in progress, or the next one, where that already waits for the end of an aborted one."""
        self.latest: AgentRun | None = None

    @property
    def busy(self) -> bool:
        """Whether a run is in progress that could still take something in."""
        return self.active is not None and not self.active.aborting and not self.active.closing

    def set_active_run(self, run: AgentRun) -> None:
        """Make this the active run; a run that it replaces can end nothing but itself."""
        reason = "run_started" if self.active is None else "run_replaced"
        self.active = self.latest = run
        self._emit("state_changed", {"state": "processing", "reason": reason, "run_id": run.run_id})

    def clear_active_run(self, run: AgentRun) -> None:
        """The run is over; only that of the active one ends the activity."""
        if self.active is not run:
            active = "none" if self.active is None else self.active.run_id
            sys.stderr.write(f"agent: handle_mismatch: run {run.run_id} ended, the active run is {active}\n")
            return
        self.active = None
        self._emit("state_changed", {"state": "idle", "reason": "run_completed", "run_id": run.run_id})


class InputQueueFull(Exception):
    """Too many inputs wait already."""


InputKind: TypeAlias = Literal["steer", "follow_up"]
"""For the next model call; for when the turn would have ended."""


class InputQueue:
    """Two bounded queues; every change is a ``queue_update`` event."""

    def __init__(self, output: WorkerOutput, limit: int) -> None:
        self._output = output
        self._limit = limit
        self._steers: deque[TextParams] = deque()
        self._follow_ups: deque[TextParams] = deque()

    def __len__(self) -> int:
        return len(self._steers) + len(self._follow_ups)

    def put(self, kind: InputKind, text: TextParams) -> None:
        """Raises InputQueueFull."""
        queue = self._steers if kind == "steer" else self._follow_ups
        if len(queue) >= self._limit:
            raise InputQueueFull
        queue.append(text)
        self._emit_update()

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
        """Drop all inputs; their number."""
        count = len(self)
        self._steers.clear()
        self._follow_ups.clear()
        if count:
            self._emit_update()
        return count

    def _emit_update(self) -> None:
        self._output.emit("queue_update", {"steers": len(self._steers), "follow_ups": len(self._follow_ups)})
