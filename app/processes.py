"""What sees to it that no process of a supervisor outlives it: the sweep at the start, and the guard."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from pool import LocalLauncher
from rpc.guard import supervise_guard
from rpc.orphans import sweep_previous
from rpc.state_file import StateFileCorrupt

Emit = Callable[[str, dict[str, Any]], None]


async def sweep_last_life(state_file: Path, emit: Emit) -> None:
    """Kill what an earlier supervisor has left, and report it."""
    try:
        report = await sweep_previous(state_file)
    except StateFileCorrupt as exc:
        aside = state_file.replace(state_file.with_name(state_file.name + ".damaged"))  # noqa: ASYNC240  # nothing runs yet
        emit("state_file_set_aside", {"reason": exc.message, "kept_as": str(aside)})
    else:
        if report.killed:
            emit("previous_workers_swept", {"killed": len(report.killed)})
        if report.left:
            emit("previous_workers_left", {"pids": sorted(set(report.left))})


async def keep_guard(
    launcher: LocalLauncher, emit: Emit, *, task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED
) -> None:
    """Keep a guard process as long as this runs."""
    await supervise_guard(
        launcher.instance,
        launcher.cgroup,
        launcher.children,
        on_lost=lambda reason: emit("guard_lost", {"reason": reason}),
        task_status=task_status,
    )
