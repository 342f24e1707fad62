"""A worker behind a link, without one: what is handed on, when, and what a node may not say."""

import errno
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from cluster.frames import CHUNK_BYTES, Frame, FrameDecoder, FrameKind, Limits, LinkViolation
from cluster.link import WINDOW_BYTES, Link
from cluster.messages import (
    Credit,
    EndWorker,
    Exit,
    Fetch,
    FilePart,
    Follow,
    Has,
    Piece,
    Started,
    decode_message,
    message_frame,
)
from cluster.transport import RemoteProcess
from errors import WorkerError, WorkerExited, unwrap_exception_groups
from rpc.host import WorkerPlan
from rpc.settings import RpcSettings
from rpc.stderr_log import LineLog
from rpc.transport import ExitStatus

ALL: Limits = dict.fromkeys(FrameKind, 1 << 20)
PLAN = WorkerPlan(worker_id="w1", agent="main", argv=("agent",), cwd="/", secrets=("canary-secret",))


class SentFrames(Link):
    """A link that keeps what is sent."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._decoder = FrameDecoder(ALL)
        self._wire = self  # type: ignore[assignment]

    def send(self, kind: FrameKind, channel: int, payload: bytes = b"") -> None:
        self._frames.append(Frame(kind, channel, payload))

    def send_message(self, kind: FrameKind, message: msgspec.Struct, channel: int = 0) -> None:
        self._frames += self._decoder.feed(message_frame(kind, channel, message))

    reply = send_message

    def taken(self, kind: FrameKind) -> Iterator[Frame]:
        found = [frame for frame in self._frames if frame.kind is kind]
        self._frames = [frame for frame in self._frames if frame.kind is not kind]
        return iter(found)


class FarWorker:
    """A worker on the node ``n``, whose side of the link is the test's."""

    def __init__(self, directory: Path) -> None:
        self.link = SentFrames()
        self.sessions = directory / "sessions"
        (self.sessions / "main").mkdir(parents=True)
        self.transcript = str(self.sessions / "main" / "t.jsonl")
        self.process = RemoteProcess(
            self.link, 1, PLAN, RpcSettings(), node="n", sessions=self.sessions, log=LineLog(None, 1 << 20)
        )

    def says(self, kind: FrameKind, said: msgspec.Struct | bytes) -> None:
        payload = said if isinstance(said, bytes) else msgspec.msgpack.encode(said)
        self.process.on_frame(Frame(kind, 1, payload))

    def floods(self) -> None:
        """Ten times what it has credit for."""
        for _ in range(10 * WINDOW_BYTES // CHUNK_BYTES):
            self.says(FrameKind.OUT, bytes(CHUNK_BYTES))

    async def keep(self) -> int:
        """Let it have a transcript; the number of its pieces."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.process.keep, self.transcript)
            while not (asked := list(self.link.taken(FrameKind.FOLLOW))):
                await trio.lowlevel.checkpoint()
            number = decode_message(asked[0].payload, Follow).number
            self.says(FrameKind.HAS, Has(number=number))
        return number

    async def fetch(self, answer: Callable[[int], Iterable[FilePart]], limit: int = 10) -> bytes:
        """Ask for a file and let the node say ``answer``, given the request's number."""
        found: list[bytes | OSError] = []

        async def ask() -> None:
            try:
                found.append(await self.process.fetch("a.txt", limit))
            except OSError as exc:
                found.append(exc)

        with unwrap_exception_groups():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                while not (asked := list(self.link.taken(FrameKind.FETCH))):
                    await trio.lowlevel.checkpoint()
                for part in answer(decode_message(asked[0].payload, Fetch).number):
                    self.says(FrameKind.FILE, part)
        if isinstance(found[0], OSError):
            raise found[0]
        return found[0]

    async def output(self) -> bytes:
        await self.process.wait_readable()
        return self.process.receive_nowait() or b""


@asynccontextmanager
async def far_worker(directory: Path) -> AsyncGenerator[FarWorker, None]:
    async with trio.open_nursery() as nursery:
        worker = FarWorker(directory)
        nursery.start_soon(worker.process.run)
        worker.says(FrameKind.STARTED, Started(77))
        yield worker
        nursery.cancel_scope.cancel()


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
