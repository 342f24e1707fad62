"""The ledger of files seen: what others change is told once, what the agent does itself never."""

import os
from pathlib import Path

import pytest
import trio

from agent.tools import file_state as module
from agent.tools.file_state import FileTracker, FileVersion
from agent.tools.read import ReadTool
from agent.tools.write import WriteTool
from tests.agent.tools.using import Bench


async def read(bench: Bench, workspace: Path, text: str = "one") -> str:
    """Write a file as someone else would, and read it; its path."""
    (workspace / "file").write_text(text)
    await bench.use(ReadTool(), path="file")
    return f"{bench.context.cwd}/file"


async def test_a_change_by_someone_else_is_told_once_and_the_agents_own_never(bench: Bench, workspace: Path) -> None:
    path = await read(bench, workspace)
    assert await bench.files.find_changed() == []
    for text in ("two", "six"):
        (workspace / "file").write_text(text)
        assert await bench.files.find_changed() == [path]
        assert await bench.files.find_changed() == []
    for content in ("seven", "eight"):
        await bench.use(ReadTool(), path="file")
        await bench.use(WriteTool(), path="file", content=content)
        assert await bench.files.find_changed() == []


async def test_what_counts_is_the_content_not_its_time_size_or_inode(bench: Bench, workspace: Path) -> None:
    path = await read(bench, workspace)
    os.utime(workspace / "file", (1, 1))
    (workspace / "file").chmod(0o600)
    assert await bench.files.find_changed() == []
    (workspace / "other").write_text("one")
    (workspace / "other").replace(workspace / "file")
    assert await bench.files.find_changed() == []
    for text, told in (("one", []), ("two", [path])):
        (workspace / "file").write_text(text)
        os.utime(workspace / "file", ns=(10**18, 10**18))
        assert await bench.files.find_changed() == told


async def test_removing_and_putting_back_are_told(bench: Bench, workspace: Path) -> None:
    path, file = await read(bench, workspace), workspace / "file"
    file.unlink()
    assert [await bench.files.find_changed() for _ in range(2)] == [[path], []]
    file.write_text("one")
    assert await bench.files.find_changed() == []
    file.write_text("two")
    assert await bench.files.find_changed() == [path]
    file.unlink()
    os.mkfifo(file)
    assert await bench.files.find_changed() == [path]
    file.unlink()
    file.symlink_to("/etc/passwd")
    assert await bench.files.find_changed() == []  # still no file
    file.unlink()
    file.write_text("three")
    assert await bench.files.find_changed() == [path]


async def test_large_files_are_told_apart_by_time_and_size(
    bench: Bench, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HASHED_BYTES", 10)
    monkeypatch.setattr("agent.tools.read.HASHED_BYTES", 10)
    path = await read(bench, workspace, "more than ten")
    known = bench.files.last_seen(path)
    assert known is not None
    assert known.digest is None
    (workspace / "file").chmod(0o600)
    assert await bench.files.find_changed() == []
    (workspace / "file").write_text("quite different")
    assert await bench.files.find_changed() == [path]


async def test_only_the_files_used_last_are_tracked(workspace: Path) -> None:
    files = FileTracker(tracked=2)
    for name in ("a", "b", "a", "c"):
        files.record(str(workspace / name), FileVersion(0, 0, 0, 0, settled=True, digest=b""))
    assert [files.last_seen(str(workspace / name)) is not None for name in "abc"] == [True, False, True]
    files.clear()
    assert files.last_seen(str(workspace / "a")) is None
    assert await files.find_changed() == []


async def test_one_writer_at_a_time_and_in_order(autojump_clock: trio.testing.MockClock) -> None:
    files, order = FileTracker(), list[str]()

    async def work(name: str, path: str, seconds: float) -> None:
        async with files.write_lock(path):
            order.append(f"{name} begins")
            await trio.sleep(seconds)
            order.append(f"{name} ends")

    async with trio.open_nursery() as nursery:
        for name, path, seconds in (("one", "x", 3.0), ("two", "x", 1.0), ("else", "y", 2.0)):
            nursery.start_soon(work, name, path, seconds)
            await trio.testing.wait_all_tasks_blocked()
    assert order == ["one begins", "else begins", "else ends", "one ends", "two begins", "two ends"]
    assert files._locks == {}
