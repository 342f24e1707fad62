"""A plain ACP client: one process, JSON lines, one request at a time."""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

Json = dict[str, Any]
PATIENCE = 100.0
"""Seconds that an answer may take; how busy the machine is decides about no test."""


class Client:
    """A running agent. ``updates`` are the members ``update`` of what it told, ``others`` lines of any other kind.

    Requests of the agent are answered by ``decide``: its result, or -32601 for None; ``asked`` holds them.
    """

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        pipe = subprocess.PIPE
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the process
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self.stderr, env=env, cwd=cwd, start_new_session=True
        )
        assert self.process.stdin
        assert self.process.stdout
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.updates: list[Json] = []
        self.asked: list[Json] = []
        self.others: list[bytes] = []
        self.answers: list[Json] = []
        self.decide: Callable[[Json], Json | None] = lambda _: None
        self._numbers = 0
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """The process is killed, and what it has started in its group; a second time is nothing."""
        with suppress(BrokenPipeError):
            self.stdin.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.stdout.close()
        self.stderr.close()

    def said_on_stderr(self) -> str:
        """The end of it."""
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace")[-4000:]

    # --- requests ---

    def send(self, line: bytes) -> None:
        self.stdin.write(line + b"\n")
        self.stdin.flush()

    def notify(self, method: str, **params: Any) -> None:
        self.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def begin(self, method: str, **params: Any) -> int:
        """Send the request; its id."""
        self._numbers += 1
        message = {"jsonrpc": "2.0", "id": self._numbers, "method": method, "params": params}
        self.send(json.dumps(message).encode())
        return self._numbers

    def request(self, method: str, **params: Any) -> Json:
        """The whole answer, an error too."""
        return self.answer(self.begin(method, **params))

    def answer(self, request_id: int | None) -> Json:
        def found() -> Json | None:
            return next((answer for answer in self.answers if answer.get("id") == request_id), None)

        return dict(self.until(found))

    def until(self, found: Callable[[], Any]) -> Any:
        """Read until ``found`` returns something."""
        while not (result := found()):
            self.read()
        return result

    # --- what comes back ---

    def read(self) -> None:
        """One line; EOFError at the end of stdout."""
        line = self._line()
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            self.others.append(line)
        elif "method" not in message:
            self.answers.append(message)
        elif "id" in message:
            self.asked.append(message)
            self.decided(message)
        elif message["method"] == "session/update":
            self.told(message["params"])
        else:
            self.others.append(line)

    def told(self, params: Any) -> None:
        """What is not of the right shape is among the others."""
        update = params.get("update") if isinstance(params, dict) else None
        if isinstance(update, dict):
            self.updates.append(update)
        else:
            self.others.append(json.dumps(params).encode())

    def decided(self, message: Json) -> None:
        result = self.decide(message)
        body: Json = {"result": result} if result else {"error": {"code": -32601, "message": "no such method"}}
        self.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}).encode())

    def _line(self) -> bytes:
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self.stdout], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"nothing came within {PATIENCE} s; stderr: {self.said_on_stderr()}")
            piece = os.read(self.stdout.fileno(), 1 << 20)
            if not piece:
                raise EOFError(f"exited: {self.process.wait()}; stderr: {self.said_on_stderr()}")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    # --- the usual order ---

    def start(self) -> Json:
        """Initialize; its result."""
        capabilities: Json = {"session": {"configOptions": {"boolean": {}}}}
        info = {"name": "plain-client", "version": "1"}
        answer = self.request("initialize", protocolVersion=1, clientCapabilities=capabilities, clientInfo=info)
        return dict(answer["result"])

    def new(self, cwd: Path) -> str:
        return str(self.request("session/new", cwd=str(cwd), mcpServers=[])["result"]["sessionId"])

    def prompt(self, session_id: str, text: str) -> Json:
        """The answer; what is said meanwhile is in ``updates``."""
        return self.request("session/prompt", sessionId=session_id, prompt=[{"type": "text", "text": text}])

    def say(self, session_id: str, text: str) -> str:
        """The agent's whole text of one turn."""
        before = len(self.updates)
        answer = self.prompt(session_id, text)
        assert "result" in answer, answer
        return self.text(self.updates[before:])

    def text(self, updates: list[Json] | None = None, kind: str = "agent_message_chunk") -> str:
        updates = self.updates if updates is None else updates
        chunks = [update["content"] for update in updates if update["sessionUpdate"] == kind]
        return "".join(chunk["text"] for chunk in chunks if chunk.get("type") == "text")

    def kinds(self) -> list[str]:
        return [update["sessionUpdate"] for update in self.updates]


def select_option(kind: str) -> Callable[[Json], Json | None]:
    """A ``decide`` that takes the option of this kind, or cancels; -32601 for any other request."""

    def decide(message: Json) -> Json | None:
        if message["method"] != "session/request_permission":
            return None
        options = [option["optionId"] for option in message["params"]["options"] if option["kind"] == kind]
        if not options:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": options[0]}}

    return decide
