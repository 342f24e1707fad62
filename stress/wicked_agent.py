"""A worker that misbehaves when a prompt says so, and is the bundled agent otherwise: a man in the middle.

    python -m stress.wicked_agent [any flag of the agent]

It starts the agent and passes on what goes in and what comes out, so that conversations, transcripts and recall are
the agent's own. What it does instead is in ``stress.wickedness``. What it leaves behind on purpose ends by itself after
five minutes: nothing outlives a broken supervisor for long. Standard library only.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from stress.wickedness import Act, Mischief, Step

__all__ = ["COMMAND", "main"]

COMMAND = (sys.executable, "-P", "-m", "stress.wicked_agent")
"""What starts it from any directory."""

_STDIN, _STDOUT = 0, 1
_READ_BYTES = 64 * 1024
_LEFTOVER_SECONDS = 300
_EXIT_CODE = 7
_HIGHEST_DESCRIPTOR = 64


class _Lines:
    """A stream and what has come of it that is no whole line yet."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._rest = b""

    def read(self) -> list[bytes] | None:
        """The lines that are whole now, with their ends; None = there will be no more."""
        piece = os.read(self.descriptor, _READ_BYTES)
        if not piece:
            return None
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [line + b"\n" for line in lines]


class _Impostor:
    """One agent, and the pipes that somebody takes for the agent's."""

    def __init__(self, arguments: Iterable[str]) -> None:
        self._mischief = Mischief()
        self._ends_with_agent = True
        self._agent = subprocess.Popen(
            [sys.executable, "-P", "-m", "agent", "--mode", "rpc", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "POOL_WORKER_PARENT": str(os.getpid())},
        )
        if self._agent.stdin is None or self._agent.stdout is None:
            raise RuntimeError("the agent's streams are no pipes")
        self._to_agent = self._agent.stdin
        self._from_above = _Lines(_STDIN)
        self._from_agent = _Lines(self._agent.stdout.fileno())
        self._poll = select.poll()
        self._deeds: Mapping[Act, Callable[[], object]] = {
            Act.STALL: _stall,
            Act.EXIT: lambda: os._exit(_EXIT_CODE),
            Act.CLOSE_STDIN: self._close_stdin,
            Act.CLOSE_STDOUT: lambda: _close(_STDOUT),
            Act.IGNORE_THE_END: self._ignore_the_end,
            Act.HEIR: _leave_heir,
            Act.DAEMON: _leave_daemon,
        }

    def run(self) -> int:
        """Until the agent ends; its exit code."""
        signal.signal(signal.SIGTERM, lambda *_: self._agent.terminate())
        self._poll.register(_STDIN, select.POLLIN)
        self._poll.register(self._from_agent.descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in self._poll.poll()}
            if _STDIN in ready:
                self._pass_down()
            if self._from_agent.descriptor in ready and not self._pass_up():
                return self._end()

    def _pass_down(self) -> None:
        lines = self._from_above.read()
        if lines is None:
            self._poll.unregister(_STDIN)
            self._to_agent.close()
            return
        for line in lines:
            self._mischief.hear(line)
            self._to_agent.write(line)
        self._to_agent.flush()

    def _pass_up(self) -> bool:
        lines = self._from_agent.read()
        for line in lines or ():
            for step in self._mischief.say(line):
                self._perform(step)
        return lines is not None

    def _perform(self, step: Step) -> None:
        if isinstance(step, bytes):
            _write(step)
        else:
            self._deeds[step]()

    def _close_stdin(self) -> None:
        """Ours alone: the agent is to live on."""
        self._poll.unregister(_STDIN)
        _close(_STDIN)

    def _ignore_the_end(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._ends_with_agent = False

    def _end(self) -> int:
        code = self._agent.wait()
        if not self._ends_with_agent:
            _stall()
        return code if code >= 0 else 128 - code


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(_STDOUT, view) :]


def _stall() -> NoReturn:
    while True:
        signal.pause()


def _close(descriptor: int) -> None:
    """Close it for good: the number stays taken, so that no later file is mistaken for it."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, descriptor)
    os.close(null)


def _leave_heir() -> None:
    """It has our stdout and nothing else of ours."""
    if os.fork() == 0:
        _close(_STDIN)
        _outlive()


def _leave_daemon() -> None:
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            for descriptor in (_STDIN, _STDOUT, 2):
                _close(descriptor)
            _outlive()
        os._exit(0)
    os.waitpid(child, 0)


def _outlive() -> NoReturn:
    os.closerange(3, _HIGHEST_DESCRIPTOR)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(_LEFTOVER_SECONDS)
    os._exit(0)


def main() -> int:
    """The exit code: the agent's, or 7 where a deed ends it, or 1 once nobody reads."""
    try:
        return _Impostor(sys.argv[1:]).run()
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    sys.exit(main())
