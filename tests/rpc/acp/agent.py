"""A dialect and the ACP agent that it believes to speak with; what it reports is kept in short lines."""

from collections.abc import Iterable
from typing import Any

import msgspec

from errors import UsageError
from rpc.acp import make
from rpc.acp.dialect import AcpDialect
from rpc.acp.options import AcpOptions
from rpc.dialect import JournalWrite, Step
from rpc.settings import RpcSettings
from tests.rpc.reports import Forms, Reports, compact, outgoing_lines, short
from wire.framing import LineFramer

CWD = "/home/u/project"
JOURNALS = "/journals"
INITIALIZED: dict[str, Any] = {
    "protocolVersion": 1,
    "agentInfo": {"name": "demo", "version": "1.2"},
    "agentCapabilities": {
        "loadSession": True,
        "promptCapabilities": {"image": True, "embeddedContext": True},
        "sessionCapabilities": {"close": {}, "resume": {}},
    },
}


class Agent:
    """``reported``: what the layer above got, in short; ``written``: lines to the agent that no answer was given to."""

    def __init__(
        self, settings: RpcSettings | None = None, *, ready: bool = True, abilities: Any = None, **options: Any
    ) -> None:
        self.options = AcpOptions(cwd=CWD, journal_dir=JOURNALS, client_version="9", **options)
        self.dialect: AcpDialect = make(settings or RpcSettings(), acp=self.options)
        self.now = 100.0
        self._reports = Reports(_FORMS, _short_result)
        self.reported, self.events = self._reports.lines, self._reports.events
        self.messages = self._reports.messages
        self.journal: list[JournalWrite] = []
        self.journal_before: list[int] = []
        self.written: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.contaminated: list[bytes] = []
        self._framer = LineFramer()
        self._asked = 0
        self._take(self.dialect.open(self.now))
        if ready:
            initialized = {**INITIALIZED, **({} if abilities is None else {"agentCapabilities": abilities})}
            self.start(initialized)

    def start(self, initialized: dict[str, Any] = INITIALIZED, **session: Any) -> None:
        """The agent starts, and answers the first ping; what was reported until then is forgotten."""
        self.answer("initialize", initialized)
        self.answer("session/new", {"sessionId": "s1", **session})
        self.refuse("_pool/ping", -32601, "Method not found")
        assert self.reported[-1].startswith("ready"), self.reported
        self.reported.clear()
        self.sent.clear()

    # --- the layer above ---

    def ask(self, method: str, /, **params: Any) -> str:
        """A request of the layer above, under the id that is returned."""
        self._asked += 1
        request_id = f"c{self._asked}"
        try:
            step = self.dialect.request(request_id, method, msgspec.Raw(msgspec.json.encode(params)), self.now)
        except UsageError as refusal:
            self.reported.append(f"{request_id}: usage {refusal.details['worker_code']}")
        else:
            self._take(step)
        return request_id

    def prompt(self, text: str, **params: Any) -> str:
        """A prompt."""
        return self.ask("prompt", text=text, **params)

    def switch(self, session: str, *, cwd: str = CWD, honest: bool = False, **facts: Any) -> str:
        """Go on with a conversation whose transcript is named like it."""
        journal = {"agent_session": session, "cwd": cwd, "turns": 1, "last_user_text": "", "tail": "", **facts}
        journal.setdefault("closed_cleanly", False)
        return self.ask("switch_session", session_file=f"{JOURNALS}/{session}.jsonl", journal=journal, honest=honest)

    def wait(self, seconds: float) -> None:
        """Let time pass, with the calls that the dialect wants on the way."""
        end = self.now + seconds
        while (due := self.dialect.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self._take(self.dialect.expire(self.now))
        self.now = end

    # --- the agent ---

    def say(self, *lines: dict[str, Any] | str) -> None:
        """Lines of the agent, in one block."""
        self.feed("".join((line if isinstance(line, str) else compact(line)) + "\n" for line in lines).encode())

    def feed(self, data: bytes) -> None:
        """A piece of the agent's output, cut anywhere."""
        block = self._framer.feed_block(data)
        if block:
            self._take(self.dialect.receive(block, self.now))

    def answer(self, method: str, result: Any = None) -> None:
        """The agent answers the oldest request of that method."""
        self.say({"jsonrpc": "2.0", "id": self.pop(method)["id"], "result": {} if result is None else result})

    def refuse(self, method: str, code: int, message: str, data: Any = None) -> None:
        """The same with an error."""
        error = {"code": code, "message": message, **({} if data is None else {"data": data})}
        self.say({"jsonrpc": "2.0", "id": self.pop(method)["id"], "error": error})

    def pop(self, method: str) -> dict[str, Any]:
        """The oldest line of that method that was not looked at."""
        line = next((line for line in self.written if line.get("method") == method), None)
        assert line is not None, f"no {method} in {self.written}"
        self.written.remove(line)
        return line

    def update(self, update_kind: str, /, *, session: str = "s1", **members: Any) -> None:
        """An update of the agent, in a block of its own."""
        self.say(update(update_kind, session=session, **members))

    def end(self, reason: str = "end_turn", **members: Any) -> None:
        """The agent ends its turn."""
        self.answer("session/prompt", {"stopReason": reason, **members})

    def request(self, identity: Any, method: str, params: Any) -> None:
        """A request of the agent."""
        self.say({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})

    def ask_permission(self, identity: Any, call: str = "t1", *, session: str = "s1", **members: Any) -> None:
        """The agent asks whether it may run a call."""
        kinds = members.pop("kinds", ("allow_always", "allow_once", "reject_once"))
        options = [{"optionId": f"o-{kind}", "name": kind, "kind": kind} for kind in kinds]
        params = {"sessionId": session, "toolCall": {"toolCallId": call, **members}, "options": options}
        self.request(identity, "session/request_permission", params)

    # --- inside ---

    def _take(self, step: Step) -> None:
        self.contaminated += step.invalid_lines
        for entry in step.journal:
            self.journal.append(entry)
            self.journal_before.append(len(self.sent))
        for line in outgoing_lines(step):
            assert line["jsonrpc"] == "2.0"
            self.sent.append(line)
            if "method" in line:
                self.written.append(line)
        for message in step.messages:
            self._reports.add(message)


def update(update_kind: str, /, *, session: str = "s1", **members: Any) -> dict[str, Any]:
    """A ``session/update`` line."""
    params = {"sessionId": session, "update": {"sessionUpdate": update_kind, **members}}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def piece(text: str, *, session: str = "s1", kind: str = "agent_message_chunk") -> dict[str, Any]:
    """A piece of the answer's text."""
    return update(kind, session=session, content={"type": "text", "text": text})


def user_message(text: str, *, session: str = "old", **members: Any) -> dict[str, Any]:
    """A message of the user, as it is reported while a conversation is loaded."""
    return update("user_message_chunk", session=session, content={"type": "text", "text": text}, **members)


def journal_lines(entries: Iterable[JournalWrite]) -> list[str]:
    """Transcript entries in short."""
    reported = []
    for entry in entries:
        head = "" if entry.header is None else f"[{entry.header.agent_session} in {entry.header.cwd}] "
        message = entry.message
        if entry.process is not None:
            head += f"<{entry.process.state}>"
        if entry.withdraws:
            head += "<withdrawn>"
        if message is not None:
            end = f" ({message.stop_reason})" if message.stop_reason else ""
            origin = "" if message.origin == "prompt" else f" <{message.origin}>"
            head += f"{message.role}{origin}: {message.text}{end}"
        reported.append(head)
    return reported


def _short_result(result: Any) -> str:
    if isinstance(result, dict) and set(result) - {"strategy", "cause", "error"} == {"session_id", "session_file"}:
        return f"holds {result['session_file']}"
    return short(result)


def _tool(data: dict[str, Any]) -> str:
    call = data["call"]
    parts = [data["phase"], call["name"], call.get("state", "PENDING"), repr(call.get("input_preview", ""))]
    return " ".join([*parts, *(repr(data[key]) for key in ("tail", "error", "result") if key in data)])


_FORMS: Forms = {
    "tool": _tool,
    "tool_executed": lambda data: f"{data['call']['name']} {data['call'].get('state', 'PENDING')}",
    "permission_required": lambda data: (
        f"{data['call']['id']} {data['call']['name']} [{','.join(option['id'] for option in data['options'])}]"
    ),
    "permission_decided": lambda data: (
        f"{data['call_id']} {data['decision']}" + (f" by {data['by']}" if "by" in data else "")
    ),
    "ready": lambda data: f"{data['agent']} {data['version']}",
}
