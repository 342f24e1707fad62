"""Working directories that a command fills: once, before the first worker, and never for ever."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from errors import WorkerStartFailed
from rpc import preparation
from rpc.children import ChildRegistry
from rpc.preparation import Preparations
from rpc.settings import RpcSettings
from rpc.spawn import WorkerSpec
from tests.rpc.procs import wait_dead

pytestmark = pytest.mark.process

PATH = (("PATH", "/usr/bin:/bin"),)


class Bench:
    """A working directory below ``directory``, and what prepares it."""

    def __init__(self, directory: Path) -> None:
        self.cwd = directory / "a" / "b"
        self.runs = directory / "runs"
        self.stop = trio.Event()
        self._notes = directory / "prepared"
        self.preparations = Preparations(self._notes, ChildRegistry())
        self.spec = WorkerSpec(
            worker_id="w1",
            marker="test-preparation:w1",
            argv=("never",),
            env=PATH,
            cwd=str(self.cwd),
            secrets=("canary",),
        )

    def begin_another_life(self) -> None:
        self.preparations = Preparations(self._notes, ChildRegistry())

    async def prepare(self, script: str) -> None:
        command = ("sh", "-c", f"echo >> {self.runs}; {script}")
        with trio.fail_after(60):
            await self.preparations.prepare(command, self.spec, RpcSettings(), self.stop)

    @property
    def count(self) -> int:
        return len(self.runs.read_text()) if self.runs.exists() else 0


@asynccontextmanager
async def failing(said: str) -> AsyncGenerator[None, None]:
    with pytest.raises(WorkerStartFailed, match=said) as failed:
        yield
    assert "canary" not in failed.value.message


async def test_a_directory_is_prepared_once_also_by_two_at_a_time_and_across_lives(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(bench.prepare, "touch made")
    bench.begin_another_life()
    await bench.prepare("touch made")
    assert ((bench.cwd / "made").exists(), bench.count) == (True, 1)
    await bench.prepare("touch more")  # another command is another preparation
    assert bench.count == 2


async def test_a_directory_that_was_replaced_is_prepared_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.prepare("touch made")
    bench.cwd.rename(tmp_path / "older")  # keeps its inode in use
    await bench.prepare("touch made")
    assert bench.count == 2


async def test_what_fails_is_the_failure_of_the_start_with_its_last_lines_and_is_tried_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    async with failing("its command `prepare` exited with code 3: no such branch"):
        await bench.prepare("yes | head -c 1000000; echo no such branch canary >&2; exit 3")
    async with failing("exited with code 4: on standard output"):
        await bench.prepare("echo on standard output; exit 4")
    await bench.prepare("true")
    assert bench.count == 3
    (tmp_path / "file").touch()
    bench.spec = WorkerSpec(worker_id="w1", marker="m:w1", argv=("never",), env=PATH, cwd=str(tmp_path / "file" / "x"))
    async with failing("cannot be prepared: Not a directory"):
        await bench.prepare("true")


async def test_what_does_not_end_in_time_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "PREPARE_SECONDS", 0.2)
    async with failing("had not ended after 0.2 s"):
        await Bench(tmp_path).prepare("sleep 600")


async def test_a_stop_ends_it_with_all_that_it_has_started(tmp_path: Path) -> None:
    bench, pids = Bench(tmp_path), list[int]()
    os.mkfifo(tmp_path / "pid")

    async def stop_when_begun() -> None:
        pids.append(int(await trio.Path(tmp_path / "pid").read_text()))
        bench.stop.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_when_begun)
        async with failing("killed by signal 9"):
            await bench.prepare(f"setsid sleep 600 & echo $! > {tmp_path}/pid; sleep 600")
    assert await trio.to_thread.run_sync(wait_dead, pids, 20.0) == []
