"""Working directories that a command fills before the first worker starts there, once on each machine."""

import os
from hashlib import sha256
from pathlib import Path

import msgspec
import trio

from errors import WorkerStartFailed
from rpc.children import ChildRegistry
from rpc.process import WorkerProcess
from rpc.settings import RpcSettings
from rpc.spawn import WorkerSpec
from rpc.stderr_log import StderrTail
from rpc.transport import ExitStatus
from wire.files import replace_file

PREPARE_SECONDS = 120.0
"""What a preparation may take."""
_LAST_CHARS = 2000


class Preparations:
    """What was prepared on this machine: a file in ``directory`` for each command and working directory.

    A working directory that was removed, or put in the place of another, is prepared again. So is one whose command
    has failed, with the next start.
    """

    def __init__(self, directory: Path, children: ChildRegistry) -> None:
        self._directory = directory
        self._children = children
        self._running: dict[Path, trio.Lock] = {}

    async def prepare(
        self, command: tuple[str, ...], spec: WorkerSpec, settings: RpcSettings, stop: trio.Event
    ) -> None:
        """Make the working directory of ``spec`` and run the command there, unless that was done before.

        It has the worker's environment and ends within 120 s, or when ``stop`` is set. Raises WorkerStartFailed with
        the last lines that it wrote.
        """
        note = self._note(command, spec.cwd)
        lock = self._running.setdefault(note, trio.Lock())
        try:
            async with lock:
                if not _is_noted(note, spec.cwd):
                    _make_directories(note.parent, Path(spec.cwd))
                    await self._run(command, spec, settings, stop)
                    replace_file(note, _identity(spec.cwd))
        except OSError as exc:
            raise _failure(spec, f"its directory {spec.cwd} cannot be prepared: {exc.strerror}") from exc
        finally:
            if not lock.statistics().tasks_waiting and not lock.locked():
                self._running.pop(note, None)

    def _note(self, command: tuple[str, ...], cwd: str) -> Path:
        return self._directory / sha256("\0".join((cwd, *command)).encode("utf-8", "surrogatepass")).hexdigest()

    async def _run(self, command: tuple[str, ...], spec: WorkerSpec, settings: RpcSettings, stop: trio.Event) -> None:
        own = msgspec.structs.replace(spec, argv=command, log_path=None, may_be_wrapper=False)
        process = WorkerProcess.spawn(own, self._children, settings)
        said = StderrTail(mask=process.mask)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(process.supervise)
            with trio.move_on_after(PREPARE_SECONDS) as scope:
                async with trio.open_nursery() as beside:
                    beside.start_soon(_end_early, stop, process)
                    await _read(process, said)
                    ended = await process.wait_exit()
                    beside.cancel_scope.cancel()
            await process.stop(force=True)  # what it has left running too
        if scope.cancelled_caught:
            raise _failure(spec, f"its command `prepare` had not ended after {PREPARE_SECONDS:g} s", process, said)
        if ended != ExitStatus(0):
            raise _failure(spec, f"its command `prepare` {ended}", process, said)


async def _end_early(stop: trio.Event, process: WorkerProcess) -> None:
    await stop.wait()
    await process.stop(force=True)


async def _read(process: WorkerProcess, said: StderrTail) -> None:
    """Take what it says on standard output, so that it is not kept from going on."""
    while (data := process.receive_nowait()) != b"":
        if data is None:
            await process.wait_readable()
        else:
            said.feed(data)
            await trio.lowlevel.checkpoint()


def _failure(
    spec: WorkerSpec, reason: str, process: WorkerProcess | None = None, said: StderrTail | None = None
) -> WorkerStartFailed:
    lines = "" if process is None or said is None else (process.stderr_tail() or said.text())[-_LAST_CHARS:].strip()
    text = f"worker {spec.worker_id} could not be started: {reason}"
    return WorkerStartFailed(f"{text}: {lines}" if lines else text, worker=spec.worker_id, stderr_tail=lines or None)


def _make_directories(notes: Path, cwd: Path) -> None:
    for directory in (notes, cwd):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _is_noted(note: Path, cwd: str) -> bool:
    try:
        return note.read_bytes() == _identity(cwd)
    except FileNotFoundError:
        return False


def _identity(cwd: str) -> bytes:
    found = os.stat(cwd)  # noqa: PTH116 - as the program finds it
    return f"{found.st_dev}:{found.st_ino}".encode()
