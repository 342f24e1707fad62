"""A raw line to one worker program, for tests that look at the program itself: no client of ours in between."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from subprocess import PIPE
from typing import Any

import trio

TIME_LIMIT = 90.0
Decoded = dict[str, Any]


class WorkerProcess:
    """Lines in, lines out; ``lines`` are all that ``next_line`` has returned."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr
        self.buffer = b""
        self.requests = 0

    async def send(self, method: str, **params: Any) -> str:
        self.requests += 1
        request = {"id": str(self.requests), "method": method, "params": params}
        await self.stdin.send_all(json.dumps(request).encode() + b"\n")
        return str(request["id"])

    async def next_line(self) -> bytes | None:
        """Without its end; None at the end of stdout (what has no line end stays in ``buffer``)."""
        while b"\n" not in self.buffer:
            piece = await self.stdout.receive_some(1024 * 1024)
            if not piece:
                return None
            self.buffer += piece
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    async def lines_to_answer(self, request_id: str) -> list[bytes]:
        """All lines up to and with the answer."""
        lines: list[bytes] = []
        while (line := await self.next_line()) is not None:
            lines.append(line)
            if f'"id":"{request_id}"'.encode() in line:
                return lines
        raise AssertionError(f"stdout ended before the answer {request_id}: {lines[-3:]}")

    async def answer(self, request_id: str) -> Decoded:
        answer: Decoded = json.loads((await self.lines_to_answer(request_id))[-1])
        return answer

    async def ask(self, method: str, **params: Any) -> Any:
        return (await self.answer(await self.send(method, **params)))["result"]

    async def rest(self) -> bytes:
        """Everything until stdout ends."""
        while await self.next_line() is not None:
            pass
        return self.buffer


@asynccontextmanager
async def started(
    *arguments: str, module: str = "fixtures.hostile_agent", cwd: str | None = None, ready: bool = True
) -> AsyncIterator[WorkerProcess]:
    """The program, past its ready line; killed and reaped in the end, the whole thing within 20 s."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    with trio.fail_after(TIME_LIMIT):
        process = await trio.lowlevel.open_process(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd)
        worker = WorkerProcess(process)
        try:
            if ready:
                line = await worker.next_line()
                assert line is not None
                assert json.loads(line)["event"] == "ready"
            yield worker
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                for stream in (worker.stdin, worker.stdout, worker.stderr):
                    await stream.aclose()
