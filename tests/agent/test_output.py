"""Output: the fast path says the same bytes as the plain one, and nobody is made to wait without need."""

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from agent.output import WorkerOutput
from wire.messages import AssistantMessage


def said_by(output: WorkerOutput) -> bytes:
    return b"".join(output._blocks)


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=20),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
)
def test_pieces_are_the_bytes_of_their_struct(parts: list[str], run_id: str) -> None:
    output = WorkerOutput()
    output.continue_above(41)
    output.emit_pieces("assistant_message", parts, run_id)
    plain = [
        msgspec.json.encode({"event": "assistant_message", "data": {"partial": part, "run_id": run_id, "seq": seq}})
        for seq, part in enumerate(parts, 42)
    ]
    assert said_by(output) == b"".join(line + b"\n" for line in plain)
    for line, part in zip(plain, parts, strict=True):
        assert msgspec.convert(msgspec.json.decode(line)["data"], AssistantMessage).partial == part
    assert output.next_seq() == 42 + len(parts)


def test_seqs_never_fall_back() -> None:
    output = WorkerOutput()
    output.continue_above(10)
    output.continue_above(3)
    assert output.emit("done", {})["data"]["seq"] == 11


async def test_room_comes_when_the_reader_reads(nursery: trio.Nursery) -> None:
    output = WorkerOutput()
    sender, receiver = trio.testing.lockstep_stream_one_way_pair()
    nursery.start_soon(output.run, sender)
    output.write_raw(b"x" * 1000)
    output.respond(None, {"never": "said"})
    await trio.testing.wait_all_tasks_blocked()
    with trio.move_on_after(0) as scope:
        await output.wait_below(1000)
    assert scope.cancelled_caught
    assert output.pending_bytes == 1000
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
