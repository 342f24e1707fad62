"""The pipes of the worker: a reader and a writer that never wait for what is ready."""

import os
from pathlib import Path

import pytest
import trio
import trio.testing

from agent.pipes import PipeReader, PipeWriter


async def test_a_reader_waits_for_what_comes_and_ends_with_its_writer(nursery: trio.Nursery) -> None:
    far, near = os.pipe()
    read: list[bytes] = []

    async def read_all() -> None:
        async with PipeReader(far) as reader:
            while data := await reader.receive_some(4):
                read.append(data)

    nursery.start_soon(read_all)
    await trio.testing.wait_all_tasks_blocked()
    os.write(near, b"abcdef")
    await trio.testing.wait_all_tasks_blocked()
    assert read == [b"abcd", b"ef"]
    os.close(near)


async def test_a_reader_of_a_file_lets_others_run_between_two_reads(tmp_path: Path, nursery: trio.Nursery) -> None:
    """A regular file is always ready, and epoll does not take one."""
    (tmp_path / "requests").write_bytes(b"x" * 4096)
    steps = 0

    async def count() -> None:
        nonlocal steps
        while True:
            await trio.lowlevel.checkpoint()
            steps += 1

    nursery.start_soon(count)
    async with PipeReader(os.open(tmp_path / "requests", os.O_RDONLY)) as reader:
        reads = 0
        while await reader.receive_some(64):
            reads += 1
    assert reads == 64
    assert steps >= 32
    nursery.cancel_scope.cancel()


async def test_a_writer_waits_for_room_and_learns_that_its_reader_is_gone(nursery: trio.Nursery) -> None:
    far, near = os.pipe()
    block = os.urandom(1 << 20)  # no pipe holds as much
    got = bytearray()
    async with PipeReader(far) as reader, PipeWriter(near) as writer:
        nursery.start_soon(writer.send_all, block)
        while len(got) < len(block):
            got += await reader.receive_some()
        assert got == block
        await reader.aclose()
        with pytest.raises(trio.BrokenResourceError):
            await writer.send_all(b"more")
