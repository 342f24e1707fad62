"""A front end attached to a gateway of memory: says lines, keeps what it is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from tests.gateway.callers import RecordingCaller
from tests.gateway.world import World


class FrontEnd:
    """One attachment over a connection of its own."""

    def __init__(self, world: World, caller: RecordingCaller, view: dict[str, Any], nursery: trio.Nursery) -> None:
        self.world = world
        self.view = view
        self._caller = caller
        self._nursery = nursery

    async def begin(self, line: Any = None, **params: Any) -> None:
        """Say a line, and let everything happen that can happen now."""
        if line is not None:
            params["line"] = line

        async def send() -> None:
            await self.world.call("attach.send", self._caller, attachment=self.view["attachment"], **params)

        self._nursery.start_soon(send)
        await wait_all_tasks_blocked()

    async def request(self, method: str, identity: Any = 1, **params: Any) -> None:
        await self.begin({"id": identity, "method": method, "params": params})

    async def prompt(self, text: str, identity: Any = 1, **params: Any) -> None:
        await self.request("prompt", identity, text=text, **params)

    async def end(self) -> None:
        await self.world.call("attach.end", self._caller, attachment=self.view["attachment"])

    @property
    def lines(self) -> list[Any]:
        """Everything it was told so far."""
        return [line for event, data in self._caller.pushed if event == "attach" for line in data["lines"]]

    @property
    def answers(self) -> list[Any]:
        return [line for line in self.lines if "event" not in line]

    @property
    def events(self) -> list[str]:
        return [line["event"] for line in self.lines if "event" in line]

    @property
    def words(self) -> str:
        """What the worker has written to its stderr."""
        return "".join(data["words"] for event, data in self._caller.pushed if event == "attach_words")

    @property
    def ended(self) -> dict[str, Any] | None:
        return next((data for event, data in self._caller.pushed if event == "attach_ended"), None)

    def answer(self, identity: Any) -> dict[str, Any]:
        """The one answer to a request."""
        (found,) = [line for line in self.answers if line["id"] == identity]
        assert isinstance(found, dict)
        return found


@asynccontextmanager
async def attached(world: World, session: str | None = "alice", **params: Any) -> AsyncIterator[FrontEnd]:
    """A front end that leaves at the end of the block, without a word."""
    if session is not None:
        params["session"] = session
    async with trio.open_nursery() as nursery:
        caller = RecordingCaller(nursery)
        view = await world.call("attach.open", caller, **{"cwd": "/", **params})
        yield FrontEnd(world, caller, view, nursery)
        nursery.cancel_scope.cancel()
