"""Stories that workers go through until they die: told to ``tests.agent.dying_agent``, which kills them at a step."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any, NamedTuple, TypeAlias

import msgspec

from tests.agent.dying_agent import Order
from tests.agent.inprocess import Line
from tests.house import ROOT

_NEVER = 1_000_000
_DECISIONS = ("allow", "deny", "allow")

Request: TypeAlias = tuple[str, dict[str, Any]]

NEW: Request = ("new_session", {})


def prompt(text: str, **more: Any) -> Request:
    return "prompt", {"text": text, **more}


class Story(NamedTuple):
    """What a worker is asked, one after the other; a function gets the sessions so far. It takes more ``steps``.

    A person allows the first question and the third, and denies the second.
    """

    requests: list[Request | Callable[[list[str]], Request]]
    flags: tuple[str, ...] = ()
    steps: int = 10


class Life(NamedTuple):
    """One worker's: what it said, and its exit code."""

    said: list[Line]
    code: int

    @property
    def sessions(self) -> list[str]:
        """The files of the sessions that it has acknowledged, oldest first."""
        return _sessions(self.said)

    def answered(self, number: int) -> bool:
        """Whether that request of the story got its answer."""
        return any(line.get("id") == number for line in self.said)


class Stable:
    """Where such workers come from. Everything here blocks: nothing else runs meanwhile."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders

    def live(self, story: Story, *arguments: str, die_at: int = _NEVER, how: str = "after") -> Life:
        """Let a worker go through a story, or as far as it comes; its commands have ended too."""
        arguments = ("--mode", "rpc", "--no-hooks", *story.flags, *arguments)
        with ExitStack() as closing:
            stdin, to_worker = os.pipe()
            from_worker, stdout = os.pipe()
            writer = closing.enter_context(os.fdopen(to_worker, "wb", buffering=0))
            reader = closing.enter_context(os.fdopen(from_worker, "rb"))
            order = msgspec.json.encode(Order(list(arguments), die_at, how))
            socket.send_fds(self._orders, [order], [stdin, stdout])
            os.close(stdin)
            os.close(stdout)
            said: list[Line] = []
            for line in _tell(story, reader, writer, said):
                said.append(line)  # noqa: PERF402 - whoever tells looks at what was said so far
        life = Life(said, int(self._orders.recv(100)))
        assert life.code in {0, -signal.SIGKILL}
        return life


@contextmanager
def stable() -> Iterator[Stable]:
    """A place to live in the current directory."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.agent.dying_agent", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        theirs.close()
        try:
            yield Stable(ours)
        finally:
            ours.close()
            process.wait(10)


def _tell(story: Story, reader: IO[bytes], writer: IO[bytes], said: list[Line]) -> Iterator[Line]:
    for number, request in enumerate(story.requests):
        method, params = request(_sessions(said)) if callable(request) else request
        _send(writer, number, method, params)
        for line in _lines(reader):
            yield line
            if line.get("event") == "permission_required":
                asked = sum(each.get("event") == "permission_required" for each in said)
                call_id = line["data"]["call"]["id"]
                _send(writer, None, "decide", {"call_id": call_id, "decision": _DECISIONS[asked - 1]})
            if line.get("id") == number:
                assert "error" not in line, line
                break
        else:
            return
    writer.close()
    yield from _lines(reader)


def _send(writer: IO[bytes], number: int | None, method: str, params: dict[str, Any]) -> None:
    with suppress(BrokenPipeError):  # it is dead; what it said is still to be read
        writer.write(msgspec.json.encode({"id": number, "method": method, "params": params}) + b"\n")


def _lines(reader: IO[bytes]) -> Iterator[Line]:
    return (msgspec.json.decode(raw) for raw in reader if raw.endswith(b"\n"))


def _sessions(said: list[Line]) -> list[str]:
    files = [line["result"].get("session_file") for line in said if "result" in line]
    return list(dict.fromkeys(file for file in files if file))
