"""The stderr of a worker at the front ends that are attached to its session."""

from pathlib import Path

from trio.testing import MockClock, wait_all_tasks_blocked

from tests.gateway.attachments.front_end import attached
from tests.gateway.world import open_world


async def test_a_front_end_reads_the_stderr_of_the_worker_while_that_has_its_session(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path, workers=1) as world, attached(world) as front:
        await front.prompt("hello")
        (worker,) = world.launcher.live.values()
        assert worker.stderr_listener is not None
        worker.stderr_listener(b"Warning: \xff\n")
        await wait_all_tasks_blocked()
        assert front.words == "Warning: \ufffd\n"
        async with attached(world, "bob") as other:
            await other.prompt("hello")
            assert list(world.launcher.live.values()) == [worker]
            worker.stderr_listener(b"to the next one\n")
            await wait_all_tasks_blocked()
            assert (front.words, other.words) == ("Warning: \ufffd\n", "to the next one\n")


async def test_of_a_flood_on_stderr_a_front_end_is_told_the_beginning_and_how_much_is_missing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world, attached(world) as front:
        await front.prompt("hello")
        (worker,) = world.launcher.live.values()
        assert worker.stderr_listener is not None
        worker.stderr_listener(b"x" * 20_000 + b"\n" + b"y" * 100 * 1024 + b"\n" + b"short\n" * 20_000)
        await wait_all_tasks_blocked()
        assert len(front.words) < 70_000
        longest, other, *short, missing = front.words.splitlines()
        assert (len(longest), len(other)) == (8_192, 8_192)
        assert missing == f"[{20_000 - len(short)} lines of the agent's stderr were left out]"
