"""What a dialect reports to the layer above, in short lines; for the doubles of the programs that it speaks with."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from rpc.dialect import Step
from wire.messages import Message

Forms = Mapping[str, Callable[[dict[str, Any]], str]]

COMMON_FORMS: Forms = {
    "assistant_message": lambda data: data["partial"],
    "thinking": lambda data: data["partial"],
    "done": lambda data: data["stop_reason"],
    "run_start": lambda data: data["run_id"],
    "token_usage": lambda data: f"{data['input_tokens']} {data['output_tokens']}",
}
_SHORT_NAMES = {"queue_update": "queue", "token_usage": "tokens"}


class Reports:
    """``lines``: all of it, an event or an answer each, but for the pieces of a text, which are one."""

    def __init__(self, forms: Forms, short_result: Callable[[Any], str]) -> None:
        self.messages: list[Message] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.lines: list[str] = []
        self._forms = {**COMMON_FORMS, **forms}
        self._short_result = short_result
        self._last_seq = 0

    def add(self, message: Message) -> None:
        """One message; the numbers of events must rise."""
        self.messages.append(message)
        if message.event is None:
            self.lines.append(f"{message.id}: {self._answer(message)}")
            return
        data = json.loads(bytes(message.data))
        if "seq" in data:
            assert data["seq"] > self._last_seq, "seq must rise"
            self._last_seq = data["seq"]
        self.events.append((message.event, data))
        last = self.lines[-1] if self.lines else ""
        if message.event in ("assistant_message", "thinking") and last.startswith(f"{message.event} "):
            self.lines[-1] = last + data["partial"]
        else:
            self.lines.append(self._event(message.event, data))

    def _answer(self, message: Message) -> str:
        if message.error is not None:
            return f"error {message.error.code}"
        result = json.loads(bytes(message.result))
        if isinstance(result, dict) and "stop_reason" in result:
            error = f" ({result['error']})" if result["error"] else ""
            return f"{result['stop_reason']} {result['text']!r}{error}"
        return self._short_result(result)

    def _event(self, name: str, data: dict[str, Any]) -> str:
        form = self._forms.get(name)
        if form is not None:
            return f"{_SHORT_NAMES.get(name, name)} {form(data)}"
        return f"{name} {short({key: value for key, value in data.items() if key not in ('seq', 'run_id')})}"


def outgoing_lines(step: Step) -> list[dict[str, Any]]:
    """What a step writes to the program: whole lines of JSON."""
    for line in step.outgoing:
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
    return [json.loads(line) for line in step.outgoing]


def short(value: Any) -> str:
    """JSON with its keys in order."""
    return json.dumps(value, sort_keys=True)


def compact(value: Any) -> str:
    """As JavaScript writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
