"""Replays what a real pi was recorded to say through the dialect, and tells in short lines what came of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from errors import UsageError
from rpc.dialect import Step
from rpc.pi import PiDialect
from rpc.settings import RpcSettings
from tests.rpc.reports import Forms, Reports, compact, outgoing_lines, short

GOLDEN = Path(__file__).parents[3] / "fixtures" / "golden" / "pi-0.73.1"
_PAUSE = 0.02
"""Seconds between two recorded lines after which pi has had time to answer a question of the dialect's own."""
END: dict[str, Any] = {"type": "agent_end", "messages": []}
_BEHAVIORS = {"steer": "steer", "followUp": "follow_up"}
_METHODS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "prompt": lambda line: _some(
        text=line["message"], streaming_behavior=_BEHAVIORS.get(line.get("streamingBehavior", ""))
    ),
    "steer": lambda line: {"text": line["message"]},
    "follow_up": lambda line: {"text": line["message"]},
    "abort": lambda _line: {},
    "get_state": lambda _line: {},
    "get_messages": lambda _line: {},
    "get_commands": lambda _line: {},
    "bash": lambda line: {"command": line["command"]},
    "compact": lambda _line: {},
    "new_session": lambda _line: {},
    "switch_session": lambda line: {"session_file": line["sessionPath"]},
    "set_model": lambda line: _some(provider=line.get("provider"), model=line.get("modelId")),
    "set_thinking_level": lambda line: {"level": line["level"]},
}
_NATIVE = {"set_thinking_level": "set_thinking"}


def _some(**params: Any) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


class Record(NamedTuple):
    """One recorded line, with the time since the spawn in seconds."""

    to: str
    at: float
    line: str


def load(name: str) -> list[Record]:
    """A recording; ``to`` is in, out, err, exit or meta."""
    with (GOLDEN / f"{name}.jsonl").open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return [Record(record["dir"], record["t"], record["line"]) for record in records]


def state(**changes: Any) -> dict[str, Any]:
    """The data of a ``get_state`` answer, recorded, with changes."""
    answer = next(record for record in load("get_state") if record.to == "out")
    data: dict[str, Any] = json.loads(answer.line)["data"]
    return {**data, **changes}


class Replay:
    """A dialect and the pi that it believes to speak with.

    ``told`` is everything it told the layer above, in short; ``written`` every command it wrote and nobody has
    answered yet, oldest first.
    """

    def __init__(
        self,
        settings: RpcSettings | None = None,
        *,
        boot: bool = True,
        allow_bash: bool = False,
        in_memory: bool = False,
    ) -> None:
        self.attended = False
        self.dialect = PiDialect(
            settings or RpcSettings(),
            allow_bash=allow_bash,
            attended=lambda: self.attended,
            in_memory=in_memory,
        )
        self.now = 100.0
        self._reports = Reports(_FORMS, short)
        self.messages, self.told = self._reports.messages, self._reports.lines
        self.written: list[dict[str, Any]] = []
        self.lines: list[bytes] = []
        self.contaminated: list[bytes] = []
        self.streaming = False
        self._unsent: list[tuple[str, str]] = []
        self._sent_as: dict[str, str] = {}
        self._take(self.dialect.open(self.now))
        if boot:
            self.answer("get_state", state())
            assert self.told[0].startswith("ready")
            self.told.clear()

    def is_running(self) -> bool:
        """What the dialect thinks."""
        return self.dialect.is_running

    @property
    def last(self) -> dict[str, Any]:
        """The last line that was written to pi."""
        line: dict[str, Any] = json.loads(self.lines[-1])
        return line

    @property
    def error_message(self) -> str:
        """Why the last request was refused."""
        error = self.messages[-1].error
        assert error is not None
        return error.message

    # --- the layer above ---

    def ask(self, request_id: str, method: str, **params: Any) -> None:
        """A request of the layer above."""
        raw = msgspec.Raw(msgspec.json.encode(params))
        try:
            step = self.dialect.request(request_id, method, raw, self.now)
        except UsageError as refusal:
            self.told.append(f"{request_id}: {refusal.details['worker_code']}")
        else:
            self._take(step)

    def wait(self, seconds: float) -> None:
        """Let time pass, with the calls that the dialect wants on the way."""
        end = self.now + seconds
        while (due := self.dialect.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self._take(self.dialect.expire(self.now))
        self.now = end

    # --- pi ---

    def say(self, *lines: dict[str, Any] | str) -> None:
        """Lines of pi, in one block."""
        block = "".join((line if isinstance(line, str) else compact(line)) + "\n" for line in lines)
        for line in lines:
            kind = line.get("type") if isinstance(line, dict) else None
            self.streaming = (self.streaming or kind == "agent_start") and kind != "agent_end"
        self._take(self.dialect.receive(block.encode(), self.now))

    def end(self, *lines: dict[str, Any] | str) -> None:
        """Pi says these lines and the end of the run, and what it is asked then."""
        self.say(*lines, END)
        self.answer_questions()

    def answer(self, command: str, data: Any = None, *, error: str | None = None) -> None:
        """Pi answers the oldest command of that name."""
        self.say(self.answer_to(command, data, error=error))

    def answer_to(self, command: str, data: Any = None, *, error: str | None = None) -> dict[str, Any]:
        """That answer, unsaid."""
        sent = next(sent for sent in self.written if sent["type"] == command)
        self.written.remove(sent)
        head = {"id": sent["id"], "type": "response", "command": command, "success": error is None}
        return {**head, **_some(data=data, error=error)}

    def change_session(self, command: str, **changes: Any) -> None:
        """Pi obeys the command and answers what it holds then."""
        self.answer(command, {"cancelled": False})
        self.answer("get_state", state(**changes))

    def answer_questions(self, **changes: Any) -> None:
        """Pi answers whatever question for its state is open."""
        while any(sent["type"] == "get_state" for sent in self.written):
            self.answer("get_state", state(isStreaming=self.streaming, **changes))

    # --- a recording ---

    def play(self, records: list[Record]) -> None:
        """Ask what was asked in the recording, under its ids, and let pi say what it said.

        Commands that the dialect has no method for are left out, with their answers. Questions of the dialect's own
        are answered where the recorded pi paused.
        """
        before = 0.0
        for record in records:
            if record.to == "in" or record.at - before > _PAUSE:
                self._answer_own_questions()
            if record.to == "in":
                self._replay_request(json.loads(record.line))
            elif record.to == "out":
                self.now += max(0.0, record.at - before)
                self._replay_line(json.loads(record.line))
            before = record.at
        self._answer_own_questions()

    def _replay_request(self, line: dict[str, Any]) -> None:
        kind = line["type"]
        if kind == "extension_ui_response":
            self.ask(f"ui{len(self.messages)}", "ui_respond", **{key: line[key] for key in line if key != "type"})
        elif kind in _METHODS:
            self._unsent.append((line["id"], "prompt" if kind in ("steer", "follow_up") else kind))
            self.ask(line["id"], _NATIVE.get(kind, kind), **_METHODS[kind](line))
            if self.told and self.told[-1].startswith(f"{line['id']}: "):  # refused: pi never saw it
                self._unsent.pop()

    def _replay_line(self, line: dict[str, Any]) -> None:
        if line["type"] == "response":
            wire_id = self._sent_as.pop(str(line.get("id")), None)
            if wire_id is None:
                return
            self.written = [sent for sent in self.written if sent["id"] != wire_id]
            line["id"] = wire_id
        self.say(line)

    def _answer_own_questions(self) -> None:
        asked = set(self._sent_as.values())
        while own := [sent for sent in self.written if sent["type"] == "get_state" and sent["id"] not in asked]:
            self.written.remove(own[0])
            head = {"id": own[0]["id"], "type": "response", "command": "get_state", "success": True}
            self.say({**head, "data": state(isStreaming=self.streaming)})

    # --- inside ---

    def _take(self, step: Step) -> None:
        self.contaminated += step.invalid_lines
        self.lines += step.outgoing
        for command in outgoing_lines(step):
            self._note_command(command)
        for message in step.messages:
            self._reports.add(message)

    def _note_command(self, command: dict[str, Any]) -> None:
        if command["type"] == "extension_ui_response":
            self.told.append("to pi: " + short({key: command[key] for key in sorted(command) if key != "type"}))
            return
        self.written.append(command)
        for recorded_id, kind in self._unsent:
            if kind == command["type"]:
                self._unsent.remove((recorded_id, kind))
                self._sent_as[recorded_id] = command["id"]
                break


_FORMS: Forms = {
    "tool": lambda data: " ".join(
        (
            *(data["phase"], data["call"]["name"], data["call"]["state"]),
            *(repr(data[field]) for field in ("tail", "error", "result") if field in data),
        )
    ),
    "tool_executed": lambda data: f"{data['call']['name']} {data['call']['state']}",
    "queue_update": lambda data: f"{data.get('steering', [])} {data.get('follow_up', [])}",
    "ui_request": lambda data: f"{data['method']} {short(data.get('fields', {}))}",
    "ui_resolved": lambda data: data["reason"],
}
