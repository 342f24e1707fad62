"""The parts of a run that can be held by themselves: whose run it is, its clock, its calls, its output, its disk."""

import os
import socket
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.conversation import GroupCommit
from agent.model_call import PartialReply
from agent.models.base import CallPiece, TextPiece
from agent.output import WorkerOutput
from agent.pipes import PipeReader, PipeWriter
from agent.run_executor import RunClock
from agent.runs import ActiveRunTracker, AgentRun
from wire.entries import TextBlock, TranscriptMessage
from wire.messages import AssistantMessage


def test_a_run_that_was_replaced_cannot_end_its_successor(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    runs = ActiveRunTracker(lambda name, data: told.append((name, data)))
    first, second = AgentRun(run_id="1", text=""), AgentRun(run_id="2", text="")
    runs.set_active_run(first)
    first.abort()
    assert not runs.busy
    runs.set_active_run(second)
    runs.clear_active_run(first)
    assert (runs.active, runs.busy) == (second, True)
    assert capsys.readouterr().err == "agent: handle_mismatch: run 1 ended, the active run is 2\n"
    runs.clear_active_run(second)
    assert {name for name, _ in told} == {"state_changed"}
    assert [(data["state"], data["reason"], data["run_id"]) for _, data in told] == [
        *(("processing", "run_started", "1"), ("processing", "run_replaced", "2"), ("idle", "run_completed", "2"))
    ]
    runs.clear_active_run(second)
    assert len(told) == 3


async def test_a_clock_that_stands_still_does_not_run_out(autojump_clock: trio.testing.MockClock) -> None:
    scope = trio.CancelScope()
    clock = RunClock(scope, 10)
    with scope:
        clock.resume()
        await trio.sleep(6)
        clock.pause()
        clock.pause()
        await trio.sleep(1_000)
        clock.resume()
        clock.resume()
        await trio.sleep(3)
        assert trio.current_time() == 1_009
        await trio.sleep(60)
    assert scope.cancelled_caught
    assert trio.current_time() == 1_010


def test_every_call_gets_an_id_that_no_other_call_has_and_those_of_a_broken_answer_are_left_out() -> None:
    replies = [PartialReply(WorkerOutput(), "r1", lambda _usage: None) for _ in range(2)]
    for reply in replies:
        reply.feed(TextPiece(["I will "]))
        for _ in range(3):
            reply.feed(CallPiece("exec", {}))
        reply.feed(TextPiece(["run it"]))
    assert len({call.id for reply in replies for call in reply.message().calls}) == 6
    kept = replies[0].partial_message("aborted")
    assert kept == TranscriptMessage("assistant", [TextBlock("I will run it")], stop_reason="aborted")


class Disk:
    """Writes count up; a commit takes a second, and what was written before it began is safe after it."""

    def __init__(self) -> None:
        self.written = 0
        self.safe = 0
        self.commits = 0
        self.broken = False

    def commit(self, end: Callable[[Exception | None], None]) -> None:
        self.commits += 1
        trio.lowlevel.current_trio_token().run_sync_soon(trio.lowlevel.spawn_system_task, self.work, end, self.written)

    async def work(self, end: Callable[[Exception | None], None], reached: int) -> None:
        await trio.sleep(1)
        if not self.broken:
            self.safe = reached
        end(OSError("the disk is broken") if self.broken else None)

    async def write_after(self, delays: list[float]) -> None:
        """Writers that come after these delays and wait; whoever goes on finds what it has written safe."""
        group = GroupCommit(self.commit)

        async def work(delay: float) -> None:
            await trio.sleep(delay)
            self.written += 1
            group.mark_written()
            number = self.written
            if self.broken:
                with pytest.raises(OSError, match="broken"):
                    await group.wait()
            else:
                await group.wait()
                assert self.safe >= number

        async with trio.open_nursery() as nursery:
            for delay in delays:
                nursery.start_soon(work, delay)
        self.broken = False
        self.written += 1
        group.mark_written()
        group.begin()
        await group.wait()
        assert self.safe == self.written


@pytest.mark.parametrize(
    ("delays", "broken", "commits"), [([0] * 10, False, 1), ([0, 0.3, 0.6, 0.9], False, 2), ([0] * 3, True, 1)]
)
async def test_waits_for_the_disk_that_happen_together_are_one_and_all_hear_of_its_failure(
    autojump_clock: trio.testing.MockClock, delays: list[float], *, broken: bool, commits: int
) -> None:
    autojump_clock.autojump_threshold = 0.001  # a commit begins before the loop waits
    disk = Disk()
    disk.broken = broken
    await disk.write_after(delays)
    assert (disk.commits, trio.current_time()) == (commits + 1, commits + 1)


async def test_what_is_closed_costs_the_loop_nothing_more() -> None:
    disk = Disk()
    group = GroupCommit(disk.commit)
    group.close()
    group.mark_written()
    group.begin()
    group.close()
    await trio.testing.wait_all_tasks_blocked()
    assert disk.commits == 0
    disk.broken = True  # as a file is that is closed
    with pytest.raises(OSError, match="broken"):
        await group.wait()


async def test_what_is_closed_while_it_is_waited_for_leaves_the_loop_after_that(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = Disk()
    group = GroupCommit(disk.commit)
    async with trio.open_nursery() as nursery:
        group.mark_written()
        nursery.start_soon(group.wait)
        await trio.testing.wait_all_tasks_blocked()
        group.close()
    assert disk.commits == 1
    with pytest.raises(KeyError):  # as trio says of one that is not there
        trio.lowlevel.remove_instrument(group.hook)


@given(st.lists(st.floats(0, 5), max_size=8))
@settings(max_examples=40, deadline=None)
def test_whenever_one_writes_nobody_goes_on_before_it_is_safe(delays: list[float]) -> None:
    trio.run(Disk().write_after, delays, clock=trio.testing.MockClock(autojump_threshold=0.001))


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=20),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
)
def test_pieces_are_the_bytes_of_their_struct(parts: list[str], run_id: str) -> None:
    output = WorkerOutput()
    output.continue_above(41)
    output.continue_above(3)  # they never fall back
    output.emit_pieces("assistant_message", parts, run_id)
    data = [{"partial": part, "run_id": run_id, "seq": seq} for seq, part in enumerate(parts, 42)]
    lines = [msgspec.json.encode({"event": "assistant_message", "data": each}) + b"\n" for each in data]
    assert b"".join(output._blocks) == b"".join(lines)
    assert [msgspec.convert(each, AssistantMessage).partial for each in data] == parts
    assert output.next_seq() == 42 + len(parts)


async def test_room_comes_when_the_reader_reads(nursery: trio.Nursery) -> None:
    output = WorkerOutput()
    sender, receiver = trio.testing.lockstep_stream_one_way_pair()
    nursery.start_soon(output.run, sender)
    output.write_raw(b"x" * 1000)
    output.respond(None, {"never": "said"})
    await trio.testing.wait_all_tasks_blocked()
    with trio.move_on_after(0) as scope:
        await output.wait_below(1000)
    assert (scope.cancelled_caught, output.pending_bytes) == (True, 1000)
    assert len(await receiver.receive_some(1000)) == 1000
    await output.wait_below(1000)
    await output.flush()
    nursery.cancel_scope.cancel()


async def test_nobody_waits_for_a_reader_that_is_gone() -> None:
    output = WorkerOutput()
    sender, receiver = trio.testing.memory_stream_one_way_pair()
    await receiver.aclose()
    output.write_raw(b"x" * 1000)
    with pytest.raises(trio.BrokenResourceError):
        await output.run(sender)
    output.write_raw(b"more")
    with trio.fail_after(1):
        await output.flush()
    assert output.pending_bytes == 0


async def test_what_tasks_emit_before_the_loop_waits_is_one_write(nursery: trio.Nursery) -> None:
    output = WorkerOutput()
    # a read returns what one write has brought
    reader, writer = (end.detach() for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))

    async def emit(line: bytes) -> None:
        output.write_raw(line)

    async with PipeWriter(writer) as pipe, PipeReader(reader) as far_end:
        nursery.start_soon(output.run, pipe)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            nursery.start_soon(emit, b"line\n")
        assert await far_end.receive_some() == b"line\n" * 3
        nursery.cancel_scope.cancel()


async def test_a_loop_that_never_waits_writes_all_the_same(nursery: trio.Nursery) -> None:
    output = WorkerOutput()
    reader, writer = os.pipe()
    async with PipeWriter(writer) as pipe, PipeReader(reader):
        nursery.start_soon(output.run, pipe)
        await trio.testing.wait_all_tasks_blocked()
        output.write_raw(b"said\n")
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        assert output.pending_bytes == 0
        nursery.cancel_scope.cancel()


async def test_what_a_pipe_has_no_room_for_follows_in_order(nursery: trio.Nursery) -> None:
    output = WorkerOutput()
    reader, writer = os.pipe()
    lines = [b"%d\n" % number * 1000 for number in range(200)]
    got = bytearray()

    async def produce() -> None:
        for line in lines:
            output.write_raw(line)
            await output.wait_below(5000)
        await output.flush()

    async def write(pipe: PipeWriter) -> None:
        with pytest.raises(trio.BrokenResourceError):
            await output.run(pipe)

    async with PipeWriter(writer) as pipe, PipeReader(reader) as far_end:
        nursery.start_soon(write, pipe)
        nursery.start_soon(produce)
        await trio.testing.wait_all_tasks_blocked()
        assert output.pending_bytes >= 5000
        while len(got) < len(b"".join(lines)):
            got += await far_end.receive_some()
        await output.flush()
        assert got == b"".join(lines)
        await far_end.aclose()
        output.write_raw(b"more")
        with trio.fail_after(1):
            await output.flush()  # nothing is waited for that is never read
    assert output.pending_bytes == 0
