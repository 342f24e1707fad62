"""``python -m agent.fork_server``: has imported the worker once, and forks one on request of ``rpc.fork_server``.

One thread and no event loop: what is forked is an interpreter at rest. Outside no difference to a started worker can be
seen: parent, session, descriptors, working directory, environment and arguments (also in /proc), marks and limits are
the same. Standard input is the socket to the supervisor; its end, or the supervisor's, ends this process.
"""

import gc
import os
import resource
import select
import socket
import sys
from contextlib import suppress
from importlib import import_module

from agent.cli import main as run_agent
from agent.cli import set_parent_death_signal
from agent.clone import Cloner
from agent.toolbox import TOOL_NAMES
from wire.fork_request import ANSWER, DESCRIPTORS, MAX_MESSAGE, READY, ForkRequest

_MODULES = (
    "agent.rpc",
    "agent.run_executor",
    "hashlib",
    "importlib.metadata",
    *(f"agent.tools.{name}" for name in TOOL_NAMES),
)
"""Imported before the first fork: what a worker needs to be ready, and for its first run."""

_LATER_MODULES = ("agent.models.openai_endpoint", "agent.models.openai_connection", "agent.models.openai")
"""Imported as soon as no worker is asked for, since the first ones shall not wait: what calls of a model need."""

_PAUSE = 0.05  # seconds without a request that count as such

_ANSWER = 3
"""The descriptor that follows a worker's standard streams while it begins."""


def main() -> int:
    """Serve until the supervisor is gone; in each forked process: be the worker. The exit code."""
    if not set_parent_death_signal(os.getppid(), os.environ.get("POOL_WORKER_PARENT")):
        return 1
    supervisor = socket.socket(fileno=0)
    try:
        _load(*_MODULES)
        cloner = Cloner.open()
        cloner.show_as(sys.orig_argv, os.environ.items())  # it shows nothing new, but whether it can be done
    except Exception as exc:  # noqa: BLE001 - whatever it is, workers are spawned instead
        supervisor.send(f"{type(exc).__name__}: {exc}".encode()[:MAX_MESSAGE])
        return 1
    supervisor.send(READY)
    return run_agent() if _serve(supervisor, cloner) else 0


def _load(*modules: str) -> None:
    """Import modules, and keep collections from all that there is then.

    A collection writes to each object that it looks at, and so ends the sharing of their memory.
    """
    for name in modules:
        import_module(name)
    gc.collect()
    gc.freeze()


def _serve(supervisor: socket.socket, cloner: Cloner) -> bool:
    """Fork on request. Returns True in each new process, as the worker that it is to be; False at the supervisor's end.

    The server itself does not read the request: what is secret of a worker's environment is in no other one's memory.
    """
    later = [*_LATER_MODULES]
    while True:
        while later and not select.select([supervisor], [], [], _PAUSE)[0]:
            with suppress(Exception):  # whatever is wrong with it, the worker that needs it will say so
                _load(later.pop(0))
        _, descriptors, _, _ = socket.recv_fds(supervisor, 1, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if len(descriptors) != DESCRIPTORS:
            return False
        request, directory, *streams = descriptors
        with suppress(OSError):  # then no answer comes, and spawning says what is wrong
            os.fchdir(directory)
            if cloner.fork() == 0:
                supervisor.detach()
                _become(request, streams, cloner)
                return True
        for descriptor in descriptors:
            os.close(descriptor)


def _become(request_file: int, streams: list[int], cloner: Cloner) -> None:
    """Make this new process the one that was asked for, and say that it begins.

    What fails here ends it, also where the answer is not awaited any more.
    """
    try:
        os.setsid()
        with open(request_file, "rb") as file:
            request = ForkRequest.decode(file.read())
        if request.limit_mark:
            _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
            resource.setrlimit(resource.RLIMIT_RTTIME, (request.limit_mark, hard))
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number, inheritable=number != _ANSWER)
        os.closerange(_ANSWER + 1, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(request.env)
        sys.argv = [*request.argv[request.argv.index("agent") :]]  # what comes before are the interpreter's options
        cloner.show_as(request.argv, request.env)
        os.write(_ANSWER, ANSWER.pack(os.getpid()))
        os.close(_ANSWER)
    except OSError as exc:
        raise SystemExit(1) from exc


if __name__ == "__main__":
    sys.exit(main())
