"""What is open on one pi's pipe: commands under our own ids, requests that wait for an answer, numbered events.

Collects what one step of the dialect writes and publishes; all other parts of the dialect use it.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from rpc.passthrough import RawLine, RawObject, with_id, with_original_id
from rpc.pi.events import error_text
from rpc.pi.messages import PiCommand, PiLine, PiUiResponse, encode_command
from rpc.run_events import ErrorEvent
from rpc.step_collector import StepCollector

OnAnswer = Callable[[PiLine], None]


class ForwardedCommand(NamedTuple):
    """A command as a front end has written it, and the request that it is here."""

    request_id: str
    command: RawObject


class _OutstandingCommand(NamedTuple):
    type: str
    on_answer: OnAnswer
    forward: ForwardedCommand | None = None


class PiLink(StepCollector):
    """One instance per dialect."""

    def __init__(self) -> None:
        super().__init__()
        self._outstanding: dict[str, _OutstandingCommand] = {}
        self._last_id = 0
        self.raw_listening = False
        """Whether there is a listener for pi's own lines."""

    @property
    def wants_raw(self) -> bool:
        """Whether some line may be wanted as it is."""
        return self.raw_listening or any(sent.forward is not None for sent in self._outstanding.values())

    # --- towards pi ---

    def send(self, command: PiCommand, on_answer: OnAnswer) -> None:
        """Write a command under a fresh id; ``on_answer`` gets its one answer, good or bad."""
        wire_id = self._next_id()
        self._outstanding[wire_id] = _OutstandingCommand(command.type, on_answer)
        self._outgoing.append(encode_command(msgspec.structs.replace(command, id=wire_id)))

    def send_forward(self, forward: ForwardedCommand, name: str, on_answer: OnAnswer) -> None:
        """The same for a front end's own command, whose answer is handed out raw besides."""
        wire_id = self._next_id()
        self._outstanding[wire_id] = _OutstandingCommand(name, on_answer, forward)
        self._outgoing.append(with_id(forward.command, wire_id))

    def _next_id(self) -> str:
        self._last_id += 1
        return f"p{self._last_id}"

    def respond(self, response: PiUiResponse) -> None:
        """Write the answer to a dialog; pi does not acknowledge it."""
        self._outgoing.append(encode_command(response))

    def collect_raw(self, raw: bytes, line: PiLine) -> None:
        """Keep a line for the raw listener: an event, or the answer to a forwarded command."""
        if line.type != "response":
            if self.raw_listening:
                self._raw.append(self._event_line(raw, line))
            return
        sent = self._outstanding.get(self._command_id(line))
        if sent is not None and sent.forward is not None:
            own = sent.forward.command.get("id")
            self._raw.append(RawLine(with_original_id(raw, own), sent.forward.request_id))

    def _event_line(self, raw: bytes, line: PiLine) -> RawLine:
        """An event; what a shell command prints carries the id of the command, which was changed on its way to pi."""
        sent = self._outstanding.get(str(line.id))
        if sent is None:
            return RawLine(raw, None)
        others = with_original_id(raw, None)
        if sent.forward is None:
            return RawLine(others, None)
        return RawLine(with_original_id(raw, sent.forward.command.get("id")), sent.forward.request_id, others)

    def deliver(self, line: PiLine) -> None:
        """Give an answer of pi to the sender of the command.

        pi leaves out the id where it did not know the command or could not read the line: the oldest open command of
        that name is meant, or the only open one. A stray answer becomes an ``error`` event.
        """
        sent = self._outstanding.pop(self._command_id(line), None)
        if sent is not None:
            sent.on_answer(line)
        if line.id is None or sent is None:
            code = "parse_error" if line.command == "parse" else "stray_answer" if line.success else "unknown_command"
            self.emit("error", ErrorEvent(code=code, message=error_text(line), seq=self.stamp().seq))

    def _command_id(self, line: PiLine) -> str:
        return str(line.id) if line.id is not None else self._match_without_id(line)

    def _match_without_id(self, line: PiLine) -> str:
        if line.command == "parse":
            return next(iter(self._outstanding)) if len(self._outstanding) == 1 else ""
        return next((wire_id for wire_id, sent in self._outstanding.items() if sent.type == line.command), "")
