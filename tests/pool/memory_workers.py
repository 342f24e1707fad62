"""Workers made of memory, for tests of the shell on a virtual clock: real client, real machine, no process."""

import errno
import itertools
import os
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from errors import ResumeFailed, WorkerStartFailed
from pool.agent_records import AgentRecords
from pool.settings import PoolSettings
from pool.shell import Pool
from pool.worker_interface import EventSink, ignore_event
from profiles import CapabilityProfile, make_profile
from rpc.cgroup import OrphanGuarantee
from rpc.client import RpcClient
from rpc.native import NativeDialect
from rpc.settings import RpcSettings
from rpc.transport import ProcessFacts
from tests.rpc.memory_transport import MemoryTransport


def plain_profile(role: str = "default", **parts: Any) -> CapabilityProfile:
    return make_profile(
        **{"agent": "main", "role": role, "dialect": "native", "command": ("agent",), "cwd": "/", **parts}
    )


class MemoryWorker:
    """One worker. A prompt ``hang`` runs until it is aborted, ``deaf`` answers nothing any more, ``die`` ends it.

    Every other prompt is answered by all texts of its conversation, joined by ``|``.
    """

    def __init__(self, name: str, launcher: "MemoryLauncher", profile: CapabilityProfile) -> None:
        self.id = name
        self.pid = None
        self.node = launcher.node
        self.launcher = launcher
        self.transport = MemoryTransport()
        self.client = RpcClient(self.transport, NativeDialect(), launcher.settings, name=name)
        self.provider: str | None = "fake"
        self.model = profile.soft.model
        self.file = ""
        self.running: str | None = None
        self.deaf = False
        self.background = 0
        self.methods: list[str] = []
        self.kept: list[str | None] = []
        self.said_when_ready: dict[str, Any] = {}
        self.stderr_listener: Callable[[bytes], None] | None = None
        self.known_transcripts = launcher.known_transcripts

    def facts(self) -> ProcessFacts:
        return ProcessFacts(rss=self.launcher.rss.get(self.id), suspended=self.deaf)

    def stderr_tail(self) -> str:
        return f"{self.id} has started\n"

    def on_stderr(self, listener: Callable[[bytes], None] | None) -> None:
        self.stderr_listener = listener

    def explain_end(self, reason: str) -> None:
        """It has no log."""

    def record_transcript(self, transcript: str) -> None:
        self.known_transcripts.add(transcript)

    async def keep(self, transcript: str | None) -> None:
        await trio.lowlevel.checkpoint()
        if self.launcher.keeping is not None:
            await self.launcher.keeping.wait()
        self.kept.append(transcript)

    async def prepare_resume(self, transcript: str) -> bool:
        await trio.lowlevel.checkpoint()
        if transcript in self.launcher.damaged:
            raise ResumeFailed(f"{transcript} is damaged")
        return transcript in self.launcher.transcripts

    async def resume_params(self, transcript: str, *, honest: bool) -> dict[str, Any]:  # noqa: ARG002  # the interface's
        await trio.lowlevel.checkpoint()
        return {"session_file": transcript}

    async def fetch(self, path: str, limit: int) -> bytes:
        await trio.lowlevel.checkpoint()
        if path not in self.launcher.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.launcher.files[path][:limit]

    async def serve(self) -> None:
        self.transport.say({"event": "ready", "data": {"protocol": 1, **self.said_when_ready}})
        while True:
            request = await self.transport.next_request()
            self.methods.append(request["method"])
            if not self.deaf:
                self.answer(request, getattr(self, request["method"])(request))

    def answer(self, request: dict[str, Any], result: dict[str, Any] | None) -> None:
        if result is not None:
            self.transport.say({"id": request["id"], "result": result})

    def state(self) -> dict[str, Any]:
        texts = self.launcher.transcripts.get(self.file, [])
        held = {"session_id": self.file, "session_file": self.file, "message_count": len(texts)}
        return {**held, "provider": self.provider, "model": self.model}

    def ping(self, _: dict[str, Any]) -> dict[str, Any]:
        return {}

    def get_state(self, _: dict[str, Any]) -> dict[str, Any]:
        return self.state()

    def new_session(self, _: dict[str, Any]) -> dict[str, Any]:
        names = (f"/t/{number}" for number in itertools.count(len(self.launcher.transcripts)))
        used = {*self.launcher.taken, *self.launcher.transcripts}
        self.file = next(name for name in names if name not in used)
        self.launcher.transcripts[self.file] = []
        return self.state()

    def switch_session(self, request: dict[str, Any]) -> dict[str, Any]:
        self.file = request["params"]["session_file"]
        return self.state()

    def set_model(self, request: dict[str, Any]) -> dict[str, Any]:
        self.provider, self.model = request["params"]["provider"], request["params"]["model"]
        return {}

    def prompt(self, request: dict[str, Any]) -> dict[str, Any] | None:
        text = request["params"]["text"]
        self.launcher.prompts.append(text)
        self.transport.say({"event": "run_start", "data": {}})
        match text:
            case "hang":
                self.running = request["id"]
                return None
            case "deaf":
                self.deaf = True
                return None
            case "die":
                self.transport.exit(signal=9)
                return None
            case "garbage":
                self.transport.print(b"this is no message\n")
            case "background":
                self.background += 1
                self.transport.say({"event": "background", "data": {"running": self.background}})
        texts = self.launcher.transcripts[self.file]
        texts.append(text)
        self.transport.say({"event": "assistant_message", "data": {"partial": text}})
        return {"text": "|".join(texts), "stop_reason": "stop"}

    def abort(self, _: dict[str, Any]) -> dict[str, Any]:
        if self.running is not None:
            self.transport.say({"id": self.running, "result": {"text": "", "stop_reason": "aborted"}})
            self.running = None
        return {}


class MemoryLauncher:
    """Where they come from. ``broken`` names roles that cannot start; ``starts`` and ``stops`` are worker ids."""

    kind: type[MemoryWorker] = MemoryWorker

    def __init__(self) -> None:
        self.settings = RpcSettings()
        self.transcripts: dict[str, list[str]] = {}
        self.known_transcripts: set[str] = set()
        self.taken: frozenset[str | None] = frozenset()
        """Names that sessions of an earlier life have for theirs."""
        self.damaged: set[str] = set()
        self.files: dict[str, bytes] = {}
        """In the working directory of every worker."""
        self.node = ""
        self.keeping: trio.Event | None = None
        """What every ``keep`` waits for."""
        self.broken: set[str] = set()
        self.rss: dict[str, int] = {}
        self.live: dict[str, MemoryWorker] = {}
        self.prompts: list[str] = []
        self.starts: list[str] = []
        self.near: list[str] = []
        self.stops: list[str] = []
        self.most = 0

    @asynccontextmanager
    async def open(
        self, worker_id: str, profile: CapabilityProfile, *, force: trio.Event, near: str = ""
    ) -> AsyncGenerator[MemoryWorker, None]:
        self.starts.append(worker_id)
        self.near.append(near)
        if profile.role in self.broken:
            raise WorkerStartFailed("cannot start", stderr_tail="boom")
        worker = self.live[worker_id] = self.kind(worker_id, self, profile)
        self.most = max(self.most, len(self.live))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.client.run)
            nursery.start_soon(worker.serve)
            try:
                yield worker
            finally:
                worker.transport.exit(0 if not force.is_set() else None, 9 if force.is_set() else None)
                with trio.CancelScope(shield=True):
                    await worker.client.wait_ended()
                del self.live[worker_id]
                self.stops.append(worker_id)
                nursery.cancel_scope.cancel()

    def guarantee(self) -> OrphanGuarantee:
        return OrphanGuarantee("none", "nothing can be left of memory")


DEFAULT = plain_profile()
_MEMORY = 64 * 1024**3


def make_pool(
    launcher: MemoryLauncher,
    *,
    on_event: EventSink = ignore_event,
    agent_records: AgentRecords | None = None,
    **settings: Any,
) -> Pool:
    return Pool(
        PoolSettings(**{"min": 0, "max": 2, **settings}),
        launcher=launcher,
        on_event=on_event,
        rng=random.Random(1),
        memory_bytes=_MEMORY,
        agent_records=agent_records,
    )


async def say(pool: Pool, session: str, text: str, *, timeout: float | None = None) -> str:  # noqa: ASYNC109  # as lease
    async with pool.lease(session, DEFAULT, timeout=timeout) as lease:
        result = await lease.prompt(text).wait()
    return result.text
