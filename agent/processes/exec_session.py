"""One command of a worker: its state, its input, its end; and the request that asks about it."""

import os
import signal
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import trio

from agent.processes.output import CommandOutput
from agent.processes.spawn import ShellCommand

_WRITE_TIMEOUT = 5.0
"""Seconds that a command may take to read what is written to it."""
_END_OF_TRANSMISSION = b"\x04"


class InputClosed(Exception):
    """The command takes no input; the message says why."""


class Stdin:
    """The input of one command. ``is_terminal``: the descriptor is that of the output, and is closed with it."""

    def __init__(
        self, descriptor: int | None, *, is_terminal: bool, why: str = "the command was started without an input"
    ) -> None:
        """``why``: the error for writers where there is no descriptor."""
        self._descriptor = descriptor
        self.is_terminal = is_terminal
        self._closed_reason = why
        self._lock = trio.Lock()

    async def write(self, data: bytes) -> int:
        """Write, one caller after the other; how many bytes the command took in time. Raises InputClosed."""
        written = 0
        with trio.move_on_after(_WRITE_TIMEOUT):
            async with self._lock:
                while written < len(data):
                    written += await self._write_some(data[written:])
        return written

    async def end(self) -> None:
        """End the input. Raises InputClosed."""
        if self.is_terminal:
            await self.write(_END_OF_TRANSMISSION)
        elif self._descriptor is None:
            raise InputClosed(self._closed_reason)
        else:
            self.close("its input was ended")

    def close(self, why: str) -> None:
        """Close it; a waiting writer fails with ``why``. Harmless when repeated."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        self._closed_reason = why
        if not self.is_terminal:
            trio.lowlevel.notify_closing(descriptor)
            os.close(descriptor)

    async def _write_some(self, data: bytes) -> int:
        if self._descriptor is None:
            raise InputClosed(self._closed_reason)
        try:
            await trio.lowlevel.wait_writable(self._descriptor)
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0
        except OSError as exc:
            self.close("the command has closed its input")
            raise InputClosed(self._closed_reason) from exc
        except trio.ClosedResourceError as exc:
            raise InputClosed(self._closed_reason) from exc


ProcessStatus: TypeAlias = Literal["running", "completed", "failed"]

TAIL_CHARS = 2_000
"""Characters of a command's output in its facts, and in its record for the next worker."""
_NOT_RUN_CODES = frozenset({126, 127})
"""Exit codes of a shell that cannot execute or find the command."""


class ExecSession:
    """A command from its start to its end; owned by the registry."""

    def __init__(
        self,
        session_id: str,
        command: ShellCommand,
        *,
        pid: int,
        stdin: Stdin,
        output: CommandOutput,
        scope_key: str,
        warning: str | None = None,
    ) -> None:
        self.id = session_id
        self.command = command
        self.scope_key = scope_key
        self.pid = pid
        self.started_at = time.time()
        self.output = output
        self.stdin = stdin
        self.warning = warning
        self.has_output = trio.Event()
        """Set when there is output."""
        self.ended = trio.Event()
        """Set when the whole tree is gone."""
        self.stop_scope = trio.CancelScope()
        self.exit_notified = False
        """The end was announced, or was caused by the one to be notified."""
        self.watchers = 0
        """Polls that wait for the end, and will report it."""
        self.observed_chars = 0
        """Characters of the output that front ends have polled; the agent's own position is in ``output``."""
        self.backgrounded = False
        self.timed_out = False
        self.lost = False
        """Whether it died with its worker; how it ended is then unknown."""
        self.ended_at: float | None = None
        self.exit_code: int | None = None
        self.exit_signal: str | None = None

    @property
    def exited(self) -> bool:
        """Whether it is over."""
        return self.ended.is_set()

    @property
    def status(self) -> ProcessStatus:
        """A command that was stopped, timed out or could not be run has failed; any other that ended is complete."""
        if not self.exited:
            return "running"
        is_failure = self.timed_out or self.lost or self.exit_signal is not None or self.exit_code in _NOT_RUN_CODES
        return "failed" if is_failure else "completed"

    @property
    def state(self) -> str:
        """Its state, or why it has ended, for a person."""
        if not self.exited:
            return "running"
        if self.lost:
            return "lost with its worker"
        if self.timed_out:
            seconds = self.command.timeout
            return "timed out" if seconds is None else f"timed out after {seconds:g} s"
        return f"code {self.exit_code}" if self.exit_signal is None else f"signal {self.exit_signal}"

    def stop(self) -> None:
        """Ask it to end; ``ended`` is set when it has. Harmless when repeated."""
        self.stop_scope.cancel()

    def end(self, returncode: int) -> None:
        """Record the end; ``returncode`` as ``Popen`` has it."""
        if returncode < 0:
            self.exit_signal = _signal_name(-returncode)
        else:
            self.exit_code = returncode
        self.ended_at = time.time()
        self.stdin.close("the command has ended")
        self.ended.set()

    def mark_output(self) -> None:
        """Set ``has_output``, which ``wait_ended`` replaces."""
        self.has_output.set()

    async def wait_ended(self, report: Callable[[dict[str, Any]], None], seconds: float) -> None:
        """Wait for the end, at most ``seconds``; report the facts at most 20 times a second, and once more at the end.

        A cancellation may arrive as an exception group.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report_progress, report)
            with trio.move_on_after(seconds):
                await self.ended.wait()
            nursery.cancel_scope.cancel()
        if self.has_output.is_set():
            self._report_now(report)

    async def _report_progress(self, report: Callable[[dict[str, Any]], None]) -> None:
        while True:
            await self.has_output.wait()
            self._report_now(report)
            await trio.sleep(0.05)

    def _report_now(self, report: Callable[[dict[str, Any]], None]) -> None:
        self.has_output = trio.Event()
        report(self.details())

    def details(self) -> dict[str, Any]:
        """Facts for programs. ``started_at`` is Unix time in seconds."""
        facts: dict[str, Any] = {
            "status": self.status,
            "session_id": self.id,
            "pid": self.pid,
            "started_at": self.started_at,
            "cwd": self.command.cwd,
            "tail": self.output.tail(TAIL_CHARS),
        }
        ends = {"exit_code": self.exit_code, "exit_signal": self.exit_signal, "timed_out": self.timed_out or None}
        return facts | {name: value for name, value in ends.items() if value is not None}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals has no name
        return str(number)


ProcessAction: TypeAlias = Literal[
    "list", "poll", "log", "write", "submit", "send_keys", "paste", "kill", "clear", "remove"
]

INPUT_ACTIONS: frozenset[ProcessAction] = frozenset({"write", "submit", "send_keys", "paste"})
"""Actions that give a command input, which a shell executes."""


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Data: TypeAlias = Annotated[str, msgspec.Meta(max_length=1_000_000)]


class ProcessInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``session_id``: for all actions but list, and clear of everything that has ended.

    ``timeout``: seconds that poll waits for the end, at most 30. ``offset`` and ``limit``: lines that log passes over
    and shows; without both, the last 200. ``data`` and ``eof``: for write (as it is), submit (and Enter) and paste.
    ``keys``: for send_keys.
    """

    action: ProcessAction
    session_id: str | None = None
    timeout: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    offset: _Count | None = None
    limit: _Count | None = None
    data: _Data = ""
    eof: bool = False
    keys: Annotated[list[str], msgspec.Meta(max_length=1_000)] = []

    @property
    def is_for_all(self) -> bool:
        """Whether it is about all commands, and not about one of them."""
        return self.action == "list" or (self.action == "clear" and self.session_id is None)
