"""A real ``agent --mode rpc`` on pipes, a client that records every line, and invariants of every recorded session."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from tempfile import TemporaryFile
from typing import IO, Any

import msgspec
import trio

from tests.agent.inprocess import Client, Line

_TIMEOUT = 90.0


class RealAgent(Client):
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = (trio.lowlevel.FdStream(os.dup(pipe.fileno())) for pipe in (process.stdin, process.stdout))
        super().__init__(stdin, stdout)
        process.stdin.close()
        process.stdout.close()
        self.process = process

    async def wait(self) -> int:
        """Its exit code."""
        with trio.fail_after(_TIMEOUT):
            code = await trio.to_thread.run_sync(self.process.wait)
            await self.ended.wait()
        return code


@asynccontextmanager
async def agent(*arguments: str) -> AsyncIterator[RealAgent]:
    """A worker in the current directory, with nothing but PATH and HOME, until the end of its stdin.

    Its lines are checked with ``check_lines``; it must exit with 0 and write nothing to stderr.
    """
    with TemporaryFile() as stderr:
        process = _start(arguments, stderr)
        try:
            async with trio.open_nursery() as nursery:
                client = RealAgent(process)
                nursery.start_soon(client.read)
                await client.event("ready", pid=process.pid)
                yield client
                await client.stdin.aclose()
                code = await client.wait()
                await client.stdout.aclose()
                stderr.seek(0)
                assert (code, stderr.read()) == (0, b"")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        check_lines(client.lines)


def _start(arguments: Iterable[str], stderr: IO[bytes]) -> "subprocess.Popen[bytes]":
    """On the main thread: a worker dies with the thread that started it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "agent", "--mode", "rpc", "--no-hooks", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "NO_PROXY": "*"},
    )


def check_lines(lines: list[Line]) -> None:
    """Rising seqs, one answer for each request, one end for each call and run."""
    seqs = [line["data"]["seq"] for line in lines if "event" in line and "seq" in line["data"]]
    assert seqs == sorted(set(seqs))
    answered = Counter(line["id"] for line in lines if "event" not in line)
    assert max(answered.values(), default=1) == 1
    events = [(line["event"], line["data"]) for line in lines if "event" in line]
    started = Counter(data["call"]["id"] for name, data in events if name == "tool" and data["phase"] == "start")
    assert max(started.values(), default=1) == 1
    assert started == Counter(data["call"]["id"] for name, data in events if name == "tool" and data["phase"] == "end")
    assert started == Counter(data["call"]["id"] for name, data in events if name == "tool_executed")
    runs = Counter(data["run_id"] for name, data in events if name == "run_start")
    assert max(runs.values(), default=1) == 1
    assert runs == Counter(data["run_id"] for name, data in events if name == "done")


def tool(name: str, **arguments: Any) -> str:
    """The directive of the scripted model for one call."""
    return f"TOOL:{name} {msgspec.json.encode(arguments).decode()}"


async def asked(client: Client, text: str) -> tuple[str, str]:
    """Send a prompt; its id, and that of the call that a person is asked about."""
    prompt = await client.send("prompt", text=text)
    return prompt, (await client.event("permission_required"))["call"]["id"]
