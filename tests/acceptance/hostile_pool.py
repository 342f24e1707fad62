"""What the tests of faults share: a real pool over hostile workers, and a look from outside at what it leaves."""

import os
import random
import resource
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

import fixtures.hostile_agent as hostile
from errors import PoolError
from pool import LocalLauncher, Pool, PoolSettings
from pool.stimuli import SettingsChanged
from pool.worker_task import WorkerTask
from profiles import AgentSettings, CapabilityProfile, ProfilesSettings, build_profile
from rpc.settings import RpcSettings
from tests.acceptance.supervisor import marked_processes
from tests.rpc.procs import open_fds
from wire.units import Seconds

TIME_LIMIT = 170
"""Seconds that a pool may live; a test's own limit lies above, so that the pool's end is still seen."""
RPC = RpcSettings(request_timeout=Seconds(20), abort_grace=Seconds(10), eof_grace=Seconds(0.2), term_grace=Seconds(0.2))
HASTY_RPC = msgspec.structs.replace(RPC, abort_grace=Seconds(0.2))
"""For a worker that cannot be aborted; a good one that is held up would be killed."""
POOL = PoolSettings(
    min=0,
    max=2,
    spawn_burst=64,
    spawn_rate=64.0,
    backoff_min=Seconds(0.01),
    backoff_max=Seconds(0.05),
    breaker_failures=3,
    start_timeout=Seconds(20),
    reset_timeout=Seconds(20),
)
QUICK_PINGS: dict[str, Any] = {
    "ping_interval_idle": Seconds(0.2),
    "ping_interval_busy": Seconds(0.2),
    "ping_failures": 1_000_000,
}
"""So often is each worker looked at. None is lost over them, since a good one may be held up, too: see ``hurry``."""
IMPATIENT_PINGS: dict[str, Any] = {**QUICK_PINGS, "ping_timeout": Seconds(0.2)}
"""The same, soon counted as unanswered."""


def _nothing() -> None:
    """The listener of an event without one."""


def profile_of(cwd: Path, *arguments: str, command: list[str] | None = None, **agent: Any) -> CapabilityProfile:
    """A hostile agent with these arguments, or another command; one profile for each set of arguments."""
    whole = [*hostile.COMMAND, *arguments] if command is None else command
    settings = ProfilesSettings(agents={"hostile": AgentSettings(command=whole, **agent)})
    return build_profile(settings, "hostile", "default", str(cwd))


class Events:
    """What the pool told, and a way to wait for it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self._news = trio.Event()
        self._listeners: dict[str, Callable[[], object]] = {}

    def __call__(self, event: str, data: dict[str, Any]) -> None:
        self.told.append((event, data))
        self._news.set()
        for name in (event, "*"):
            self._listeners.get(name, _nothing)()

    def on(self, event: str, listener: Callable[[], object]) -> None:
        """Call the one listener of this event at once; ``*`` is every event."""
        self._listeners[event] = listener

    def named(self, event: str) -> list[dict[str, Any]]:
        return [data for name, data in self.told if name == event]

    async def wait_for(self, event: str, count: int = 1) -> dict[str, Any]:
        while len(found := self.named(event)) < count:
            self._news = trio.Event()
            await self._news.wait()
        return found[count - 1]


class HostilePool:
    """A pool and everything a test asks about it."""

    def __init__(self, pool: Pool, settings: PoolSettings, events: Events, launcher: LocalLauncher) -> None:
        self.pool = pool
        self.settings = settings
        self.events = events
        self.launcher = launcher

    def reconfigure(self, **changes: Any) -> None:
        """Other limits and times for the pool, from now on."""
        self.settings = msgspec.structs.replace(self.settings, **changes)
        self.pool.submit(SettingsChanged(self.settings))

    def hurry(self, life: WorkerTask, **times: Any) -> None:
        """Other times for one worker, from its next look on: the others may be held up. None: the pool's again."""
        changed = msgspec.structs.replace(self.settings, **times)
        life._settings = life.health._settings = lambda: changed

    @property
    def lives(self) -> list[WorkerTask]:
        """The pool's own records of its workers."""
        return list(self.pool._workers.values())

    def life_of(self, session: str) -> WorkerTask:
        """The record of the worker that a session is bound to."""
        (life,) = [life for life in self.lives if self.pool.session_of(life.id) == session]
        return life

    async def say(self, session: str, profile: CapabilityProfile, text: str, **limits: Any) -> str:
        """One prompt to its answer, which the echo agent makes of everything said in this conversation."""
        async with self.pool.lease(session, profile, **limits) as lease:
            return (await lease.prompt(text).wait()).text

    async def fails(self, session: str, profile: CapabilityProfile, text: str, **limits: Any) -> PoolError:
        """One prompt to the error it has to end with."""
        try:
            answer = await self.say(session, profile, text, **limits)
        except PoolError as exc:
            return exc
        raise AssertionError(f"this had to fail: {answer}")

    @property
    def exits(self) -> dict[str, int]:
        """Workers that are gone, by cause."""
        return self.pool.statistics().counters.exits

    def pid_of(self, session: str) -> int:
        """The process that a session is bound to."""
        (pid,) = [worker.pid for worker in self.pool.statistics().workers if worker.session == session]
        assert pid is not None
        return pid

    def transcript_of(self, session: str) -> Path:
        """The file that a session's conversation is kept in."""
        (path,) = [known.transcript for known in self.pool.statistics().sessions if known.key == session]
        assert path is not None
        return Path(path)

    @asynccontextmanager
    async def limit_until_exit(self, setting: str, seconds: float) -> AsyncIterator[None]:
        """A shorter limit until the worker that runs into it is gone: the next one is good, and may be held up."""

        async def restore() -> None:
            await self.events.wait_for("worker_exited")
            self.reconfigure(**{setting: getattr(POOL, setting)})

        self.reconfigure(**{setting: Seconds(seconds)})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(restore)
            yield


@asynccontextmanager
async def hostile_pool(
    data_dir: Path, *, rpc: RpcSettings = RPC, use_cgroups: bool = True, check_books: bool = True, **settings: Any
) -> AsyncIterator[HostilePool]:
    """A pool that leaves no process, no zombie and no descriptor behind, however the block ends.

    ``check_books``: at the good end of the block no request may be open.
    """
    descriptors, events = open_fds(), Events()
    launcher = LocalLauncher(rpc, data_dir=data_dir / "data", use_cgroups=use_cgroups)
    chosen = PoolSettings(**{**{name: getattr(POOL, name) for name in POOL.__struct_fields__}, **settings})
    try:
        with trio.fail_after(TIME_LIMIT):
            async with Pool(chosen, launcher=launcher, on_event=events, rng=random.Random(1)) as pool:
                yield HostilePool(pool, chosen, events, launcher)
                if check_books:
                    assert_books_balance(pool)
    finally:
        launcher.close()
        assert not marked_processes(launcher.instance)
        assert not counted_children(launcher.instance)
        assert not launcher.children.pids()
        assert not open_fds() - descriptors


async def until_suspended(pid: int) -> None:
    """Wait until a child of ours is stopped by a signal."""
    await trio.to_thread.run_sync(os.waitid, os.P_PID, pid, os.WSTOPPED | os.WNOWAIT, abandon_on_cancel=True)


def assert_books_balance(pool: Pool) -> None:
    """Every grant has come to its end, and nobody waits."""
    counters = pool.statistics().counters
    assert sum(counters.grants.values()) == counters.releases + counters.lost + counters.active
    assert counters.active == 0
    assert not pool.statistics().waiting


def counted_children(instance: str) -> list[int]:
    """Our own children of this launcher as /proc lists them; zombies, whose mark cannot be read, are counted too."""
    listed = Path(f"/proc/{os.getpid()}/task")
    children = [int(pid) for task in listed.iterdir() for pid in (task / "children").read_text().split()]
    mark = f"POOL_WORKER_ID={instance}:".encode()
    return [pid for pid in children if mark in _environ(pid) or _is_zombie(pid)]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


@contextmanager
def no_room_for_descriptors() -> Iterator[None]:
    """As many as are open now, and not one more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.open(os.devnull, os.O_RDONLY)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
