"""A talk with the machine of ``pool acp``: what the editor sends and gets, what the pool is asked and answers."""

import json
from typing import Any

import msgspec

from doors.acp.machine import AcpMachine
from doors.acp.state import LaunchOptions
from wire.events import EVENT_TYPES, EventChannel
from wire.messages import Message

OFFERED: dict[str, Any] = {"models": ["m1", "m2"], "any_model": False, "thinking_levels": ["low", "high"]}
OPENED = {"session": "acp-1", "agent": "main", "role": "default", "cwd": "/p", "options": OFFERED}
_messages = msgspec.json.Decoder(Message)


class Talk:
    """One agent process. ``capabilities``: the editor's; None: it has not said ``initialize`` yet."""

    def __init__(self, capabilities: dict[str, Any] | None = None, *, initialized: bool = True, **options: Any) -> None:
        self.machine = AcpMachine(LaunchOptions("att", "1.0", **options))
        self._open: list[tuple[str, str, dict[str, Any]]] = []
        self._last = 0
        self._seq = 100
        if initialized:
            self.send("initialize", protocolVersion=1, clientCapabilities=capabilities or {})
            self.told()

    # --- the editor ---------------------------------------------------------------------------------------------------

    def send(self, method: str, **params: Any) -> int:
        """A request of the editor; its id."""
        self._last += 1
        self.line({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        return self._last

    def notify(self, method: str, **params: Any) -> None:
        self.line({"jsonrpc": "2.0", "method": method, "params": params})

    def line(self, line: object) -> None:
        self.machine.on_line(line if isinstance(line, bytes | None) else json.dumps(line).encode())

    def told(self) -> list[dict[str, Any]]:
        """What the editor was told since the last look."""
        lines = [json.loads(line) for line in self.machine.take_editor_lines()]
        assert all(line.pop("jsonrpc") == "2.0" for line in lines)
        return lines

    def updates(self) -> list[dict[str, Any]]:
        """The same, where all of it is updates of one session."""
        lines = self.told()
        assert {line.get("method") for line in lines} <= {"session/update"}, lines
        return [line["params"]["update"] for line in lines]

    def answered(self) -> dict[str, Any]:
        """The same, where it is one line, an answer."""
        (line,) = self.told()
        return line

    # --- the pool -----------------------------------------------------------------------------------------------------

    def asked(self) -> list[tuple[str, dict[str, Any]]]:
        """What the pool was asked since the last look."""
        lines = [json.loads(line) for line in self.machine.take_pool_lines()]
        self._open += [(line["id"], line["method"], line.get("params", {})) for line in lines]
        return [(line["method"], line.get("params", {})) for line in lines]

    def answer(self, result: Any = None, *, error: dict[str, Any] | None = None, method: str | None = None) -> None:
        """The pool answers the oldest open request (of that method)."""
        self.asked()
        index = next(index for index, (_, name, _) in enumerate(self._open) if method in (None, name))
        identity = self._open.pop(index)[0]
        body = {"error": error} if error else {"result": {} if result is None else result}
        self._message({"id": identity, **body})

    def refuse(self, code: str, message: str = "no", **data: Any) -> None:
        self.answer(error={"code": code, "message": message, "data": data})

    def lose(self, why: str) -> None:
        """The supervisor is gone, and answers nothing that it was asked."""
        self._open.clear()
        self.machine.on_lost(why)

    def event(self, kind: str, run: str | None = None, *, subscription: str = "s1", **data: Any) -> None:
        """The pool tells one event of a session."""
        self._seq += 1
        known = EVENT_TYPES.get(kind)
        event: dict[str, Any] = {"seq": self._seq, "ts": 0.0, "session": "acp-1", "type": kind, "data": data}
        event["channel"] = EventChannel.MONITOR if known is None else known.channel
        if run is not None:
            event["run_id"] = run
        self._message({"event": "events", "data": {"subscription": subscription, "events": [event]}})

    def push(self, name: str, **data: Any) -> None:
        self._message({"event": name, "data": data})

    def _message(self, message: dict[str, Any]) -> None:
        self.machine.on_message(_messages.decode(json.dumps(message)))

    # --- in short -----------------------------------------------------------------------------------------------------

    def open(self, session: str = "acp-1", subscription: str = "s1", cwd: str = "/p", **opened: Any) -> str:
        """A session that is open."""
        self.send("session/new", cwd=cwd, mcpServers=[])
        self.answer({**OPENED, "session": session, "head": 7, "pending": [], **opened})
        self.answer({"subscription": subscription, "head": 7, "complete": True})
        assert self.told()[0]["result"]["sessionId"] == session
        self.asked()
        return session

    def prompt(self, text: str = "hello", session: str = "acp-1", *, accepted: bool = True) -> tuple[int, str]:
        """A prompt that the pool has accepted: the id of its request, and its run."""
        identity = self.send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])
        run = str(self.asked()[-1][1]["run"])
        if accepted:
            self.answer({"status": "accepted"}, method="agent")
        return identity, run


def refusal(line: dict[str, Any]) -> tuple[int, str]:
    """Code and text of an answer that is an error."""
    return line["error"]["code"], line["error"]["message"]


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}
