"""The commands of a worker: running ones, each watched by a task of the registry, and ended ones that are still kept.

Nothing polls: exits, output and timeouts each wake their own task. When ``run`` is cancelled all commands end.
"""

import random
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TypeAlias

import msgspec
import trio

from agent.processes.exec_session import TAIL_CHARS, ExecSession, Stdin
from agent.processes.output import CommandOutput, OutputLimits, OutputReader
from agent.processes.spawn import ShellCommand, SpawnedShell, SpawnFailed, spawn
from agent.processes.tree import TERM_GRACE, stop_tree
from wire.entries import ExecRecord
from wire.messages import ExecExit


class FinishedLimits(msgspec.Struct, frozen=True, kw_only=True):
    """``age`` in seconds, ``chars`` of output in all; the oldest beyond these are dropped."""

    age: float = 1800.0
    sessions: int = 50
    chars: int = 2_000_000


class FinishedSessions:
    """Ended commands, bounded by age, number and size; ``now`` in seconds of one clock."""

    def __init__(self, limits: FinishedLimits) -> None:
        self._limits = limits
        self._sessions: dict[tuple[str, str], tuple[float, ExecSession]] = {}
        """In the order of their ends."""

    def add(self, session: ExecSession, now: float, *, ago: float = 0.0) -> None:
        """Keep one that ended ``ago`` seconds before ``now``; the last one to end stays whatever its size."""
        self._sessions[session.scope_key, session.id] = (now - ago, session)
        if ago:
            self._sessions = dict(sorted(self._sessions.items(), key=lambda item: item[1][0]))
        self._prune(now)

    def all(self, now: float) -> Iterator[ExecSession]:
        """Those that are kept, the first to end first."""
        self._prune(now)
        return iter([session for _, session in self._sessions.values()])

    def remove(self, session: ExecSession) -> bool:
        """Remove one; whether it was there."""
        return self._sessions.pop((session.scope_key, session.id), None) is not None

    def _prune(self, now: float) -> None:
        sizes = {key: session.output.size for key, (_, session) in self._sessions.items()}
        total = sum(sizes.values())
        for key, (ended, _) in list(self._sessions.items()):
            is_last = len(self._sessions) == 1
            is_too_much = len(self._sessions) > self._limits.sessions or total > self._limits.chars
            if now - ended < self._limits.age and (is_last or not is_too_much):
                return  # those behind it ended later
            total -= sizes[key]
            del self._sessions[key]


# Words, not a column of literals:
# fmt: off
_ADJECTIVES = (
    "amber", "brave", "brisk", "calm", "clear", "cool", "crisp", "dawn", "deep", "eager", "early", "fast", "fine",
    "fresh", "gentle", "glad", "gold", "grand", "green", "happy", "keen", "kind", "late", "light", "lucky", "mellow",
    "mild", "misty", "neat", "nimble", "noble", "plain", "proud", "quick", "quiet", "rapid", "ready", "salty",
    "sharp", "silent", "silver", "smart", "snowy", "soft", "solar", "spare", "steady", "still", "sunny", "swift",
    "tidal", "tidy", "vivid", "warm", "wild", "wise", "young", "zesty",
)
_NOUNS = (
    "acorn", "badger", "beacon", "birch", "bison", "brook", "cedar", "cliff", "cloud", "comet", "coral", "crane",
    "creek", "delta", "dune", "eagle", "ember", "falcon", "fern", "fjord", "forest", "fox", "glade", "grove",
    "harbor", "hawk", "heron", "island", "ivy", "lagoon", "lake", "larch", "lark", "lynx", "maple", "marsh",
    "meadow", "moss", "nest", "oak", "ocean", "orchid", "otter", "owl", "pine", "pond", "prairie", "raven", "reef",
    "ridge", "river", "robin", "seal", "shore", "spruce", "stork", "summit", "tiger", "tulip", "valley", "walnut",
    "willow", "wren",
)
# fmt: on


def new_session_name(taken: Container[str], choose: Callable[[Sequence[str]], str] = random.choice) -> str:
    """A name that is not taken, ``adjective-noun``; with a number behind it when chance finds no free pair."""
    name = ""
    for _ in range(20):
        name = f"{choose(_ADJECTIVES)}-{choose(_NOUNS)}"
        if name not in taken:
            return name
    number = 2
    while f"{name}-{number}" in taken:
        number += 1
    return f"{name}-{number}"


_SHOWN_CHARS = 400


def exit_event(session: ExecSession) -> ExecExit:
    """The notice of the end of a background command."""
    summary = f"Exec {session.status} ({session.id}, {session.state})"
    said = " ".join(session.output.tail(10 * _SHOWN_CHARS).split())[-_SHOWN_CHARS:]
    if said:
        summary = f"{summary} :: {said}"
    return ExecExit(session.id, summary, session.scope_key, session.exit_code, session.exit_signal, session.timed_out)


def session_record(session: ExecSession) -> ExecRecord:
    """The state of a command; its output only after its end."""
    record = ExecRecord(
        id=session.id,
        command=session.command.line,
        cwd=session.command.cwd,
        pid=session.pid,
        started_at=session.started_at,
    )
    if not session.exited:
        return record
    tail = session.output.tail(TAIL_CHARS)
    return msgspec.structs.replace(
        record,
        ended_at=session.ended_at,
        exit_code=session.exit_code,
        exit_signal=session.exit_signal,
        timed_out=session.timed_out,
        lost=session.lost,
        tail=tail,
        unseen=min(session.output.unseen, len(tail)),
        is_cut=session.output.truncated or session.output.size > len(tail),
    )


def cleared_record(session: ExecSession) -> ExecRecord:
    """The record of a command that is not to be restored."""
    return msgspec.structs.replace(session_record(session), tail="", unseen=0, cleared=True)


def restored_session(record: ExecRecord, scope_key: str, now: float) -> ExecSession:
    """A command of an earlier worker; one without an end died with it. ``now``: Unix time in seconds."""
    session = ExecSession(
        record.id,
        ShellCommand(line=record.command, cwd=record.cwd, environment={}),
        pid=record.pid,
        stdin=Stdin(None, is_terminal=False, why="the command has ended"),
        output=CommandOutput.of_tail(record.tail, unseen=record.unseen, is_cut=record.is_cut),
        scope_key=scope_key,
    )
    session.started_at = record.started_at
    session.ended_at = now if record.ended_at is None else record.ended_at
    session.exit_code, session.exit_signal = record.exit_code, record.exit_signal
    session.timed_out, session.lost = record.timed_out, record.lost or record.ended_at is None
    session.backgrounded = session.exit_notified = True
    session.ended.set()
    return session


SaveCommandRecord: TypeAlias = Callable[[str, ExecRecord], None]
"""Takes a scope and the record of one of its background commands; must not raise."""


class RegistryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """``running`` counts foreground commands too; ``term_grace``: seconds from SIGTERM to SIGKILL."""

    running: int = 64
    term_grace: float = TERM_GRACE
    output: OutputLimits = OutputLimits()
    finished: FinishedLimits = FinishedLimits()


class ProcessRegistry:
    """``on_change`` gets the ids of the background commands, ``on_exit`` the unannounced end of one.

    ``allow_background`` false: commands only run in the foreground. ``yields`` false: a command goes to the background
    only on request, and a slow one is waited for.
    """

    def __init__(
        self,
        *,
        on_change: Callable[[list[str]], object] = lambda _: None,
        on_exit: Callable[[ExecExit], object] = lambda _: None,
        allow_background: bool = True,
        yields: bool = True,
        limits: RegistryLimits | None = None,
    ) -> None:
        self.allow_background = allow_background
        self.yields = yields
        self.save_record: SaveCommandRecord = lambda *_: None
        """Persists records for ``restore`` in the next worker."""
        self._on_change = on_change
        self._on_exit = on_exit
        self._limits = limits or RegistryLimits()
        self._running: dict[str, ExecSession] = {}
        self._finished = FinishedSessions(self._limits.finished)
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch commands until cancelled; then stop them all with a short grace."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def aclose(self) -> None:
        """Stop every command with the full grace, and wait for their ends."""
        for session in list(self._running.values()):
            session.exit_notified = True
            session.stop()
        for session in list(self._running.values()):
            await session.ended.wait()

    def start(self, command: ShellCommand, *, scope_key: str = "") -> ExecSession:
        """Start a command in the foreground, known only by the returned session. Raises SpawnFailed."""
        if self._nursery is None:
            raise SpawnFailed("the worker is ending")
        if len(self._running) >= self._limits.running:
            raise SpawnFailed(f"{self._limits.running} commands run already; end one of them first")
        child = spawn(command)
        finished = {session.id for session in self._finished.all(trio.current_time())}
        session = ExecSession(
            new_session_name(self._running.keys() | finished),
            command,
            pid=child.shell.pid,
            stdin=Stdin(child.stdin, is_terminal=child.is_terminal),
            output=CommandOutput(self._limits.output, len(child.outputs)),
            scope_key=scope_key,
            warning=child.warning,
        )
        self._running[session.id] = session
        self._nursery.start_soon(self._watch, session, child)
        return session

    def move_to_background(self, session: ExecSession) -> None:
        """Let it run on by itself; it can be addressed by its id."""
        session.backgrounded = True
        self.save_record(session.scope_key, session_record(session))
        self._on_change(self.background_ids())

    async def kill(self, session: ExecSession) -> None:
        """Stop it on request, and wait until its tree is gone."""
        session.exit_notified = True
        session.stop()
        await session.ended.wait()

    def background_ids(self) -> list[str]:
        """The ids of the commands that run in the background."""
        return [session.id for session in self._running.values() if session.backgrounded]

    def sessions(self, scope_key: str) -> list[ExecSession]:
        """Those in the background, running or not, that belong to this scope; newest first."""
        everything = [*self._running.values(), *self._finished.all(trio.current_time())]
        mine = (session for session in everything if session.backgrounded and session.scope_key == scope_key)
        return sorted(mine, key=lambda session: session.started_at, reverse=True)

    def get(self, session_id: str, scope_key: str) -> ExecSession | None:
        """One of ``sessions``."""
        return next((session for session in self.sessions(scope_key) if session.id == session_id), None)

    def restore(self, records: Iterable[ExecRecord], *, scope_key: str) -> None:
        """Take over a conversation's background commands from another worker; ids that are known here are skipped."""
        now = time.time()
        for record in records:
            if self.get(record.id, scope_key) is None:
                session = restored_session(record, scope_key, now)
                ago = max(0.0, now - (record.ended_at or now))
                self._finished.add(session, trio.current_time(), ago=ago)
                if record.ended_at is None:
                    self.save_record(scope_key, session_record(session))

    def read_unseen(self, session: ExecSession) -> tuple[str, bool]:
        """The output since the last call, and whether some of that is lost."""
        said, is_lost = session.output.read_pending()
        if said and session.exited:
            self.save_record(session.scope_key, session_record(session))
        return said, is_lost

    def forget(self, session: ExecSession) -> bool:
        """Drop one that has ended; whether it was still kept."""
        was_kept = self._finished.remove(session)
        if was_kept:
            self.save_record(session.scope_key, cleared_record(session))
        return was_kept

    def notify_exit(self, session: ExecSession) -> None:
        """Announce the end of a background command, once, unless it is known or a poll will report it."""
        if not session.exited or session.exit_notified or session.watchers or not session.backgrounded:
            return
        session.exit_notified = True
        self._on_exit(exit_event(session))

    async def _watch(self, session: ExecSession, child: SpawnedShell) -> None:
        reader = OutputReader(child, session.output, session.mark_output)
        with ExitStack() as closing:
            closing.callback(self._finish, session, child)
            closing.callback(reader.finish)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(reader.run)
                try:
                    await _wait_exit_or_timeout(session, child)
                except trio.Cancelled:
                    session.exit_notified = True  # the worker ends: nothing is left to notify
                    raise
                finally:
                    await stop_tree(child.shell, self._limits.term_grace)
                nursery.cancel_scope.cancel()

    def _finish(self, session: ExecSession, child: SpawnedShell) -> None:
        returncode = child.shell.process.poll()
        child.shell.close()
        session.end(-9 if returncode is None else returncode)
        del self._running[session.id]
        if session.backgrounded:
            self._finished.add(session, trio.current_time())
            self.save_record(session.scope_key, session_record(session))
            self.notify_exit(session)  # first: at the change the pool may give the conversation to another worker
            self._on_change(self.background_ids())


async def _wait_exit_or_timeout(session: ExecSession, child: SpawnedShell) -> None:
    timeout = session.command.timeout
    with trio.move_on_after(float("inf") if timeout is None else timeout) as clock, session.stop_scope:
        await child.shell.wait_exited()
    session.timed_out = clock.cancelled_caught
