"""Workers of the bundled agent, forked as ``pool run`` does, and spawned: time to the first ping, and memory."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from benchmarks.harness import Result, median, result
from benchmarks.promises import Promise
from pool import LocalLauncher
from pool.local_worker import LocalWorker
from profiles import CapabilityProfile, ProfilesSettings, build_profile

_ROUNDS = 15
_WORKERS = 16


def run() -> list[Result]:
    return trio.run(_measure)


async def _measure() -> list[Result]:
    profile = build_profile(ProfilesSettings(), "main", "default", "/")
    async with LocalLauncher.temporary() as spawning, _forking() as forking:
        await _first_ping(forking, profile)  # its server, bytecode, and the disk's cache
        times = [(await _first_ping(forking, profile), await _first_ping(spawning, profile)) for _ in range(_ROUNDS)]
        forked, spawned = (median(column) for column in zip(*times, strict=True))
        sizes, spawned_sizes = await _sizes(forking, profile), await _sizes(spawning, profile)
    ping = partial(result, "p50, forked", forked, "ms", promise=Promise.FIRST_PING)
    return [
        ping(beside=(spawned, "ms spawned"), at_most=60.0),
        *(
            result(f"agent: {name}, PSS of one of {_WORKERS}", own, "MiB", beside=(other, "MiB spawned"), at_most=12.0)
            for name, own, other in zip(("idle", "after a turn"), sizes, spawned_sizes, strict=True)
        ),
    ]


@asynccontextmanager
async def _forking() -> AsyncIterator[LocalLauncher]:
    async with LocalLauncher.temporary() as launcher, trio.open_nursery() as nursery:
        await nursery.start(launcher.keep_fork_server, _refuse)
        yield launcher
        nursery.cancel_scope.cancel()


def _refuse(event: str, data: dict[str, Any]) -> None:
    raise RuntimeError(f"{event}: {data}")


async def _first_ping(launcher: LocalLauncher, profile: CapabilityProfile) -> float:
    begun = time.perf_counter()
    async with launcher.open("w1", profile, force=trio.Event()) as worker:
        await worker.client.request("ping", timeout=30)
        return (time.perf_counter() - begun) * 1000


async def _sizes(launcher: LocalLauncher, profile: CapabilityProfile) -> tuple[float, float]:
    """What is a worker's own of its memory, its share of what several have included: idle, and after a turn."""
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(launcher.open(f"w{number}", profile, force=trio.Event()))
            for number in range(_WORKERS)
        ]
        for worker in workers:
            await worker.client.request("ping", timeout=30)
        idle = _own_size(workers)
        for worker in workers:
            await worker.client.request("prompt", {"text": "ECHO:hi"}, timeout=30)
        return idle, _own_size(workers)


def _own_size(workers: list[LocalWorker]) -> float:
    """MiB, the median."""
    return median([_proportional_size(worker.pid) for worker in workers if worker.pid is not None])


def _proportional_size(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))
