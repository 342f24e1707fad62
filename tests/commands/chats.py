"""A chat without a terminal: what is typed, events and answers in; requests and lines out."""

import json
from typing import Any

import msgspec

from commands.chat.effects import CallText, Effect, Line, Markdown, Request
from commands.chat.machine import ChatMachine
from wire.events import channel_of
from wire.messages import EventEnvelope

CALL = {"id": "c1", "name": "exec", "input_preview": '{"command": "ls"}'}
SHOWN = {"parts": [{"name": "command", "text": "ls"}]}


class Chat:
    """A machine of the session ``ada``, its requests, and what it has printed."""

    def __init__(self, **options: Any) -> None:
        self.machine = ChatMachine("ada", **options)
        self.requests: list[Request] = []
        self.printed: list[str] = []
        self.others: list[Effect] = []
        self.seq = 0

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Request():
                    self.requests.append(effect)
                case Line(text=text, end=end):
                    self.printed.append(text + end)
                case Markdown(text=text):
                    self.printed.append(text)
                case CallText(page=page):
                    self.printed += [part.text for part in page.parts]
                case _:
                    self.others.append(effect)

    def type(self, text: str) -> None:
        self.take(self.machine.submit(text, text))

    def happens(self, type_: str, run: str | None = None, **data: Any) -> None:
        self.seq += 1
        raw = msgspec.Raw(json.dumps(data).encode())
        event = EventEnvelope(self.seq, 1.0, "ada", channel_of(type_), type_, raw, run)
        self.take(self.machine.events([event]))

    def say(self, text: str) -> str:
        """Send a message whose turn begins; its run."""
        self.type(text)
        run = str(self.requests[-1].params["run"])
        self.happens("run:start", run, worker="w1", leader=run)
        return run

    def joins(self, leader: str, text: str) -> str:
        """Send a message into the running turn of another run; its run."""
        self.type(text)
        run = str(self.requests[-1].params["run"])
        self.happens("run:start", run, worker="w1", leader=leader)
        return run

    def ends(self, run: str, text: str = "", **data: Any) -> None:
        """A run that a worker has carried out is over, as the gateway says it."""
        self.happens("done", run, **{"reason": "completed", "text": text, "worker": "w1", **data})

    @property
    def asked(self) -> list[tuple[str, dict[str, Any]]]:
        return [(request.method, request.params) for request in self.requests]
