"""What a node adds: the same workers here and behind a node program, in turns, with CPU time beside.

The node program runs on this machine, over TLS and over pipes as ssh gives them, with an empty directory of its own
where the supervisor's data lies (``unshare``). What a network adds comes on top.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import trio

from benchmarks import stream_worker
from benchmarks.harness import Result, median, result
from benchmarks.programs import ECHO
from cluster.home import NodeDesk
from cluster.launcher import ClusterLauncher
from cluster.listener import LifeCertificate, serve_nodes
from cluster.remote_node import RemoteNode
from cluster.wire import LinkWire
from pool.launcher import LocalLauncher
from pool.local_worker import LocalWorker
from pool.nodes import NodeTable
from pool.settings import PoolSettings
from pool.shell import Pool
from profiles import CapabilityProfile, ProfilesSettings, build_profile, make_profile
from rpc.host import WorkerPlan
from rpc.settings import RpcSettings
from rpc.stderr_log import LineLog
from rpc.transport import NodeProcess
from rpc.turn import RpcTurn
from wire.messages import PromptParams

_ROUNDS, _TRIPS, _WORDS, _TURNS, _EVENTS, _MANY = 5, 300, 100, 40, 200_000, 150
_OWN_DISK = ("unshare", "-Urm", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')
_STREAM = (sys.executable, "-P", str(Path(stream_worker.__file__)))
_TICK = """import sys, time
while True:
    time.sleep(0.004)
    sys.stdout.write(f"{time.monotonic_ns()}\\n")
    sys.stdout.flush()
"""
_TICKS = (sys.executable, "-c", _TICK)
"""Says every 4 ms what time it is."""
_PLACES = ("here", "tls", "pipes")


def run() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="pool-bench-") as place:
        return trio.run(_measure, Path(place))


class _Bench:
    """A supervisor's half of a cluster; ``place`` says where the next worker goes."""

    def __init__(self, directory: Path, nursery: trio.Nursery) -> None:
        self.data_dir = directory / "data"
        self.data_dir.mkdir(mode=0o700)
        self.target = "here"
        self.programs: dict[str, psutil.Process] = {}
        self.desk = NodeDesk(
            self.data_dir, lease=60.0, margin=3.0, silence=30.0, watcher=self, emit=lambda _event, _facts: None
        )
        self.local = LocalLauncher(data_dir=self.data_dir, use_cgroups=False)
        self.launcher = ClusterLauncher(self.local, self)
        self._directory = directory
        self._nursery = nursery

    def place(self, worker: str, group: str, near: str) -> RemoteNode | None:  # noqa: ARG002 - the launcher's
        return self.desk.linked(self.target)

    def release(self, worker: str) -> None:
        """There are slots enough."""

    def joined(self, node: RemoteNode) -> None:
        """It is waited for."""

    def idle(self, name: str) -> float:  # noqa: ARG002 - the watcher's
        return 0.0

    def drain(self, name: str, seconds: float | None, *, ends: bool) -> None:
        """No node is sent away."""

    def lost(self, node: RemoteNode, reason: str) -> int:
        if reason:
            raise RuntimeError(f"{node.name}: {reason}")
        return 0

    async def start_nodes(self, stack: AsyncExitStack) -> None:
        certificate = await trio.to_thread.run_sync(LifeCertificate.make)
        port = await self._nursery.start(serve_nodes, self.desk, certificate, "127.0.0.1", 0)
        secret = self._directory / "secret"
        await trio.Path(secret).touch(0o600)
        await trio.Path(secret).write_text(self.desk.invite("tls"))
        where = ("--dial", f"127.0.0.1:{port}", "--fingerprint", certificate.fingerprint, "--secret-file", str(secret))
        self._start("tls", stack, *where)
        ours = self._start("pipes", stack, "--stdio")
        assert ours.stdin is not None
        assert ours.stdout is not None
        descriptors = os.dup(ours.stdout.fileno()), os.dup(ours.stdin.fileno())
        for stream in (ours.stdin, ours.stdout):
            stream.close()
        for fd in descriptors:
            os.set_blocking(fd, False)
        self._nursery.start_soon(self.desk.serve, LinkWire.of_pipes(*descriptors), "pipes")
        for name in ("tls", "pipes"):
            await self.desk.wait_linked(name)

    def _start(self, name: str, stack: AsyncExitStack, *way: str) -> "subprocess.Popen[bytes]":
        own = ("--name", name, "--state-dir", str(self._directory / name))
        command = [*_OWN_DISK, str(self.data_dir), sys.executable, "-P", "-m", "cli", "node", *own, *way]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE} if name == "pipes" else {}
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, bufsize=0, **pipes)
        stack.callback(_end, process)
        self.programs[name] = psutil.Process(process.pid)
        return process

    @asynccontextmanager
    async def worker(self, place: str, profile: CapabilityProfile) -> AsyncIterator[LocalWorker]:
        self.target = place
        async with self.launcher.open(f"w-{place}", profile, force=trio.Event()) as worker:
            yield worker


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


async def _measure(directory: Path) -> list[Result]:
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        bench = _Bench(directory, nursery)
        nursery.start_soon(bench.desk.run)
        await bench.start_nodes(stack)
        figures = [
            *_memory(bench),
            *await _round_trips(bench),
            *await _words(bench),
            *await _events(bench),
            *await _turns(bench),
            *await _many_workers(bench),
            _placing(),
        ]
        nursery.cancel_scope.cancel()
    return figures


class _Cpu(NamedTuple):
    """Milliseconds so far: of this process, and of a node program."""

    here: float
    node: float


def _cpu(bench: _Bench, place: str) -> _Cpu:
    program = bench.programs.get(place)
    times = None if program is None else program.cpu_times()
    return _Cpu(time.process_time() * 1e3, 0.0 if times is None else (times.user + times.system) * 1e3)


class _Samples:
    """Milliseconds of single calls by place, and what each has cost in CPU time."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {place: [] for place in _PLACES}
        self._cpu: dict[str, list[float]] = {place: [] for place in _PLACES}

    @contextmanager
    def counting(self, bench: _Bench, place: str, calls: int) -> Iterator[None]:
        before = _cpu(bench, place)
        yield
        after = _cpu(bench, place)
        self._cpu[place].append((after.here - before.here + after.node - before.node) / calls)

    def p50(self, place: str) -> float:
        return median(self.times[place])

    def cpu(self, place: str) -> float:
        return statistics.median(self._cpu[place])

    def added(self, what: str, bars: dict[str, float]) -> Iterator[Result]:
        """Microseconds that each way adds to the time here, and the CPU time of both ends."""
        here, cpu_here = self.p50("here"), self.cpu("here")
        for place, bar in bars.items():
            added = (self.p50(place) - here) * 1e3
            yield result(f"{what} over {place}, added p50", added, "us", beside=(here * 1e3, "us here"), at_most=bar)
            cpu = self.cpu(place) * 1e3
            yield result(f"{what} over {place}, CPU of both ends", cpu, "us", beside=(cpu_here * 1e3, "us here"))


def _echo(command: tuple[str, ...]) -> CapabilityProfile:
    return make_profile(command=command, cwd="/")


async def _round_trips(bench: _Bench) -> list[Result]:
    samples = _Samples()
    async with AsyncExitStack() as stack:
        workers = {place: await stack.enter_async_context(bench.worker(place, _echo(ECHO))) for place in _PLACES}
        for worker in workers.values():
            await worker.client.request("ping", timeout=30)
        for _ in range(_ROUNDS):
            for place, worker in workers.items():
                with samples.counting(bench, place, _TRIPS):
                    for _ in range(_TRIPS):
                        begun = time.perf_counter()
                        await worker.client.request("ping")
                        samples.times[place].append((time.perf_counter() - begun) * 1e3)
    return list(samples.added("a request", {"tls": 400.0, "pipes": 500.0}))


async def _words(bench: _Bench) -> list[Result]:
    """How much later a word is here that a worker says by itself; read below the client, which costs both the same."""
    samples = _Samples()
    for _ in range(_ROUNDS):
        for place in _PLACES:
            bench.target = place
            with samples.counting(bench, place, _WORDS):
                samples.times[place] += await _ticks(bench, place)
    return list(samples.added("a word", {"tls": 300.0, "pipes": 300.0}))


async def _ticks(bench: _Bench, place: str) -> list[float]:
    late: list[float] = []
    async with _process(bench, place, _TICKS) as process:
        rest = b""
        while len(late) < _WORDS:
            await process.wait_readable()
            data, now = process.receive_nowait(), time.monotonic_ns()
            *lines, rest = (rest + (data or b"")).split(b"\n")
            late += [(now - int(line)) / 1e6 for line in lines]
    return late


@asynccontextmanager
async def _process(bench: _Bench, place: str, argv: tuple[str, ...]) -> AsyncIterator[NodeProcess]:
    """A process without a client."""
    plan, settings = WorkerPlan(worker_id="w", agent="main", argv=argv, cwd="/"), RpcSettings()
    node = bench.desk.linked(place)
    async with trio.open_nursery() as nursery:
        if node is None:
            with bench.local.host.prepare(plan, settings) as spec:
                here = await bench.local.host.spawn(spec, settings, stop=trio.Event())
                nursery.start_soon(here.supervise)
                yield here
                await here.stop(force=True)
        else:
            there = node.start(plan, settings, LineLog(None, 1 << 20))
            nursery.start_soon(there.run)
            await there.wait_started()
            yield there
            await there.stop(force=True)
            node.forget(there)
        nursery.cancel_scope.cancel()


async def _events(bench: _Bench) -> list[Result]:
    rates: dict[str, list[float]] = {place: [] for place in _PLACES}
    async with AsyncExitStack() as stack:
        workers = {place: await stack.enter_async_context(bench.worker(place, _echo(_STREAM))) for place in _PLACES}
        for worker in workers.values():
            await worker.client.wait_ready(30)
        for _ in range(3):
            for place, worker in workers.items():
                rates[place].append(await _stream(worker))
    here = median(rates["here"])
    return [
        result(f"events over {place}", median(rates[place]), "/s", beside=(here, "/s here"), at_least=300_000)
        for place in _PLACES[1:]
    ]


async def _stream(worker: LocalWorker) -> float:
    begun, count = time.perf_counter(), 0
    async with RpcTurn(worker.client, PromptParams(str(_EVENTS)), timeout=60) as turn:
        while (batch := await turn.receive()) is not None:
            count += len(batch)
    assert count >= _EVENTS
    return count / (time.perf_counter() - begun)


async def _turns(bench: _Bench) -> list[Result]:
    """A durable turn of the bundled agent: on a node its transcript is synced here before the answer is shown."""
    profile, samples = build_profile(ProfilesSettings(), "main", "default", "/"), _Samples()
    async with Pool(PoolSettings(min=0, max=3), launcher=bench.launcher, memory_bytes=1 << 40) as pool:
        for place in _PLACES:
            bench.target = place
            async with pool.lease(place, profile) as lease:
                await lease.prompt("warm").wait()
        for _ in range(_ROUNDS):
            for place in _PLACES:
                with samples.counting(bench, place, _TURNS):
                    for _ in range(_TURNS):
                        begun = time.perf_counter()
                        async with pool.lease(place, profile) as lease:
                            await lease.prompt("word").wait()
                        samples.times[place].append((time.perf_counter() - begun) * 1e3)
    sync = await trio.to_thread.run_sync(_sync_ms, bench.data_dir)
    here = samples.p50("here")
    return [
        result(f"a warm turn over {place}, p50", samples.p50(place), "ms", beside=(here + sync, "ms here and a sync"))
        for place in _PLACES[1:]
    ]


def _sync_ms(directory: Path) -> float:
    times = []
    with (directory / "sync").open("wb", buffering=0) as file:
        for _ in range(50):
            file.write(b"x" * 200)
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - begun) * 1e3)
    return median(times)


def _memory(bench: _Bench) -> Iterator[Result]:
    program = bench.programs["tls"]
    yield result("the node program, unshared", _mib(program), "MiB", at_most=35.0)
    for child in program.children():
        if "lease_guard" in " ".join(child.cmdline()):
            yield result("its guard, unshared", _mib(child), "MiB", at_most=11.0)


def _mib(process: psutil.Process) -> float:
    return float(process.memory_full_info().uss) / 2**20


async def _many_workers(bench: _Bench) -> list[Result]:
    """What one more worker on a node takes of the supervisor: memory, descriptors, CPU while nothing happens."""
    bench.target, profile = "tls", _echo(("cat",))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(bench.launcher.open("w-first", profile, force=trio.Event()))
        descriptors = _descriptors()
        tracemalloc.start()
        for number in range(_MANY):
            force = trio.Event()
            force.set()
            await stack.enter_async_context(bench.launcher.open(f"w{number}", profile, force=force))
        taken = tracemalloc.get_traced_memory()[0] / 1024 / _MANY
        tracemalloc.stop()
        more, begun = _descriptors() - descriptors, time.process_time()
        await trio.sleep(3.0)
        idle = (time.process_time() - begun) / 3.0 * 100
    return [
        result("the supervisor's memory, a worker on a node", taken, "KiB", at_most=60.0),
        result(f"descriptors of {_MANY} more workers", more, ""),
        result(f"CPU of the supervisor, {_MANY} workers, idle", idle, "%", at_most=10.0),
    ]


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a number


def _placing() -> Result:
    table = NodeTable()
    for number in range(200):
        table.add(f"n{number}", "", 100)
    begun = time.perf_counter()
    for number in range(10_000):
        table.place(f"w{number}", "")
    return result("a place for a worker, 200 nodes", (time.perf_counter() - begun) / 10_000 * 1e6, "us", at_most=10.0)
