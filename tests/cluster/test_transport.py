"""A worker behind a link, without one: what is handed on, when, and what a node may not say."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from cluster.frames import CHUNK_BYTES, Frame, FrameKind, LinkViolation
from cluster.link import WINDOW_BYTES
from cluster.messages import (
    Credit,
    EndWorker,
    Exit,
    FilePart,
    Follow,
    Has,
    Have,
    Piece,
    decode_message,
)
from cluster.node.devices import DeviceShare
from cluster.node.hosted import HostedWorker
from errors import ResumeFailed, WorkerError, WorkerExited
from rpc.host import WorkerHost
from rpc.transport import ExitStatus
from tests.cluster.far_workers import SentFrames, far_worker


async def test_output_is_handed_on_only_when_the_transcript_before_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_on: list[bytes | None] = []
    async with far_worker(tmp_path) as worker:
        number = await worker.keep()
        sync = os.fdatasync

        def watch(file: int) -> None:
            handed_on.append(worker.process.receive_nowait())
            sync(file)

        monkeypatch.setattr(os, "fdatasync", watch)
        worker.says(FrameKind.LOG, Piece(0, b"entry\n", number=number))
        worker.says(FrameKind.OUT, b"answer\n")
        worker.says(FrameKind.EXIT, Exit(0))
        assert not worker.process.has_ended()
        assert await worker.output() == b"answer\n"
        assert handed_on == [None]
        assert Path(worker.transcript).read_bytes() == b"entry\n"  # noqa: ASYNC240 - a test's
        assert await worker.process.wait_exit() == ExitStatus(0)


async def test_pieces_of_the_transcript_before_go_to_that_one(tmp_path: Path) -> None:
    async with far_worker(tmp_path) as worker:
        first = await worker.keep()
        older, worker.transcript = worker.transcript, worker.transcript.replace("t.jsonl", "u.jsonl")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.process.keep, worker.transcript)
            while not list(worker.link.taken(FrameKind.FOLLOW)):
                await trio.lowlevel.checkpoint()
            worker.says(FrameKind.LOG, Piece(0, b"old\n", number=first))
            worker.says(FrameKind.LOG, Piece(0, b"new\n", number=first + 1))
            worker.says(FrameKind.HAS, Has(number=first + 1))
        found = [Path(path).read_bytes() for path in (older, worker.transcript)]  # noqa: ASYNC240 - a test's
        assert found == [b"old\n", b"new\n"]


async def test_the_answer_to_what_was_given_up_answers_nothing_else(tmp_path: Path) -> None:
    async with far_worker(tmp_path) as worker:
        with trio.move_on_after(0):
            await worker.process.keep(worker.transcript)
        list(worker.link.taken(FrameKind.FOLLOW))
        kept = trio.Event()

        async def keep() -> None:
            await worker.process.keep(worker.transcript)
            kept.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep)
            while not (asked := list(worker.link.taken(FrameKind.FOLLOW))):
                await trio.lowlevel.checkpoint()
            number = decode_message(asked[0].payload, Follow).number
            worker.says(FrameKind.HAS, Has(number=number - 1, problem="of the one before"))
            await trio.testing.wait_all_tasks_blocked()
            assert not kept.is_set()
            worker.says(FrameKind.HAS, Has(number=number))


async def test_a_piece_of_no_transcript_ends_its_worker_and_shows_nothing_after_it(tmp_path: Path) -> None:
    async with far_worker(tmp_path) as worker:
        number = await worker.keep()
        worker.says(FrameKind.LOG, Piece(0, b"entry\n", number=number + 1))
        worker.says(FrameKind.OUT, b"answer\n")
        assert "was not asked for" in str(await worker.process.wait_exit())
        assert worker.process.receive_nowait() == b""


async def test_an_unread_flood_is_the_nodes_fault_beyond_its_credit(tmp_path: Path) -> None:
    async with far_worker(tmp_path) as worker:
        for _ in range(WINDOW_BYTES // CHUNK_BYTES):
            worker.says(FrameKind.OUT, bytes(CHUNK_BYTES))
        assert list(worker.link.taken(FrameKind.CREDIT)) == [], "nothing was read"
        for _ in range(WINDOW_BYTES // CHUNK_BYTES):
            assert len(await worker.output()) == CHUNK_BYTES
        credit = [decode_message(frame.payload, Credit).stream for frame in worker.link.taken(FrameKind.CREDIT)]
        assert sum(credit) == WINDOW_BYTES
        with pytest.raises(LinkViolation):
            worker.floods()


async def test_input_is_sent_as_far_as_there_is_credit(tmp_path: Path) -> None:
    async with far_worker(tmp_path) as worker:
        assert worker.process.send_nowait(bytes(WINDOW_BYTES + 5)) == WINDOW_BYTES
        assert worker.process.send_nowait(b"more") == 0
        worker.says(FrameKind.CREDIT, Credit(stream=3))
        await worker.process.wait_writable()
        assert worker.process.send_nowait(b"more") == 3
        sent = list(worker.link.taken(FrameKind.IN))
        assert max(len(frame.payload) for frame in sent) == CHUNK_BYTES


async def test_a_lost_node_ends_its_worker_at_once_and_its_stop_after_the_fence(tmp_path: Path) -> None:
    async with far_worker(tmp_path) as worker, trio.open_nursery() as nursery:
        stopped = trio.Event()

        async def stop() -> None:
            await worker.process.stop()
            stopped.set()

        worker.process.on_lost("its node n was lost: silent for 3 s")
        assert str(await worker.process.wait_exit()) == "ended (its node n was lost: silent for 3 s)"
        with pytest.raises(WorkerExited, match="its node n was lost"):
            worker.process.send_nowait(b"x")
        nursery.start_soon(stop)
        await trio.testing.wait_all_tasks_blocked()
        assert not stopped.is_set()
        worker.process.on_fenced()
        await stopped.wait()


async def test_a_transcript_elsewhere_is_not_kept_and_a_problem_of_the_node_is_told(tmp_path: Path) -> None:
    async with far_worker(tmp_path) as worker:
        with pytest.raises(WorkerError, match="does not lie below"):
            await worker.process.keep("/etc/passwd")
        (worker.sessions / "other").mkdir()
        with pytest.raises(WorkerError, match="does not lie below"):
            await worker.process.keep(str(worker.sessions / "other" / "t.jsonl"))
        async with trio.open_nursery() as nursery:

            async def refused() -> None:
                with pytest.raises(WorkerError, match="node n: no room"):
                    await worker.process.keep(worker.transcript)

            nursery.start_soon(refused)
            while not list(worker.link.taken(FrameKind.FOLLOW)):
                await trio.lowlevel.checkpoint()
            worker.says(FrameKind.HAS, Has(problem="no room", number=1))


async def test_a_transcript_is_kept_no_more_once_its_worker_is_given_up(tmp_path: Path) -> None:
    async with far_worker(tmp_path) as worker:
        pass
    before = {entry.name for entry in Path("/proc/self/fd").iterdir()}  # noqa: ASYNC240 - a test's
    with pytest.raises(WorkerError, match="no more"):
        await worker.process.keep(worker.transcript)
    assert {entry.name for entry in Path("/proc/self/fd").iterdir()} == before  # noqa: ASYNC240 - a test's


async def test_what_a_worker_writes_to_stderr_is_in_its_tail_without_its_secrets(tmp_path: Path) -> None:
    async with far_worker(tmp_path) as worker:
        worker.says(FrameKind.ERR, b"key canary-secret\n")
        assert worker.process.stderr_tail().startswith("key ")
        assert "canary-secret" not in worker.process.stderr_tail()


@pytest.mark.usefixtures("virtual_time")
async def test_a_disk_that_stays_full_ends_the_worker_and_hands_on_nothing_but_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def full(file: int) -> None:
        tries.append(file)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with far_worker(tmp_path) as worker:
        number = await worker.keep()
        monkeypatch.setattr(os, "fdatasync", full)
        worker.says(FrameKind.LOG, Piece(0, b"entry\n", number=number))
        worker.says(FrameKind.OUT, b"answer\n")
        assert "its transcript cannot be written: No space left" in str(await worker.process.wait_exit())
        assert len(tries) > 1
        assert [decode_message(frame.payload, EndWorker).force for frame in worker.link.taken(FrameKind.STOP)] == [True]
        worker.says(FrameKind.OUT, b"more\n")
        worker.says(FrameKind.EXIT, Exit(signal=9, is_gone=True))
        await worker.process.stop()
        assert worker.process.receive_nowait() == b""


async def test_a_file_of_the_workspace_comes_in_parts_and_those_of_a_request_given_up_are_dropped(
    tmp_path: Path,
) -> None:
    async with far_worker(tmp_path) as worker:
        with trio.move_on_after(0):
            await worker.process.fetch("hangs.txt", 10)
        list(worker.link.taken(FrameKind.FETCH))

        def parts(number: int) -> list[FilePart]:
            late = FilePart(number - 1, b"of the one before")
            return [late, FilePart(number, b"12", is_last=False), late, FilePart(number, b"345")]

        assert await worker.fetch(parts) == b"12345"
        credit = [decode_message(frame.payload, Credit).files for frame in worker.link.taken(FrameKind.CREDIT)]
        assert sum(credit) == 5 + 2 * len(b"of the one before")
        with pytest.raises(FileNotFoundError, match="No such file"):
            await worker.fetch(lambda number: [FilePart(number, errno=errno.ENOENT, problem="No such file")])


@pytest.mark.parametrize("path", ["a" * 4097, "\U0001f600" * 1025, "\ud800"])
async def test_a_path_that_its_node_would_not_take_is_not_sent(tmp_path: Path, path: str) -> None:
    async with far_worker(tmp_path) as worker:
        with pytest.raises(ValueError, match=r"at most 4096 bytes|surrogates"):
            await worker.process.fetch(path, 10)
        with pytest.raises(WorkerError, match=r"at most 4096 bytes|surrogates"):
            await worker.process.keep(str(worker.sessions / "main" / path))
        assert [*worker.link.taken(FrameKind.FETCH), *worker.link.taken(FrameKind.FOLLOW)] == []
        assert await worker.fetch(lambda number: [FilePart(number, b"12345")]) == b"12345"


@pytest.mark.parametrize(
    "answer",
    [
        lambda number: [FilePart(number, b"12345678901")],
        lambda number: [FilePart(number, b"1234567890", is_last=False), FilePart(number, b"1")],
        lambda number: [FilePart(number + 1, b"1")],
    ],
)
async def test_a_file_beyond_what_was_asked_for_is_a_violation(
    tmp_path: Path, answer: Callable[[int], list[FilePart]]
) -> None:
    async with far_worker(tmp_path) as worker:
        with pytest.raises(LinkViolation):
            await worker.fetch(answer)


async def test_a_file_that_is_asked_for_of_a_lost_node_does_not_come(tmp_path: Path) -> None:
    async with far_worker(tmp_path) as worker:

        def be_lost(_number: int) -> list[FilePart]:
            worker.process.on_lost("its node n was lost")
            return []

        with pytest.raises(WorkerExited, match="its node n was lost"):
            await worker.fetch(be_lost)
        with pytest.raises(WorkerExited):
            await worker.process.fetch("a.txt", 10)


async def test_a_node_that_cannot_write_a_transcript_ends_its_resume_and_is_sent_no_more(tmp_path: Path) -> None:
    async with far_worker(tmp_path) as worker, trio.open_nursery() as nursery:
        await trio.Path(worker.transcript).write_bytes(bytes(4 * WINDOW_BYTES))

        async def refused() -> None:
            with pytest.raises(ResumeFailed, match="node n: No space left"):
                await worker.process.prepare_resume(worker.transcript)

        nursery.start_soon(refused)
        while not list(worker.link.taken(FrameKind.HAVE)):
            await trio.lowlevel.checkpoint()
        worker.says(FrameKind.HAS, Has(number=1))
        sent = list[Frame]()
        while len(sent) < WINDOW_BYTES // CHUNK_BYTES:
            await trio.lowlevel.checkpoint()
            sent += worker.link.taken(FrameKind.PUT)
        worker.says(FrameKind.HAS, Has(problem="No space left", number=decode_message(sent[0].payload, Piece).number))
        worker.says(FrameKind.CREDIT, Credit(log=WINDOW_BYTES))
    assert len(list(worker.link.taken(FrameKind.PUT))) <= 1, "that which waited for credit"


async def test_a_node_answers_a_transcript_that_it_cannot_write_once_and_gives_credit_for_all_of_it(
    tmp_path: Path,
) -> None:
    link, host = SentFrames(), WorkerHost(data_dir=tmp_path, instance="i1")
    sessions = tmp_path / "sessions"
    (sessions / "main" / ".t.jsonl.put").mkdir(parents=True)  # in the place of its draft
    hosted = HostedWorker(1, link, host, sessions, DeviceShare(""))
    path, credit, answers = str(sessions / "main" / "t.jsonl"), 0, list[tuple[int, bool]]()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hosted._look_after_files)
            for kind, asked in (
                (FrameKind.HAVE, Have(path, 9, 1)),
                (FrameKind.PUT, Piece(0, b"one", is_whole=True, is_last=False, number=2)),
                (FrameKind.PUT, Piece(3, b"two", is_whole=True, is_last=False, number=2)),
                (FrameKind.PUT, Piece(6, b"six", is_whole=True, number=2)),
                (FrameKind.FOLLOW, Follow("", number=3)),
            ):
                hosted.handle(Frame(kind, 1, msgspec.msgpack.encode(asked)))
            while (3, False) not in answers:
                await trio.lowlevel.checkpoint()
                found = [decode_message(frame.payload, Has) for frame in link.taken(FrameKind.HAS)]
                answers += [(has.number, bool(has.problem)) for has in found]
                credit += sum(decode_message(frame.payload, Credit).log for frame in link.taken(FrameKind.CREDIT))
            nursery.cancel_scope.cancel()
    finally:
        host.close()
    assert (answers, credit) == ([(1, False), (2, True), (3, False)], 9)
