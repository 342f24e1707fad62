"""A disk without room for another conversation: requests fail, workers and profiles are as good as before."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from errors import ProfileBroken, ResumeFailed, WorkerRefused
from tests.pool.memory_workers import MemoryLauncher, MemoryWorker, make_pool, say


class Refusing(MemoryWorker):
    """Begins no conversation, and says why in the words of its launcher."""

    def answer(self, request: dict[str, Any], result: dict[str, Any] | None) -> None:
        words = getattr(self.launcher, "words", "")
        if request["method"] == "new_session" and words:
            self.transport.say({"id": request["id"], "error": {"code": "transcript", "message": words}})
        else:
            super().answer(request, result)


class FullDisk(MemoryLauncher):
    kind = Refusing
    words = "cannot write the transcript /t/1: No space left on device"


@pytest.mark.parametrize(
    "words",
    ["cannot write /t: No space left on device", "ENOSPC: no space left on device", "Disk quota exceeded"],
)
async def test_workers_live_through_a_full_disk_and_serve_when_there_is_room(
    autojump_clock: MockClock, words: str
) -> None:
    launcher = FullDisk()
    launcher.words = words
    async with make_pool(launcher) as pool:
        for _ in range(10):
            with pytest.raises(WorkerRefused, match=words.partition(":")[0]):
                await say(pool, "s", "hello")
        launcher.words = ""
        begun = trio.current_time()
        assert await say(pool, "s", "hello") == "hello"
        assert trio.current_time() == begun
    assert launcher.starts == ["w1"]


class Locking(Refusing):
    """Keeps the transcript of its conversation locked, as the bundled agent does."""

    async def prepare_resume(self, transcript: str) -> bool:
        if transcript == self.file:
            raise ResumeFailed(f"{transcript} is locked")
        return await super().prepare_resume(transcript)

    def new_session(self, request: dict[str, Any]) -> dict[str, Any]:
        return {} if getattr(self.launcher, "words", "") else super().new_session(request)


async def test_the_conversation_that_a_worker_had_no_room_to_leave_goes_on_there(autojump_clock: MockClock) -> None:
    launcher = FullDisk()
    launcher.kind, launcher.words = Locking, ""
    async with make_pool(launcher, max=1) as pool:
        assert await say(pool, "s", "one") == "one"
        launcher.words = FullDisk.words
        with pytest.raises(WorkerRefused, match="No space left"):
            await say(pool, "other", "hello")
        assert await say(pool, "s", "two") == "one|two"
    assert launcher.starts == ["w1"]


async def test_a_worker_that_refuses_for_another_reason_is_replaced(autojump_clock: MockClock) -> None:
    launcher = FullDisk()
    launcher.words = "no"
    async with make_pool(launcher) as pool:
        with pytest.raises(ProfileBroken):
            await say(pool, "s", "hello")
    assert len(launcher.starts) > 1
