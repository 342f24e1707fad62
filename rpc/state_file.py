"""``workers.json``: the workers of this supervisor, for the next one should this one be killed.

The instance is on disk before the first worker is; a worker that is not there yet carries the instance's marker, so
that nothing depends on a write that came too late. No fsync: a machine that lost power has lost the processes too.
"""

import os
from pathlib import Path

import msgspec
import trio

from errors import PoolError
from rpc.children import ChildRegistry
from wire.files import open_regular, replace_file
from wire.framing import DECODE_ERRORS
from wire.procfs import ProcessIdentity, identify, read_stat


class SupervisorState(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says: whose it is, where its cgroup lies (if it has one), which workers lived at the last write."""

    version: int = 1
    instance: str
    supervisor: ProcessIdentity
    cgroup: str | None = None
    workers: list[ProcessIdentity] = []

    def is_owner_alive(self) -> bool:
        """Whether the supervisor that wrote the file still runs: the same process, in the same boot."""
        stat = read_stat(self.supervisor.pid)
        if stat is None or stat.is_dead:
            return False
        return identify(stat.pid) == self.supervisor


class StateFileCorrupt(PoolError):
    """The state file is not what a supervisor wrote: it does not say which workers to end."""

    code = "state_file_corrupt"


def read_state(path: Path) -> SupervisorState | None:
    """Read the last supervisor's state; None when it left none. Raises StateFileCorrupt, also for what is no file."""
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY, follow=False), "rb") as file:
            return msgspec.json.decode(file.read(), type=SupervisorState)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise StateFileCorrupt(f"{path} cannot be read: {exc.strerror}") from exc
    except DECODE_ERRORS as exc:
        raise StateFileCorrupt(f"{path} is no state file of a supervisor: {exc}") from exc


class StateFile:
    """Keeps the file equal to the registry's workers; run ``keep`` for as long as workers live.

    ``write_failures`` counts writes that failed (a full disk); the next change tries again. ``is_kept``: it stays when
    no worker is left, for the next reader to know the instance.
    """

    def __init__(
        self,
        path: Path,
        instance: str,
        children: ChildRegistry,
        *,
        cgroup: Path | None = None,
        is_kept: bool = False,
    ) -> None:
        self._path = path
        self._instance = instance
        self._children = children
        self._cgroup = str(cgroup) if cgroup is not None else None
        self._supervisor = identify(os.getpid())
        self._is_kept = is_kept
        self.write_failures = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write at once, report started, then write after every change; changes during a write become one.

        Give it a nursery that outlives the workers. When cancelled it removes the file if no worker is left (unless it
        is to be kept), and otherwise writes it a last time. Raises OSError if the first write fails: without it no
        worker may start.
        """
        await self._write(self._snapshot())
        task_status.started()
        try:
            while True:
                await self._children.wait_change()
                try:
                    await self._write(self._snapshot())
                except OSError:
                    self.write_failures += 1
        finally:
            self._close()

    def _snapshot(self) -> SupervisorState:
        return SupervisorState(
            instance=self._instance,
            supervisor=self._supervisor,
            cgroup=self._cgroup,
            workers=self._children.workers(),
        )

    async def _write(self, state: SupervisorState) -> None:
        await trio.to_thread.run_sync(replace_file, self._path, msgspec.json.encode(state))

    def _close(self) -> None:
        try:
            if self._is_kept or self._children.workers():
                replace_file(self._path, msgspec.json.encode(self._snapshot()))
            else:
                self._path.unlink(missing_ok=True)
        except OSError:
            self.write_failures += 1
