"""Plays a recording of a real agent through the dialect: our n-th request of a method is the recorded n-th one.

What the recorder asked and the dialect does not (``session/list``, an idle cancel, ...) is left out with its answer,
and what the dialect asks besides is answered here.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from rpc.settings import RpcSettings
from tests.rpc.acp.agent import CWD, JOURNALS, Agent
from tests.rpc.reports import compact
from wire.units import Seconds

GOLDEN = Path(__file__).parents[3] / "fixtures" / "golden" / "acp"
AGENTS = (
    "claude-agent-acp-0.101.0",
    "codex-acp-2.6.0",
    "codex-acp-zed-0.16.0",
    "gemini-cli-0.61.0",
    "opencode-1.18.33",
    "pi-acp-0.0.34",
)
SCENARIOS = ("turn", "permission", "cancel", "load2", "busy", "badinput")
_MATCHED = frozenset({"initialize", "session/new", "session/load", "session/prompt"})


class Record(NamedTuple):
    """One recorded line, with the time since the spawn in seconds; ``message`` None where it is no JSON object."""

    to: str
    at: float
    line: str
    message: dict[str, Any] | None


def load(name: str) -> list[Record]:
    """A recording; ``to`` is in or out."""
    records = []
    with (GOLDEN / f"{name}.jsonl").open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            try:
                message = json.loads(row["line"])
            except ValueError:
                message = None
            records.append(Record(row["dir"], row["t"], row["line"], message if isinstance(message, dict) else None))
    return records


class AcpReplay(Agent):
    """``cuts``: how many bytes of the agent's output arrive together, in turn; None: all that came between two lines.

    ``behind``: each transcript has a turn more than the process knows of.
    """

    def __init__(self, records: list[Record], cuts: list[int] | None = None, *, behind: bool = False) -> None:
        super().__init__(RpcSettings(abort_grace=Seconds(20)), ready=False)
        self._records = records
        self._cuts = cuts
        self._cut = 0
        self.feed_lines_one_by_one = False
        self._behind = behind
        self._expected: dict[str, list[Any]] = defaultdict(list)
        self._answers: dict[Any, dict[str, Any]] = {}
        self._spares = self._loads = 0
        self._pending: list[bytes] = []
        self._asked_for: set[int] = set()
        self._find_asked()

    def play(self) -> list[str]:
        """Everything that was reported."""
        skipped: Any = None
        for index, record in enumerate(self._records):
            if record.to == "in":
                self._flush()
                self.now = max(self.now, 100 + record.at)
                if record.message is not None:
                    skipped = self._replay_in(index, record.message) or skipped
            elif record.message is not None and "method" not in record.message:
                if record.message.get("id") == skipped:
                    skipped = None
                self._replay_answer(record.message)
            elif skipped is None:
                self._pending.append(record.line.encode())
        self._flush()
        return self.reported

    # --- inside ---

    def _find_asked(self) -> None:
        """Of several conversations that a recording begins the dialect begins the last; it asks for no odd ones."""
        begun: int | None = None
        for index, record in enumerate(self._records):
            method = (record.message or {}).get("method")
            if record.to != "in" or method not in _MATCHED:
                continue
            if method == "session/new":
                begun = index
            elif (record.message or {})["params"].get("sessionId") != "nope":
                self._asked_for.add(index)
        if begun is not None:
            self._asked_for.add(begun)
        for index in sorted(self._asked_for):
            message = self._records[index].message or {}
            self._expected[message["method"]].append(message["id"])

    def _replay_in(self, index: int, message: dict[str, Any]) -> Any:
        """Do what was done; returns the id of a load that the dialect did not need, whose replay is left out."""
        method = message.get("method")
        if method == "session/cancel":
            self.ask("abort")
        elif method is None and "result" in message:
            self._decide(message)
        elif method == "session/prompt" and index in self._asked_for:
            before = len(self.sent)
            self.prompt(message["params"]["prompt"][0]["text"])
            if not any(line.get("method") == method for line in self.sent[before:]):
                self._expected[method].remove(message["id"])
        elif method == "session/load":
            return self._load(index, message)
        self._answer_others()
        return None

    def _load(self, index: int, message: dict[str, Any]) -> Any:
        session = message["params"]["sessionId"]
        texts = self._replayed_texts(index, message["id"])
        tail = "".join(f"user:{text}\n" for text in texts)
        self._loads += 1
        turns = max(len(texts), 1) + (self._loads if self._behind else 0)
        self.switch(session, turns=turns, last_user_text=texts[-1] if texts else "lost", tail=tail)
        self._answer_others()
        if any(line.get("method") == "session/load" for line in self.written):
            return None
        self._expected["session/load"].remove(message["id"])
        return message["id"]

    def _replayed_texts(self, index: int, identity: Any) -> list[str]:
        texts = []
        for record in self._records[index:]:
            line = record.message or {}
            if record.to == "out" and line.get("id") == identity:
                break
            change = line.get("params", {}).get("update", {}) if record.to == "out" else {}
            if change.get("sessionUpdate") == "user_message_chunk":
                texts.append(change["content"]["text"])
        return texts

    def _decide(self, message: dict[str, Any]) -> None:
        outcome = message["result"].get("outcome", {})
        asked = self._question(message["id"])
        if outcome.get("outcome") == "selected" and asked is not None:
            kinds = {option["optionId"]: option["kind"] for option in asked["options"]}
            decision = "allow" if kinds[outcome["optionId"]].startswith("allow") else "deny"
            call_id = asked["toolCall"]["toolCallId"]
            self.ask("decide", call_id=call_id, decision=decision, option_id=outcome["optionId"])

    def _question(self, identity: Any) -> dict[str, Any] | None:
        for record in self._records:
            line = record.message or {}
            if record.to == "out" and line.get("id") == identity and "request_permission" in line.get("method", ""):
                params: dict[str, Any] = line["params"]
                return params
        return None

    def _replay_answer(self, message: dict[str, Any]) -> None:
        identity = message.get("id")
        for method, ids in self._expected.items():
            if identity in ids:
                self._answers[method, ids.index(identity)] = message
                self._queue_answers()
                return
        if not isinstance(identity, int):  # errors without an id, and answers to what only the recorder asked
            self._pending.append(compact(message).encode())

    def _queue_answers(self) -> None:
        """Answers whose request has been sent, under its id."""
        for (method, number), message in list(self._answers.items()):
            ours = [line["id"] for line in self.sent if line.get("method") == method and self._is_matched(line)]
            if number < len(ours):
                del self._answers[method, number]
                self._pending.append(compact({**message, "id": ours[number]}).encode())
                self.written = [line for line in self.written if line.get("id") != ours[number]]

    def _is_matched(self, line: dict[str, Any]) -> bool:
        return bool(self._expected[line["method"]])

    def _answer_others(self) -> None:
        """Answer what no recording answers."""
        while True:
            own = [line for line in self.written if "id" in line and not self._will_be_answered(line)]
            if not own:
                return
            line = own[0]
            self.written.remove(line)
            reply: dict[str, Any] = {"result": {}}
            if line["method"] == "session/new":
                self._spares += 1
                reply = {"result": {"sessionId": f"spare{self._spares}"}}
            elif line["method"] == "_pool/ping":
                reply = {"error": {"code": -32601, "message": "Method not found"}}
            self.say({"jsonrpc": "2.0", "id": line["id"], **reply})

    def _will_be_answered(self, line: dict[str, Any]) -> bool:
        return line["method"] in _MATCHED and self._is_matched(line)

    def _flush(self) -> None:
        data = b"".join(line + b"\n" for line in self._pending)
        lines = [line + b"\n" for line in self._pending] if self.feed_lines_one_by_one else []
        self._pending.clear()
        for line in lines:
            self.feed(line)
        while data and not lines:
            size = len(data)
            if self._cuts:
                size = self._cuts[self._cut % len(self._cuts)]
                self._cut += 1
            self.feed(data[:size])
            data = data[size:]
        self._queue_answers()
        if self._pending:
            self._flush()
        self._answer_others()


def played(name: str, cuts: list[int] | None = None, *, behind: bool = False) -> AcpReplay:
    """A recording that was played to its end."""
    replay = AcpReplay(load(name), cuts, behind=behind)
    replay.play()
    return replay


__all__ = ["AGENTS", "CWD", "GOLDEN", "JOURNALS", "SCENARIOS", "AcpReplay", "Record", "load", "played"]
