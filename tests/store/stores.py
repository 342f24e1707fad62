"""A store under test: opened over a disk of the test, with what it told."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from store.settings import StoreSettings
from store.store import Store, open_store
from tests.store.disks import Disk, table
from wire.units import Seconds

FULL = sqlite3.OperationalError("database or disk is full")
SETTINGS = StoreSettings(retry=Seconds(0.01))


class Troubles:
    """What the store told, in order."""

    def __init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[tuple[str, dict[str, Any]]](100)

    def __call__(self, kind: str, details: dict[str, Any]) -> None:
        self._sender.send_nowait((kind, details))

    async def next(self) -> tuple[str, dict[str, Any]]:
        with trio.fail_after(10):
            return await self._receiver.receive()

    def is_empty(self) -> bool:
        return self._receiver.statistics().current_buffer_used == 0


@asynccontextmanager
async def a_store(
    path: Path, *, disk: Disk | None = None, troubles: Troubles | None = None, settings: StoreSettings = SETTINGS
) -> AsyncIterator[Store]:
    with trio.fail_after(20):
        async with open_store(
            path, settings, on_trouble=troubles or Troubles(), connect=(disk or Disk()).connect
        ) as store:
            yield store


async def hung(disk: Disk) -> None:
    """Wait until a commit is in the hands of a disk that does not answer."""
    await trio.to_thread.run_sync(disk.hangs.wait)


async def tried_anew(disk: Disk) -> None:
    """Wait until an attempt that has begun after this call reaches its commit: it holds all that was put before."""
    assert await trio.to_thread.run_sync(disk.wait_for_commits, 2)  # the first one may have been under way


def stored(path: Path) -> list[int]:
    return [seq for (seq,) in table(path, "SELECT seq FROM events ORDER BY seq")]
