"""``pool attach`` as another program starts it: lines in, lines out, each waited for by what it is; lines of pi."""

import json
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from tests.acceptance.supervisor import POOL, Supervisor

_LIMIT = 90.0


class AttachedProgram:
    """One process of some program that speaks JSON Lines; used as a context manager, which kills what is left."""

    def __init__(self, command: Sequence[str | Path], *, cwd: Path | None = None, **env: str) -> None:
        self.process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={**os.environ, **env},
        )
        self.seen: list[dict[str, Any]] = []
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def say(self, *lines: dict[str, Any] | bytes) -> None:
        assert self.process.stdin is not None
        for line in lines:
            self.process.stdin.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def until(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next line that is it; those before it are in ``seen``."""
        while True:
            line = self._lines.get(timeout=_LIMIT)
            assert line is not None, self.seen
            self.seen.append(line)
            if is_it(line):
                return line

    def answer(self, identity: Any) -> dict[str, Any]:
        return self.until(lambda line: line.get("id") == identity and "event" not in line)

    def ask(self, line: dict[str, Any]) -> dict[str, Any]:
        self.say(line)
        return self.answer(line["id"])

    def end(self) -> tuple[int, str]:
        """Close its stdin; its exit code and what it wrote to stderr."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.wait()

    def wait(self) -> tuple[int, str]:
        assert self.process.stderr is not None
        code = self.process.wait(_LIMIT)
        self._reader.join(_LIMIT)
        return code, self.process.stderr.read().decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(_LIMIT)
        self._reader.join(_LIMIT)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue  # what was left to be written to it


# --- pi ---------------------------------------------------------------------------------------------------------------


def attach_pi(supervisor: Supervisor, *flags: str, agent: str = "pi", **options: Any) -> AttachedProgram:
    command = [*POOL, "attach", "--mode", "rpc", "--agent", agent, *flags]
    return AttachedProgram(command, POOL_SOCKET=str(supervisor.socket), **options)


def pi_prompt(identity: str, text: str, **more: Any) -> dict[str, Any]:
    return {"id": identity, "type": "prompt", "message": text, **more}


def is_end(line: dict[str, Any]) -> bool:
    return bool(line["type"] == "agent_end")


def answer_of(end: dict[str, Any]) -> str:
    """The last text of a run."""
    return "".join(part["text"] for part in end["messages"][-1]["content"] if part["type"] == "text")


def pi_state(program: AttachedProgram) -> dict[str, Any]:
    return dict(program.ask({"id": "state", "type": "get_state"})["data"])
