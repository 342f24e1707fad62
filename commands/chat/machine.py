"""What ``pool chat`` does with what is typed, with answers of the supervisor, and with time: effects. Pure."""

import shlex
import uuid
from collections.abc import Iterable
from typing import Any

from commands.chat.effects import Effect, GiveBack, Leave, Line, Request
from commands.chat.transcript import ChatTranscript, history_lines
from errors import NoSupervisor, PoolError, UsageError
from wire.messages import EventEnvelope, QueueMode, omit_none
from wire.terminal import error_line

LEAVE_SECONDS = 2.0
"""A second Ctrl-C within this time leaves the chat."""
SLOW_START_SECONDS = 0.5
"""A message that has no worker after this time says why it waits."""
LOOK_SECONDS = 2.0
"""How often that is asked for while a message waits; the session itself, while it cannot be read."""
HISTORY_MESSAGES = 6
HELP = {
    "/show": "/show [N] - input and output of the latest tool call (Ctrl-O), or of the Nth latest",
    "/leave": "/leave - leave; the session stays (Ctrl-D)",
}
"""The chat's own commands; all others are the supervisor's."""
_BEGIN_AGAIN = frozenset({"/new", "/reset"})
_STATE_EVENTS = frozenset({"run:start", "done", "state_changed", "permission_required", "permission_decided"})


class ChatMachine:
    """One chat.

    Attributes:
        transcript: what happens in the session.
        agent, model: for the status line; empty until they are known.
        waits_for: why a message has no worker yet; empty while none waits.
        place: its place in the pool's queue, where it is in that.
        is_connected: events are being followed.
    """

    def __init__(self, session: str, *, place: str = "", thinking: bool = False, **options: str | None) -> None:
        """``options``: agent and role of the messages. ``thinking``: show the reasoning too.

        ``place``: the options by which shown commands find the supervisor.
        """
        self.session = session
        self.transcript = ChatTranscript(session, thinking=thinking)
        self.agent = options.get("agent") or ""
        self.model = ""
        self.waits_for = ""
        self.place: int | None = None
        self.is_connected = True
        self._options = omit_none(**options)
        self._place = place
        self._interrupted_at: float | None = None
        self._look_at: float | None = None
        self._open_at: float | None = None
        self._said_error = ""
        self._is_open = False
        self._changes = 0
        """How often events have said something of the session's state."""
        self._looks = 0
        """Requests for that state which have no answer yet."""

    # --- what is typed ---

    def submit(self, text: str, shown: str | None) -> list[Effect]:
        """A text was entered: an answer to the open question, a command, or a message.

        ``shown``: as it was typed; None where the terminal still shows it.
        """
        text = _encodable(text)
        if not text.strip():
            return []
        echo = self.transcript.end_text()
        if shown is not None:
            shown = _encodable(shown)
            echo.append(Line(f"> {shown}", "bold", is_whole=True))
        shown = text if shown is None else shown
        if self.transcript.questions.current and not text.lstrip().startswith("/"):
            return [*echo, *self.transcript.questions.answer(text, shown)]
        return [*echo, *self._command_or_message(text, shown)]

    def _command_or_message(self, text: str, shown: str) -> list[Effect]:
        match text.split():
            case ["/help"]:
                return [*map(Line, HELP.values()), *self._send(text, shown)]
            case ["/show"]:
                return self.transcript.calls.show()
            case ["/show", number] if number.isdecimal():
                return self.transcript.calls.show(int(number))
            case ["/leave"]:
                return self.leave()
        return self._send(text, shown)

    def _send(self, text: str, shown: str) -> list[Effect]:
        run = uuid.uuid4().hex
        queue = QueueMode.STEER.value if self.transcript.running else None
        # a new conversation may be with another agent: the one that the session has would refuse the command itself
        options = {} if text.split(maxsplit=1)[0] in _BEGIN_AGAIN else self._options
        params = omit_none(session=self.session, text=text, run=run, queue=queue, **options)
        self.transcript.mine[run] = None
        return [Request("send", "agent", params, is_ordered=True, typed=shown)]

    def interrupt(self, now: float) -> list[Effect]:
        """Ctrl-C: the turn that this chat began is aborted; a second one leaves."""
        before, self._interrupted_at = self._interrupted_at, now
        if before is not None and now - before <= LEAVE_SECONDS:
            return self.leave(130)
        mine, running = self.transcript.mine, self.transcript.running
        run = running if running in mine else next(reversed(mine), None)
        if run is not None:
            abort = Request("abort", "abort", {"session": self.session, "run": run})
            return [Line("aborting; Ctrl-C again leaves", "dim"), abort]
        other = "the turn that runs was not begun here: /stop ends it; " if running else ""
        return [Line(f"{other}Ctrl-C again leaves", "dim")]

    def leave(self, code: int = 0) -> list[Effect]:
        """End the chat; what runs goes on, and the last line says how to come back."""
        goes_on = " its turn goes on;" if self.is_busy else ""
        back = f"pool chat{self._place} -s {shlex.quote(self.session)}"
        return [Line(f"session {self.session}:{goes_on} come back with: {back}", "dim", is_whole=True), Leave(code)]

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs, or a message that was sent from here waits."""
        return self.transcript.running is not None or bool(self.transcript.mine or self.waits_for)

    # --- time ---

    def next_wakeup(self) -> float | None:
        """When to call ``wake``."""
        return min((at for at in (self._look_at, self._open_at) if at is not None), default=None)

    def wake(self, now: float) -> list[Effect]:
        """It may be time to ask why a message waits, or to try again to read the session."""
        requests: list[Effect] = []
        if self._open_at is not None and now >= self._open_at:
            self._open_at = None
            requests.append(self._look("open"))
        if self._look_at is not None and now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            requests += self._look_once()
        return requests

    # --- the supervisor ---

    def events(self, events: Iterable[EventEnvelope]) -> list[Effect]:
        """What happened in the session, in its order."""
        effects: list[Effect] = []
        for event in events:
            self._changes += event.type in _STATE_EVENTS
            effects += self.transcript.event(event)
            if event.type == "done":
                self.waits_for = ""  # what else waits will be asked
        if self.transcript.running:
            self.waits_for, self._look_at = "", None
        if self.transcript.running and not self.agent:
            effects += self._look_once()
        return effects

    def connection(self, *, is_there: bool) -> list[Effect]:
        """Events are followed from now on, or the supervisor went away."""
        self.is_connected, self._open_at = is_there, None
        return [self._look("open")] if is_there else []

    def notice(self, text: str) -> list[Effect]:
        """Something is to be said of the connection."""
        return [*self.transcript.end_text(), Line(f"! {text}", "warn", is_whole=True)]

    def _look(self, purpose: str) -> Request:
        self._looks += 1
        return Request(purpose, "sessions.get", {"session": self.session}, known=self._changes)

    def _look_once(self) -> list[Effect]:
        return [] if self._looks else [self._look("look")]

    def _note_end(self, request: Request) -> None:
        self._looks -= request.method == "sessions.get"

    def answered(self, request: Request, result: Any, now: float) -> list[Effect]:
        """The result of a request."""
        self._note_end(request)
        match request.purpose:
            case "send" if request.params["run"] in self.transcript.mine and not self.transcript.running:
                self._look_at = now + SLOW_START_SECONDS
            case "look":
                self._read_state(result, now)
            case "open":
                self._read_state(result, now)
                return self._opened(result, known=request.known)
            case "history":
                return list(history_lines(result["messages"]))
            case "page":
                return self.transcript.questions.page_came(request.subject, result)
        return []

    def failed(self, request: Request, error: PoolError, now: float) -> list[Effect]:
        """The error of a request."""
        self._note_end(request)
        words: list[Effect] = [*self.transcript.end_text(), Line(error_line(error), "bad", is_whole=True)]
        match request.purpose:
            case "open" | "look" | "history":
                return self._unread(request, error, words, now)
            case "page" if not self.transcript.questions.waits(request.subject):
                return []  # it was decided meanwhile, so that nothing is left to be shown
            case "send":
                self.transcript.mine.pop(request.params["run"], None)
                return [*words, GiveBack(request.typed)]
            case "decide":
                self.transcript.questions.refused(request.subject)
                return [*words, *([GiveBack(request.typed)] if request.typed else [])]
        return words

    def _unread(self, request: Request, error: PoolError, words: list[Effect], now: float) -> list[Effect]:
        """The session could not be read. The same error is said once: it is asked for often."""
        if isinstance(error, UsageError) and "session" in error.details:
            self._is_open = True  # it has had no message yet, so that it is not known
            return []
        if isinstance(error, NoSupervisor):  # it is asked for again with the next connection
            return []
        if request.purpose == "open" and not isinstance(error, UsageError):
            self._open_at = now + LOOK_SECONDS
        said, self._said_error = self._said_error, error.message
        return words if error.message != said else []

    def _read_state(self, view: Any, now: float) -> None:
        """A message that waits is asked about again and again, also of one that was sent elsewhere."""
        self._said_error = ""
        self.agent, self.model = view["agent"], view["model"] or self.model
        is_waiting = bool(view["waits_for"]) and not self.transcript.running
        self.waits_for, self.place = (view["waits_for"], view.get("place")) if is_waiting else ("", None)
        if is_waiting and self._look_at is None:
            self._look_at = now + LOOK_SECONDS
        elif not is_waiting and not self.transcript.mine:
            self._look_at = None

    def _opened(self, view: Any, *, known: int) -> list[Effect]:
        """Events come on a connection of their own: what is older than the last of them is asked for again."""
        asked: list[Effect] = []
        if known == self._changes:
            asked += self.transcript.questions.found(view["pending_permissions"])
            runs = view["state"] != "READY" and not view["waits_for"]
            self.transcript.running = view["last_run"] if runs else None
        else:
            asked.append(self._look("open"))
        if self._is_open:
            return asked
        self._is_open = True
        params = {"session": self.session, "limit": HISTORY_MESSAGES}
        return [Request("history", "sessions.history", params), *asked]


def _encodable(text: str) -> str:
    """A terminal's bytes that are no UTF-8 come as lone surrogates, which neither a message nor the screen can hold."""
    return text.encode(errors="replace").decode()
