"""A real ``agent --mode rpc`` on pipes, a client that sees every line, and what must be true of any talk with it."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import msgspec
import trio

from tests.agent.inprocess import Client, Line
from wire.entries import CallEntry, CallRecord, TranscriptEntry
from wire.transcript import read_entries

_PATIENCE = 90.0


class RealAgent(Client):
    """``on_line`` is called with each line as it arrives, before anybody else has seen it."""

    def __init__(self, process: "subprocess.Popen[bytes]", stderr: IO[bytes], nursery: trio.Nursery) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = (trio.lowlevel.FdStream(os.dup(pipe.fileno())) for pipe in (process.stdin, process.stdout))
        super().__init__(stdin, stdout)
        process.stdin.close()
        process.stdout.close()
        self.process = process
        self.was_killed = False
        self.on_line: Callable[[Line], object] = lambda _line: None
        self._stderr = stderr
        self._nursery = nursery

    @property
    def stderr(self) -> str:
        """What it has written there so far."""
        self._stderr.seek(0)
        return self._stderr.read().decode()

    def take(self, line: Line) -> None:
        self.on_line(line)
        super().take(line)

    @property
    def complaints(self) -> list[str]:
        """The same by line, but what it notes of a prompt that came while the run before was ending."""
        return [line for line in self.stderr.splitlines() if not line.startswith("agent: handle_mismatch: ")]

    def soon(self, method: str, **params: Any) -> None:
        """Send a request from within ``on_line``."""
        self._nursery.start_soon(partial(self.send, method, **params))

    async def kill(self) -> None:
        """SIGKILL; returns when it is dead and everything it said is in."""
        self.was_killed = True
        self.process.kill()
        await self.wait()

    async def wait(self) -> int:
        """Its exit code."""
        with trio.fail_after(_PATIENCE):
            code = await trio.to_thread.run_sync(self.process.wait)
            await self.ended.wait()
        return code

    async def session(self) -> str:
        """Begin a conversation; its file."""
        path: str = (await self.call("new_session"))["session_file"]
        return path

    async def results(self) -> list[Any]:
        """What the calls of the conversation came to, in the order of their results."""
        return [block["content"] for block in results_of(await self.blocks())]

    async def blocks(self) -> list[dict[str, Any]]:
        return blocks_of((await self.call("get_messages"))["messages"])


@asynccontextmanager
async def agent(*arguments: str, **environment: str) -> AsyncIterator[RealAgent]:
    """A worker in the current directory, with nothing but PATH and HOME, until the end of its stdin.

    However the block was spent, what was said is held against ``check_told``; unless it was killed it must end well.
    """
    with TemporaryFile() as stderr:
        hooks = () if "--hooks" in arguments else ("--no-hooks",)
        process = _start([*hooks, *arguments], environment, stderr)
        try:
            async with trio.open_nursery() as nursery:
                client = RealAgent(process, stderr, nursery)
                nursery.start_soon(client.read)
                await client.event("ready", pid=process.pid)
                yield client
                await client.stdin.aclose()
                code = await client.wait()
                await client.stdout.aclose()
                assert client.was_killed or (code, client.complaints) == (0, []), (code, client.stderr)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        check_told(client.lines, ended=not client.was_killed)


def _start(arguments: list[str], environment: dict[str, str], stderr: IO[bytes]) -> "subprocess.Popen[bytes]":
    """On the main thread: a worker dies with the thread that started it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "agent", "--mode", "rpc", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "NO_PROXY": "*", **environment},
    )


# --- what must be true of anything that was said ----------------------------------------------------------------------


def check_told(lines: list[Line], *, ended: bool) -> None:
    """Rising seqs, one answer for each request, one end for each call and run. ``ended``: no run was cut off."""
    seqs = [line["data"]["seq"] for line in lines if "event" in line and "seq" in line["data"]]
    assert seqs == sorted(set(seqs))
    answered = Counter(line["id"] for line in lines if "event" not in line)
    assert max(answered.values(), default=1) == 1
    begun, over = Counter(_subjects(lines, "start")), Counter(_subjects(lines, "end"))
    assert over <= begun if not ended else over == begun
    assert max(begun.values(), default=1) == 1
    executed = Counter(line["data"]["call"]["id"] for line in lines if line.get("event") == "tool_executed")
    assert executed == over if ended else executed <= begun
    runs, done = (Counter(tell(lines, name, "run_id")) for name in ("run_start", "done"))
    assert max(runs.values(), default=1) == 1
    assert done == runs if ended else done <= runs


def _subjects(lines: Iterable[Line], phase: str) -> list[str]:
    tools = (line["data"] for line in lines if line.get("event") == "tool")
    return [data["call"]["id"] for data in tools if data["phase"] == phase]


def tell(lines: Iterable[Line], event: str, field: str) -> list[Any]:
    """This field of each event of that name."""
    return [line["data"].get(field) for line in lines if line.get("event") == event]


# --- conversations ----------------------------------------------------------------------------------------------------


def blocks_of(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for message in messages for block in message["content"]]


def calls(blocks: Iterable[dict[str, Any]]) -> list[str]:
    """The ids of the calls, in order."""
    return [block["id"] for block in blocks if block["type"] == "tool_use"]


def results_of(blocks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for block in blocks if block["type"] == "tool_result"]


def entries_of(path: str | Path) -> list[TranscriptEntry]:
    """The whole entries of a transcript, as they are on the disk at this moment."""
    return list(read_entries(path))


def records_of(path: str | Path, call_id: str) -> list[CallRecord]:
    """Everything that was written about one call, in order."""
    found = (entry for entry in entries_of(path) if isinstance(entry, CallEntry))
    return [entry.record for entry in found if entry.record.id == call_id]


def tool(name: str, **arguments: Any) -> str:
    """The word of the scripted model for one call."""
    return f"TOOL:{name} {msgspec.json.encode(arguments).decode()}"
