"""An editor that drives ``pool acp``: JSON-RPC written by hand, each line waited for by what it is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.acceptance.supervisor import POOL, Supervisor
from tests.commands.attached import AttachedProgram

INITIALIZE = {
    "protocolVersion": 1,
    "clientCapabilities": {"session": {"notices": {}, "compaction": {}}},
    "clientInfo": {"name": "editor", "version": "1"},
}


class Editor(AttachedProgram):
    """One agent process, initialized."""

    def __init__(self, *flags: str, **env: str) -> None:
        super().__init__([*POOL, "acp", *flags], cwd=None, **env)
        self._last = 0
        self.request("initialize", **INITIALIZE)

    def send(self, method: str, **params: Any) -> int:
        self._last += 1
        self.say({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        return self._last

    def notify(self, method: str, **params: Any) -> None:
        self.say({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, identity: Any) -> dict[str, Any]:
        return self.until(lambda line: line.get("id") == identity and "method" not in line)

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request; it must succeed."""
        answer = self.answer(self.send(method, **params))
        assert "result" in answer, answer
        return dict(answer["result"])

    def refused(self, method: str, **params: Any) -> tuple[int, str]:
        """Code and text of the error that a request is answered with."""
        answer = self.answer(self.send(method, **params))
        return answer["error"]["code"], answer["error"]["message"]

    def open(self, cwd: Path) -> str:
        return str(self.request("session/new", cwd=str(cwd), mcpServers=[])["sessionId"])

    def send_prompt(self, session: str, text: str) -> int:
        return self.send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    def prompt(self, session: str, text: str) -> str:
        """How a prompt ends."""
        return str(self.answer(self.send_prompt(session, text))["result"]["stopReason"])

    def update(self, kind: str, where: Callable[[dict[str, Any]], bool] = lambda _update: True) -> dict[str, Any]:
        """The next update of this kind."""

        def is_it(line: dict[str, Any]) -> bool:
            update = line.get("params", {}).get("update", {})
            return bool(update.get("sessionUpdate") == kind and where(update))

        return dict(self.until(is_it)["params"]["update"])

    def question(self) -> dict[str, Any]:
        return self.until(lambda line: line.get("method") == "session/request_permission")

    def choose(self, question: dict[str, Any], option: str) -> None:
        outcome = {"outcome": {"outcome": "selected", "optionId": option}}
        self.say({"jsonrpc": "2.0", "id": question["id"], "result": outcome})

    def kinds(self) -> list[str]:
        """Of all updates so far."""
        return [update["sessionUpdate"] for _session, update in self._updates()]

    def said(self, session: str, kind: str = "agent_message_chunk") -> str:
        """All text of this kind so far, which is forgotten then."""
        texts = [
            update["content"]["text"]
            for told, update in self._updates()
            if told == session and update["sessionUpdate"] == kind
        ]
        self.seen.clear()
        return "".join(texts)

    def _updates(self) -> list[tuple[str, dict[str, Any]]]:
        told = [line["params"] for line in self.seen if line.get("method") == "session/update"]
        return [(params["sessionId"], params["update"]) for params in told]


def edit(supervisor: Supervisor, *flags: str) -> Editor:
    return Editor(*flags, POOL_SOCKET=str(supervisor.socket))
