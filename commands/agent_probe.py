"""Starts agents of dialect ``acp`` up to their first conversation, as a worker is started, and ends them again."""

import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import trio

from commands.doctor_checks import AgentProbe
from errors import PoolError
from pool.launcher import LocalLauncher
from pool.worker_interface import PoolWorker
from profiles import CapabilityProfile, build_profile
from settings.schema import Settings
from wire.messages import Ready

_AT_ONCE = 3
"""Agents that are started beside one another; some take half a gigabyte."""


class _ProbeState(msgspec.Struct, frozen=True):
    """What is asked of ``get_state``."""

    mode: str | None = None


def probe_agents(settings: Settings, names: Sequence[str], limit: float) -> dict[str, AgentProbe]:
    """Start each agent in an empty directory, for ``limit`` seconds at most; none of their processes is left."""
    return trio.run(_probe_all, settings, names, limit)


async def _probe_all(settings: Settings, names: Sequence[str], limit: float) -> dict[str, AgentProbe]:
    found: dict[str, AgentProbe] = {}
    room = trio.CapacityLimiter(_AT_ONCE)
    with tempfile.TemporaryDirectory(prefix="pool-doctor-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        (place / "work").mkdir()
        launcher = LocalLauncher(settings.rpc, data_dir=place / "data")

        async def probe(agent: str) -> None:
            profile = build_profile(settings, agent, "default", str(place / "work"))
            async with room:
                found[agent] = await _probe_one(launcher, profile, limit)

        try:
            async with trio.open_nursery() as nursery:
                for agent in names:
                    nursery.start_soon(partial(probe, agent))
        finally:
            launcher.close()
    return found


async def _probe_one(launcher: LocalLauncher, profile: CapabilityProfile, limit: float) -> AgentProbe:
    """Within the block of the worker no error is left to its nursery, which would wrap it into a group."""
    try:
        async with launcher.open(profile.agent, profile, force=trio.Event()) as worker:
            return await _ask(worker, profile.agent, limit)
    except PoolError as exc:  # there is no process
        return _failed(exc, profile.agent)


async def _ask(worker: PoolWorker, agent: str, limit: float) -> AgentProbe:
    began = trio.current_time()
    try:
        ready = await worker.client.wait_ready(limit)
        seconds = trio.current_time() - began
        state = await worker.client.request_as(_ProbeState, "get_state", {})
    except PoolError as exc:
        return _failed(exc, agent)
    return _probe_of(ready, seconds, state.mode)


def _failed(error: PoolError, agent: str) -> AgentProbe:
    words = error.message.removeprefix(f"worker {agent} did not start: ")
    return AgentProbe(problem=words, stderr=_last_line(error.details.get("stderr_tail")))


def _probe_of(ready: Ready, seconds: float, mode: str | None) -> AgentProbe:
    said = ready.capabilities
    able = () if isinstance(said, msgspec.UnsetType) else tuple(said)
    return AgentProbe(program=ready.agent, version=ready.version, capabilities=able, mode=mode, seconds=seconds)


def _last_line(text: str | None) -> str:
    return next((line for line in reversed((text or "").split(os.linesep)) if line.strip()), "")
