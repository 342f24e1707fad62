"""A registry that runs, what it told, and how to look for processes."""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from agent.processes.registry import ProcessRegistry, RegistryLimits
from agent.tools.base import Tool, ToolContext, ToolOutput
from wire.messages import ExecExit

QUICK = RegistryLimits(term_grace=0.3)
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nowhere"}


class Bench:
    """Calls tools as the runner does, over one registry; ``changes``, ``notices`` and ``shown`` are what was told.

    ``mark`` is a word of its own for the environment of its commands, whatever else runs on the machine.
    """

    def __init__(self, **options: Any) -> None:
        self.changes: list[int] = []
        self.notices: list[ExecExit] = []
        self.shown: list[str] = []
        self.shown_something = trio.Event()
        options = {"limits": QUICK, **options}
        self.registry = ProcessRegistry(
            on_change=lambda ids: self.changes.append(len(ids)), on_exit=self.notices.append, **options
        )
        self.mark = secrets.token_hex(8)
        self.cwd = os.path.realpath(".")
        self.outputs = os.path.realpath("../outputs")

    async def use(self, tool: Tool, *, scope: str = "mine", **arguments: Any) -> ToolOutput:
        context = ToolContext(
            cwd=self.cwd,
            environment=ENVIRONMENT,
            report=self._report,
            processes=self.registry,
            scope_key=scope,
            outputs=self.outputs,
        )
        with trio.fail_after(20):
            output = await tool.run(msgspec.convert(arguments, tool.input_type), context)
        assert isinstance(output, ToolOutput)
        return output

    async def text(self, tool: Tool, **arguments: Any) -> str:
        return (await self.use(tool, **arguments)).text

    async def ended(self, session_id: str, scope: str = "mine") -> None:
        """Wait for the end of a background command."""
        session = self.registry.get(session_id, scope)
        assert session is not None
        with trio.fail_after(20):
            await session.ended.wait()

    async def until_shown(self, tail: str) -> None:
        """Wait until exactly this was told of what a command has said."""
        with trio.fail_after(20):
            while tail not in self.shown:
                self.shown_something = trio.Event()
                await self.shown_something.wait()

    def _report(self, report: dict[str, Any]) -> None:
        self.shown.append(report["tail"])
        self.shown_something.set()


@asynccontextmanager
async def bench_of(**options: Any) -> AsyncIterator[Bench]:
    """A bench whose registry runs; at the end it is cancelled, as at the end of the worker."""
    async with trio.open_nursery() as nursery:
        bench = Bench(**options)
        await nursery.start(bench.registry.run)
        yield bench
        nursery.cancel_scope.cancel()


def processes_with(marker: str) -> list[int]:
    """Pids of living processes whose environment holds the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and marker.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
