"""A worker with faults on demand: the bundled agent behind a proxy that misbehaves when a prompt says so.

python -m stress.faulty_agent [any flag of the agent]

A prompt with the word ``FAULT:NAME`` or ``FAULT:NAME=NUMBER`` makes its worker misbehave when the answer to this prompt
is due. Conversations, transcripts and recall are the agent's own. What a fault leaves behind on purpose ends by itself
after five minutes. Standard library only: workers start often, whatever is installed.
"""

import itertools
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import NamedTuple, NoReturn

_FAULT_PATTERN = re.compile(r"(?<!\S)FAULT:([a-z0-9-]+)(?:=(\d+))?(?!\S)")
_EVENT_HEAD = b'{"event":"assistant_message","data":{"partial":"'
_EVENT_TAIL = b'"}}\n'
_BLOCK = 64 * 1024
_MAX_EARLIER = 16


class FaultAction(Enum):
    """What a fault does besides writing."""

    STALL = auto()
    """Neither read nor write from now on, but stay alive."""
    EXIT = auto()
    CLOSE_STDIN = auto()
    CLOSE_STDOUT = auto()
    """Later output is discarded."""
    IGNORE_THE_END = auto()
    """Survive SIGTERM, the end of stdin, everything but SIGKILL."""
    HEIR = auto()
    """Start a process that keeps stdout open and outlives the worker."""
    DAEMON = auto()
    """Start a process in a session of its own, fork in between, everything closed."""
    HOLD_BACK = auto()
    """Send the answer only after the next one."""
    SUSPEND = auto()
    """Stop by SIGSTOP."""


class FaultContext(NamedTuple):
    """The answer due as a whole line, the fault's number (None = its default), earlier answers."""

    answer: bytes
    number: int | None
    earlier_answers: tuple[bytes, ...]

    def count(self, default: int) -> int:
        """The number, or the default."""
        return default if self.number is None else self.number

    @property
    def half(self) -> bytes:
        """The first half of the answer, no line."""
        return self.answer[: len(self.answer) // 2]


Step = bytes | FaultAction
FaultScript = Callable[[FaultContext], Iterable[Step]]


def fault_word(fault: str, number: int | None = None) -> str:
    """The word of a prompt that requests a fault. Raises KeyError for an unknown fault."""
    if fault not in FAULT_SCRIPTS:
        raise KeyError(fault)
    return f"FAULT:{fault}" if number is None else f"FAULT:{fault}={number}"


# --- what is written and done -----------------------------------------------------------------------------------------


def _garbage(context: FaultContext) -> Iterator[Step]:
    """Lines (3) that are no messages, then the answer."""
    for number in range(context.count(3)):
        yield (b"this is no message %d\n" % number, b'{"event": "half a mess\n', b"\x00\x01\x02[]{}\n")[number % 3]
    yield context.answer


def _line(context: FaultContext) -> Iterator[Step]:
    """A legal line of exactly that length (65536), its end included; then the answer."""
    room = context.count(_BLOCK) - len(_EVENT_HEAD) - len(_EVENT_TAIL)
    yield _EVENT_HEAD + b"x" * max(0, room) + _EVENT_TAIL
    yield context.answer


FAULT_SCRIPTS: Mapping[str, FaultScript] = {
    "garbage": _garbage,
    "bad-utf8": lambda context: (_EVENT_HEAD + b"\xff\xfe\xc3" + _EVENT_TAIL, context.answer),
    "one-byte": lambda context: (bytes([byte]) for byte in context.answer),
    "half-line-stall": lambda context: (context.half, FaultAction.STALL),
    "half-line-eof": lambda context: (context.half, FaultAction.CLOSE_STDOUT, FaultAction.STALL),
    "half-line-exit": lambda context: (context.half, FaultAction.EXIT),
    "line": _line,
    "endless-line": lambda _: itertools.repeat(b"x" * _BLOCK),
    "duplicate": lambda context: (context.answer, context.answer),
    "unknown-id": lambda context: (b'{"id":"never-asked","result":{}}\n', context.answer),
    "late-id": lambda context: (context.answer, *context.earlier_answers),
    "late-answer": lambda _: (FaultAction.HOLD_BACK,),
    "close-stdin": lambda context: (context.answer, FaultAction.CLOSE_STDIN),
    "close-stdout": lambda _: (FaultAction.CLOSE_STDOUT,),
    "no-end": lambda context: (FaultAction.IGNORE_THE_END, context.answer),
    "heir": lambda context: (context.answer, FaultAction.HEIR, FaultAction.EXIT),
    "daemon": lambda context: (FaultAction.DAEMON, context.answer),
}
"""What becomes of the answer: bytes to write and actions, in order."""


# --- when -------------------------------------------------------------------------------------------------------------


class FaultInjector:
    """Reads the requests to a good worker and turns its lines into what is to be written and done."""

    def __init__(self) -> None:
        self._due: dict[str | int, tuple[str, int | None]] = {}
        self._earlier: deque[bytes] = deque(maxlen=_MAX_EARLIER)
        self._held_back = b""

    def on_request(self, line: bytes) -> None:
        """One line on its way to the worker."""
        if b"FAULT:" not in line:
            return
        request = json.loads(line)
        found = _FAULT_PATTERN.search(request["params"]["text"]) if request["method"] == "prompt" else None
        if found is not None and found[1] in FAULT_SCRIPTS:
            self._due[request["id"]] = (found[1], int(found[2]) if found[2] else None)

    def transform(self, line: bytes) -> Iterator[Step]:
        """What becomes of one line of the worker, its end included."""
        if not line.startswith(b'{"id":'):
            yield line
            return
        fault, number = self._due.pop(json.loads(line)["id"], ("", None))
        context = FaultContext(line, number, tuple(self._earlier))
        self._earlier.append(line)
        if not fault:
            late, self._held_back = self._held_back, b""
            yield line + late
            return
        for step in FAULT_SCRIPTS[fault](context):
            if step is FaultAction.HOLD_BACK:
                self._held_back += line
            else:
                yield step


COMMAND = (sys.executable, "-P", "-m", "stress.faulty_agent")
"""What starts it from any directory."""

_STDIN, _STDOUT = 0, 1
_READ_BYTES = 64 * 1024
_LEFTOVER_SECONDS = 300
_EXIT_CODE = 7
_HIGHEST_DESCRIPTOR = 64


class _LineReader:
    """A stream and its incomplete last line."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._rest = b""

    def read(self) -> list[bytes] | None:
        """The lines that are complete now, with their ends; None = the end."""
        piece = os.read(self.descriptor, _READ_BYTES)
        if not piece:
            return None
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [line + b"\n" for line in lines]


class _FaultyProxy:
    """One agent behind pipes that pass for its own."""

    def __init__(self, arguments: Iterable[str]) -> None:
        self._injector = FaultInjector()
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
        self._from_pool = _LineReader(_STDIN)
        self._from_agent = _LineReader(self._agent.stdout.fileno())
        self._poll = select.poll()
        self._actions: Mapping[FaultAction, Callable[[], object]] = {
            FaultAction.STALL: _stall,
            FaultAction.EXIT: lambda: os._exit(_EXIT_CODE),
            FaultAction.CLOSE_STDIN: self._close_stdin,
            FaultAction.CLOSE_STDOUT: lambda: close_for_good(_STDOUT),
            FaultAction.IGNORE_THE_END: self._ignore_shutdown,
            FaultAction.HEIR: _fork_stdout_holder,
            FaultAction.DAEMON: _fork_daemon,
            FaultAction.SUSPEND: lambda: os.kill(os.getpid(), signal.SIGSTOP),
        }

    def run(self) -> int:
        """Until the agent ends; its exit code."""
        signal.signal(signal.SIGTERM, lambda *_: self._agent.terminate())
        self._poll.register(_STDIN, select.POLLIN)
        self._poll.register(self._from_agent.descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in self._poll.poll()}
            if _STDIN in ready:
                self._forward_to_agent()
            if self._from_agent.descriptor in ready and not self._forward_to_pool():
                return self._finish()

    def _forward_to_agent(self) -> None:
        lines = self._from_pool.read()
        if lines is None:
            self._poll.unregister(_STDIN)
            self._to_agent.close()
            return
        for line in lines:
            self._injector.on_request(line)
            self._to_agent.write(line)
        self._to_agent.flush()

    def _forward_to_pool(self) -> bool:
        lines = self._from_agent.read()
        for line in lines or ():
            for step in self._injector.transform(line):
                self._perform(step)
        return lines is not None

    def _perform(self, step: Step) -> None:
        if isinstance(step, bytes):
            _write(step)
        else:
            self._actions[step]()

    def _close_stdin(self) -> None:
        """Close the proxy's own stdin only: the agent lives on."""
        self._poll.unregister(_STDIN)
        close_for_good(_STDIN)

    def _ignore_shutdown(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._ends_with_agent = False

    def _finish(self) -> int:
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


def close_for_good(descriptor: int) -> None:
    """Close it, but keep the number taken, so that no later file gets it."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, descriptor)
    os.close(null)


def _fork_stdout_holder() -> None:
    """Start a process that inherits stdout and nothing else."""
    if os.fork() == 0:
        close_for_good(_STDIN)
        _sleep_as_leftover()


def _fork_daemon() -> None:
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            for descriptor in (_STDIN, _STDOUT, 2):
                close_for_good(descriptor)
            _sleep_as_leftover()
        os._exit(0)
    os.waitpid(child, 0)


def _sleep_as_leftover() -> NoReturn:
    os.closerange(3, _HIGHEST_DESCRIPTOR)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(_LEFTOVER_SECONDS)
    os._exit(0)


def main() -> int:
    """The exit code: the agent's, or 7 where a fault ends it, or 1 when stdout is closed."""
    try:
        return _FaultyProxy(sys.argv[1:]).run()
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    sys.exit(main())
