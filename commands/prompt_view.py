"""A followed run: its answer as it comes with dim activity beside it, or JSON lines."""

import threading
from collections.abc import Mapping
from itertools import groupby
from typing import Any, TextIO

import msgspec

from commands.event_text import (
    ToolData,
    command_line,
    decision_commands,
    describe_event,
    event_data,
    event_text,
    hidden_text,
    notice_mark,
    question_text,
    shown_page,
    tool_data,
)
from commands.prompt_approvals import HINT, LineApprovals
from doors.control.client import read_envelopes, split_envelopes
from errors import PoolError
from wire.events import TEXT_KINDS
from wire.messages import EventEnvelope
from wire.run_view import CallLines, RunView
from wire.terminal import BOLD, DIM, format_duration


class PromptTextView:
    """The answer's text on ``out``; what the agent does besides on ``err``."""

    def __init__(
        self, out: TextIO, err: TextIO, env: Mapping[str, str], *, thinking: bool = False, place: str = ""
    ) -> None:
        """``thinking``: show the reasoning too. ``place``: the options by which shown commands find the supervisor."""
        self._run_view = RunView(out, err, env)
        self._calls = CallLines(self._run_view)
        self._kinds = frozenset({"text", "think"} if thinking else {"text"})
        self._connection_flags = place
        self._waits = ""
        self.approvals: LineApprovals | None = None
        """Where a person may answer right here."""
        self.tells_waits = err.isatty()
        self._lock = threading.RLock()
        """Two threads draw: that of the run, and that which reads answers to its questions."""

    def say(self, text: str) -> None:
        """A line beside the answer; from any thread."""
        with self._lock:
            self._run_view.line(text, whole=True, style="")

    def waits(self, session: dict[str, Any]) -> None:
        """Why the run has not begun, where that has changed. ``session``: its view."""
        place = f" (place {session['place']} in the queue)" if session.get("place") else ""
        words, since = f"… waits: {session['waits_for']}{place}" if session.get("waits_for") else "", ""
        if not words and session.get("waiting"):
            words, since = self._behind_turn(session)
        if words != self._waits:
            self._waits = words
            with self._lock:
                self._run_view.line(f"{words}{since}" if words else "… a worker is there", whole=True)

    def _behind_turn(self, session: dict[str, Any]) -> tuple[str, str]:
        """That the run waits behind another of its session, and how long that has run."""
        waiting, age = session["waiting"], session.get("turn_age")
        words = "… waits: the turn that runs in the session comes first"
        if waiting > 1:
            words += f"; {waiting} messages wait behind it"
        for call in session.get("pending_permissions", ())[:1]:
            answer = command_line("approve", call["id"], session=session["key"], place=self._connection_flags)
            words += f"; it waits for a person: {answer}"
        return words, "" if age is None else f" (running for {format_duration(age)})"

    def show(self, events: msgspec.Raw) -> None:
        """Draw the envelopes of one push, and flush once."""
        with self._lock:
            for kind, group in groupby(read_envelopes(events), key=_text_kind):
                if kind is None:
                    for event in group:
                        self._show_event(event)
                elif kind in self._kinds:
                    show = self._run_view.answer if kind == "text" else self._run_view.dim
                    show("".join(map(event_text, group)))
            self._run_view.flush()

    def end(self, outcome: dict[str, Any]) -> None:
        """The last line end, the whole text where no pieces of it came, and the files that came beside it."""
        with self._lock:
            if not self._run_view.has_answer:
                self._run_view.answer(outcome.get("text") or "")
            self._run_view.close()
            for media in outcome.get("media") or ():
                self._run_view.line(f"· file {media['path']}", whole=True)

    def fail(self, error: PoolError) -> None:  # noqa: ARG002  # the command line prints the error itself
        """Leave the cursor at the start of a line."""
        self.close()

    def close(self) -> None:
        """End the line that was begun."""
        with self._lock:
            self._run_view.close()

    def _show_event(self, event: EventEnvelope) -> None:
        tool = tool_data(event) if event.type.startswith("tool:") else None
        if tool is not None:
            self._show_tool(event.type, tool)
        elif event.type == "permission_required":
            self._show_approval(event)
            if self.approvals:
                self.approvals.ask(str(event_data(event)["call"]["id"]))
        elif event.type == "run:accepted" and event_data(event).get("awaits_person"):
            self._run_view.line("! the session waits for a person's answer first; this shows what it asks:", style="")
            look = command_line("sessions show", event.session, session=None, place=self._connection_flags)
            self._run_view.line(f"  {look}", whole=True, style=BOLD)
        elif event.type == "alert":
            self._run_view.line(f"! {describe_event(event)[0]}", whole=True, style="")
        elif event.type == "permission_decided" and self.approvals:
            self.approvals.decided(str(event_data(event).get("call_id")))
            self.say(f"· {describe_event(event)[0]}")
        elif mark := notice_mark(event.type, event_data(event)):
            self._run_view.line(f"{mark} {describe_event(event)[0]}", style=DIM if mark == "·" else "")

    def _show_tool(self, type_: str, tool: ToolData) -> None:
        match type_:
            case "tool:start":
                self._calls.start(tool.call)
            case "tool:update":
                self._calls.update(tool.tail)
            case "tool:error":
                self._calls.error(tool.call, tool.error, tool.details)
            case "tool:end":
                self._calls.end(tool.call, tool.details)

    def _show_approval(self, event: EventEnvelope) -> None:
        data = event_data(event)
        self._run_view.line(f"? needs your approval: {question_text(data)}", style="")
        self._calls.page(shown_page(data))
        if hidden := hidden_text(data):
            self._run_view.line(f"  {hidden}", whole=True, style="")
        if self.approvals:
            self._run_view.line(f"  {HINT}", whole=True, style=BOLD)
        for command in decision_commands(data, event.session, self._connection_flags):
            self._run_view.line(f"  {command}", whole=True, style=BOLD)


def _text_kind(event: EventEnvelope) -> str | None:
    return TEXT_KINDS.get(event.type)


class PromptJsonView:
    """One JSON object a line: each event's envelope as it came, last ``{"outcome"}`` or ``{"error"}``."""

    tells_waits = False

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def waits(self, session: dict[str, Any]) -> None:
        """Of a run that has not begun there is no event."""

    def show(self, events: msgspec.Raw) -> None:
        """Write the envelopes of one push, and flush once."""
        self._out.write("".join(f"{str(line, 'utf-8')}\n" for line in split_envelopes(events)))
        self._out.flush()

    def end(self, outcome: dict[str, Any]) -> None:
        """Write the outcome."""
        self._line({"outcome": outcome})

    def fail(self, error: PoolError) -> None:
        """Write the error as the outcome."""
        self._line({"error": {"code": error.code, "message": error.message, "data": error.details}})

    def close(self) -> None:
        """Nothing is left open between lines."""

    def _line(self, value: Any) -> None:
        self._out.write(msgspec.json.encode(value).decode() + "\n")
        self._out.flush()


PromptView = PromptTextView | PromptJsonView
