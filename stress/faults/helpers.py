"""What several faults need: processes of our own that go when nobody needs them; ends that are gone through with."""

import signal
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager

import trio

from stress.facts import Disordered
from stress.faults.port import Target

__all__ = ["Helper", "gone_through_with", "helper_process"]

_READ_BYTES = 4096
_LONGEST = 180.0


class Helper:
    """A running one."""

    def __init__(self, process: trio.Process, stdin: trio.abc.SendStream, output: trio.abc.ReceiveStream) -> None:
        self.pid = process.pid
        self._stdin = stdin
        self._output = output
        self._rest = b""

    async def dismiss(self) -> None:
        """Tell it that nobody needs it any more, by the end of its stdin."""
        await self._stdin.aclose()

    async def line(self) -> str:
        """The next line that it prints; empty = there is none any more."""
        while b"\n" not in self._rest:
            piece = await self._output.receive_some(_READ_BYTES)
            if not piece:
                return ""
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace")


@asynccontextmanager
async def helper_process(command: Iterable[str]) -> AsyncIterator[Helper]:
    """It is killed at the end of the block."""
    process = await trio.lowlevel.open_process(
        list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a helper's streams are no pipes")
    async with process.stdin, process.stdout:
        try:
            yield Helper(process, process.stdin, process.stdout)
        finally:  # before its stdin ends: that would tell it that we were killed
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()


@asynccontextmanager
async def gone_through_with(target: Target, seconds: float = _LONGEST) -> AsyncGenerator[None, None]:
    """For the end of a supervisor and the beginning of the next: once begun, or nobody would be left to ask.

    What is not done in that time is told of, and the supervisor killed.
    """
    with trio.CancelScope(shield=True, deadline=trio.current_time() + seconds) as scope:
        yield
    if scope.cancelled_caught:
        what = f"a supervisor was ended, and {seconds:g} s later that and what had to follow was not done"
        target.see(Disordered(t=target.now(), what=what))
        with trio.move_on_after(seconds, shield=True) as last:
            await target.kill(signal.SIGKILL)
            await target.restart()
        if last.cancelled_caught:
            target.see(Disordered(t=target.now(), what="the supervisor was killed, and the next one did not begin"))
