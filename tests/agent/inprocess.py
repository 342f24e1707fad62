"""The worker in this process, on memory streams: a client that sees every line and waits only for what is said."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio
import trio.testing

from agent.assembly import assemble
from agent.limits import WorkerLimits
from agent.models.scripted import ProcessFaults
from agent.options import parse_options
from agent.output import WorkerOutput
from agent.rpc import serve_streams
from wire.messages import PromptResult

Line = dict[str, Any]
SMALL = WorkerLimits(max_steps=8, queued_inputs=3)


class Client:
    """Talks to one worker; ``lines`` is everything it said so far."""

    def __init__(self, to_worker: trio.abc.SendStream, from_worker: trio.abc.ReceiveStream) -> None:
        self.stdin = to_worker
        self.stdout = from_worker
        self.lines: list[Line] = []
        self.raw = b""
        self.exit_code: int | None = None
        self.crashed_with: int | None = None
        self.patience = 20.0
        self.ended = trio.Event()
        self.on_line: Callable[[Line], object] = lambda _line: None
        """Called with each line as it arrives."""
        self._news = trio.Event()
        self._ids = 0
        self._sending = trio.Lock()

    async def send_raw(self, data: bytes) -> None:
        await self.stdin.send_all(data)

    async def send(self, method: str, **params: Any) -> str:
        """Send a request; its id."""
        self._ids += 1
        request_id = str(self._ids)
        line = msgspec.json.encode({"id": request_id, "method": method, "params": params}) + b"\n"
        async with self._sending:
            await self.stdin.send_all(line)
        return request_id

    async def line(self, wanted: Callable[[Line], bool]) -> Line:
        """Wait for the first line of all that is wanted."""
        with trio.fail_after(self.patience):
            while True:
                for line in self.lines:
                    if wanted(line):
                        return line
                await self._news.wait()

    async def answer(self, request_id: str | None) -> Line:
        return await self.line(lambda line: "event" not in line and line["id"] == request_id)

    async def event(self, name: str, **data: Any) -> Line:
        """Wait for an event whose data holds these fields; returns its data."""
        wanted = data.items()
        line = await self.line(lambda line: line.get("event") == name and wanted <= line["data"].items())
        found: Line = line["data"]
        return found

    async def call(self, method: str, **params: Any) -> Any:
        """Send and wait for the result."""
        answer = await self.answer(await self.send(method, **params))
        assert "error" not in answer, answer
        return answer["result"]

    async def refused(self, method: str, **params: Any) -> str:
        """Send and wait for the error; its code."""
        answer = await self.answer(await self.send(method, **params))
        code: str = answer["error"]["code"]
        return code

    async def prompt(self, text: str, **more: Any) -> PromptResult:
        return msgspec.convert(await self.call("prompt", text=text, **more), PromptResult)

    async def results(self) -> list[Any]:
        """Contents of all tool results of the conversation, in order."""
        blocks = [block for each in (await self.call("get_messages"))["messages"] for block in each["content"]]
        return [block["content"] for block in blocks if block["type"] == "tool_result"]

    def events(self, name: str) -> list[Line]:
        return [line["data"] for line in self.lines if line.get("event") == name]

    async def read(self) -> None:
        buffer = b""
        while data := await self.stdout.receive_some(65536):
            self.raw += data
            *whole, buffer = (buffer + data).split(b"\n")
            for line in whole:
                try:
                    self.lines.append(msgspec.json.decode(line))
                except (msgspec.DecodeError, UnicodeDecodeError):
                    self.lines.append({"event": "garbage", "data": {}})
                self.on_line(self.lines[-1])
            self._news.set()
            self._news = trio.Event()
        self.ended.set()


def tool(name: str, **arguments: Any) -> str:
    """The directive of the scripted model for one call."""
    return f"TOOL:{name} {msgspec.json.encode(arguments).decode()}"


async def asked(client: Client, text: str) -> tuple[str, str]:
    """Send a prompt; its id, and that of the call that a person is asked about."""
    prompt = await client.send("prompt", text=text)
    return prompt, (await client.event("permission_required"))["call"]["id"]


@asynccontextmanager
async def worker(
    *arguments: str, limits: WorkerLimits = SMALL, read: bool = True, stdout_buffer: int | None = None
) -> AsyncIterator[Client]:
    """A worker with these options, in the current directory; its stdin ends with the block."""
    output = WorkerOutput()
    to_worker, stdin = trio.testing.memory_stream_one_way_pair()
    stdout, from_worker = (
        trio.testing.memory_stream_one_way_pair()
        if stdout_buffer is None
        else trio.testing.lockstep_stream_one_way_pair()
    )
    client = Client(to_worker, from_worker)

    def crash(code: int) -> None:
        client.crashed_with = code

    hooks = () if "--hooks" in arguments else ("--no-hooks",)
    assembled = assemble(
        parse_options(["--mode", "rpc", *hooks, *arguments]), output, ProcessFaults(output.write_raw, crash), limits
    )

    async def serve() -> None:
        client.exit_code = await serve_streams(assembled, stdin, stdout)
        await stdout.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        if read:
            nursery.start_soon(client.read)
            await client.event("ready", pid=os.getpid())
        yield client
        await to_worker.aclose()
