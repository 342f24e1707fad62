"""The state file: on disk before any worker, equal to the registry, never half of itself."""

import os
from pathlib import Path

import pytest
import trio
import trio.testing

from rpc.children import ChildRegistry
from rpc.state_file import StateFile, StateFileCorrupt, SupervisorState, read_state
from wire.procfs import ProcessIdentity, identify

W1 = ProcessIdentity(101, 1, "boot", "abc:w1")
W2 = ProcessIdentity(102, 2, "boot", "abc:w2")


class Watched(StateFile):
    """Tells every write, and may be held up or fail."""

    def __init__(self, path: Path, children: ChildRegistry) -> None:
        super().__init__(path, "abc", children, cgroup=Path("/cg/pool-abc"))
        self.written: list[list[int]] = []
        self.wrote = trio.Event()
        self.gate = trio.Event()
        self.gate.set()
        self.fails = False

    async def _write(self, state: SupervisorState) -> None:
        await self.gate.wait()
        try:
            if self.fails:
                raise OSError(28, "No space left on device")
            await super()._write(state)
            self.written.append([worker.pid for worker in state.workers])
        finally:
            self.wrote.set()

    async def next_write(self) -> None:
        await self.wrote.wait()
        self.wrote = trio.Event()


async def test_the_instance_is_on_disk_before_any_worker(tmp_path: Path, nursery: trio.Nursery) -> None:
    path = tmp_path / "workers.json"
    await nursery.start(StateFile(path, "abc", ChildRegistry(), cgroup=Path("/cg/pool-abc")).run)
    state = read_state(path)
    assert state == SupervisorState(instance="abc", supervisor=identify(os.getpid()), cgroup="/cg/pool-abc")
    assert state.is_owner_alive()
    assert path.stat().st_mode & 0o777 == 0o600
    nursery.cancel_scope.cancel()


async def test_workers_come_and_go_and_children_that_are_no_workers_are_left_out(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    children = ChildRegistry()
    file = Watched(tmp_path / "workers.json", children)
    await nursery.start(file.run)
    await file.next_write()
    children.register(W1)
    await file.next_write()
    children.register(ProcessIdentity(7, 7, "boot"))
    await file.next_write()
    children.unregister(101)
    await file.next_write()
    assert file.written == [[], [101], [101], []]
    assert [entry.name for entry in await trio.Path(tmp_path).iterdir()] == ["workers.json"]
    nursery.cancel_scope.cancel()


async def test_changes_during_a_write_become_one(tmp_path: Path, nursery: trio.Nursery) -> None:
    children = ChildRegistry()
    file = Watched(tmp_path / "workers.json", children)
    await nursery.start(file.run)
    await file.next_write()
    file.gate = trio.Event()
    children.register(W1)
    await trio.testing.wait_all_tasks_blocked()
    children.register(W2)
    children.unregister(101)
    file.gate.set()
    await file.next_write()
    await file.next_write()
    await trio.testing.wait_all_tasks_blocked()
    assert file.written == [[], [101], [102]]
    nursery.cancel_scope.cancel()


async def test_a_full_disk_is_counted_and_the_next_change_tries_again(tmp_path: Path, nursery: trio.Nursery) -> None:
    children = ChildRegistry()
    file = Watched(tmp_path / "workers.json", children)
    await nursery.start(file.run)
    await file.next_write()
    file.fails = True
    children.register(W1)
    await file.next_write()
    file.fails = False
    children.register(W2)
    await file.next_write()
    assert file.write_failures == 1
    assert file.written == [[], [101, 102]]
    nursery.cancel_scope.cancel()


async def test_a_file_that_cannot_be_written_at_all_stops_the_start(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "gone" / "workers.json", "abc", ChildRegistry())
    with pytest.raises(FileNotFoundError):
        await file.run()


async def test_the_end_removes_the_file_unless_a_worker_is_left(tmp_path: Path) -> None:
    path = tmp_path / "workers.json"
    for left in ([], [W1]):
        children = ChildRegistry()
        async with trio.open_nursery() as nursery:
            await nursery.start(StateFile(path, "abc", children).run)
            for worker in left:
                children.register(worker)
            nursery.cancel_scope.cancel()
        state = read_state(path)
        assert (state.workers if state else []) == left
        assert path.exists() == bool(left)


def test_a_file_that_nobody_of_us_wrote_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "workers.json"
    assert read_state(path) is None
    for text in ("", "{", '{"instance": 1}', "\xff", '{"instance": "\xff"}'):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(StateFileCorrupt, match=r"workers\.json"):
            read_state(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(StateFileCorrupt, match=r"workers\.json cannot be read: it is no regular file"):
        read_state(path)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(StateFileCorrupt, match=r"workers\.json cannot be read: it is no regular file"):
        read_state(path)
    path.unlink()
    path.symlink_to("nowhere")
    with pytest.raises(StateFileCorrupt, match=r"workers\.json cannot be read: Too many levels of symbolic links"):
        read_state(path)


def test_an_owner_with_our_pid_but_another_start_is_not_alive() -> None:
    me = identify(os.getpid())
    for ghost in (me._replace(start_time=1), me._replace(boot_id="x"), me._replace(pid=2**22 + 1)):
        assert not SupervisorState(instance="abc", supervisor=ghost).is_owner_alive()
