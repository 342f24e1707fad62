"""Workers that kill themselves at their n-th step to the disk, forked from one process that has everything imported.

A step is one entry that is written, one wait for the disk, or one cut of a torn end. A socket, whose descriptor is the
argument, brings orders ``{"arguments": [...], "die_at": n, "how": "torn" | "after"}``, each with a worker's stdin and
stdout; the answer is its exit code as ``subprocess`` gives it, once its commands have ended too. ``torn``: of an entry
half is written, and a wait or a cut does not happen.
"""

import itertools
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

import agent.rpc
import agent.run_executor  # noqa: F401 - a worker imports it when it first needs it
from agent.cli import main
from agent.toolbox import TOOL_NAMES, open_tools
from agent.tools.todo import TodoTool
from rpc.orphans import become_subreaper
from wire.transcript import TranscriptWriter


class Order(msgspec.Struct, frozen=True):
    arguments: list[str]
    die_at: int
    how: str


def serve(orders: socket.socket) -> None:
    assert become_subreaper()  # nobody stops the commands of a worker that was killed; they become children of this one
    open_tools(frozenset(TOOL_NAMES), TodoTool(lambda *_: {}))  # so that all of them are imported
    while True:
        line, descriptors, _, _ = socket.recv_fds(orders, 65536, 2)
        if not line:
            return
        pid = os.fork()
        if not pid:
            live(msgspec.json.decode(line, type=Order), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        wait_for_orphans()
        orders.send(str(code).encode())


def wait_for_orphans() -> None:
    """These here end by themselves."""
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def live(order: Order, stdin: int, stdout: int) -> NoReturn:
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    os.closerange(3, 256)
    steps = itertools.count(1)

    def dying(step: Callable[..., Any]) -> Callable[..., Any]:
        def die_or_do(*given: Any) -> Any:
            if next(steps) != order.die_at:
                return step(*given)
            if order.how == "after":
                step(*given)
            elif isinstance(given[0], TranscriptWriter):
                os.write(given[0]._descriptor, given[1][: len(given[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError

        return die_or_do

    TranscriptWriter._write = dying(TranscriptWriter._write)  # type: ignore[method-assign]
    os.fsync, os.ftruncate = dying(os.fsync), dying(os.ftruncate)
    code = main(order.arguments)
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
