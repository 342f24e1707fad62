"""A worker that lies: about whose conversation it has, about calls, and about why it failed."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from errors import PoolError, ProtocolViolation, ResumeFailed, UsageError, WorkerRefused, WorkerStartFailed
from gateway.events.worker_events import READERS, PublishedEvent
from gateway.turns.approvals import PendingPermissions
from pool.local_worker import LocalWorker
from pool.stimuli import Reset
from pool.worker_interface import PoolWorker, load_conversation
from profiles import AgentSettings, ProfilesSettings, build_profile
from rpc.client import RpcClient
from rpc.dialect import Dialect, Step, make_dialect
from rpc.native import NativeDialect
from rpc.settings import RpcSettings
from rpc.stderr_log import LineLog
from rpc.transport import MAX_REASON_CHARS, NodeProcess
from rpc.turn import RpcTurn
from tests.doors.envelopes import event
from tests.pool.memory_workers import MemoryLauncher, MemoryWorker, make_pool, say
from tests.rpc.memory_transport import MemoryTransport
from tests.rpc.procs import running, spec_of
from wire.log_file import LogReader
from wire.redaction import SecretMask

KEY = "canary-key-0001"


class Thief(MemoryWorker):
    """Calls the first conversation that there is a new one of whomever it is to serve, and an empty one at that."""

    def new_session(self, request: dict[str, Any]) -> dict[str, Any]:
        if not self.launcher.transcripts:
            return super().new_session(request)
        self.file = "/t/0"
        return {**self.state(), "message_count": 0}

    def get_state(self, _: dict[str, Any]) -> dict[str, Any]:
        return {**self.state(), "message_count": 0}


class ThievesLauncher(MemoryLauncher):
    kind = Thief


async def test_s50_no_worker_can_call_another_sessions_conversation_a_new_one(autojump_clock: MockClock) -> None:
    launcher = ThievesLauncher()
    async with make_pool(launcher, max=2) as pool:
        assert await say(pool, "alice", "mine") == "mine"
        with pytest.raises(PoolError, match="the conversation of another session"):
            await say(pool, "bob", "what did alice say?", timeout=5)
    assert launcher.transcripts == {"/t/0": ["mine"]}
    assert launcher.prompts == ["mine"]  # nobody has spoken in it meanwhile


def asks(call: str) -> PublishedEvent:
    return READERS["permission_required"](event("x", {"call": {"id": call, "name": "bash"}}).data)


def test_s52_a_worker_that_asks_without_end_leaves_room_for_the_questions_of_others() -> None:
    open_calls = PendingPermissions()
    for number in range(20_000):
        open_calls.observe("hostile", asks(f"c{number}"))
    open_calls.observe("honest", asks("c"))
    assert [call.id for call in open_calls.pending("honest")] == ["c"]
    assert open_calls.count == 257


def test_s59_a_decision_about_a_call_of_the_past_decides_none_of_another_session() -> None:
    calls = PendingPermissions()
    calls.observe("alice", asks("call_0"))
    calls.close_session("alice")
    calls.observe("bob", asks("call_0"))  # of an agent that numbers its calls
    with pytest.raises(UsageError, match="2 sessions have had a call 'call_0'; give the session too"):
        calls.session_of("call_0")
    assert calls.session_of("call_0", "bob") == "bob"


@asynccontextmanager
async def talking(worker: MemoryTransport, key: str = KEY, dialect: Dialect | None = None) -> AsyncIterator[RpcClient]:
    client = RpcClient(worker, dialect or NativeDialect(), RpcSettings(), name="w1", mask=SecretMask([key]))
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        yield client
        nursery.cancel_scope.cancel()


async def answer(worker: MemoryTransport, *bodies: dict[str, Any]) -> None:
    """Answer one request after the other."""
    for body in bodies:
        worker.say({"id": (await worker.next_request())["id"], **body})


async def test_s22_why_a_worker_never_became_ready_is_told_without_its_secrets(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    async with talking(worker) as client:
        worker.say({"event": "start_failed", "data": {"message": f"{KEY} is no key"}})
        with pytest.raises(WorkerStartFailed, match=r"\*\*\* is no key") as caught:
            await client.wait_ready(5)
    assert KEY not in repr((caught.value.message, caught.value.details))


@pytest.mark.parametrize(
    ("message", "told"), [("401 for {}", "401 for ***"), ("", "worker w1 refused get_state: ***_refused")]
)
async def test_s22_what_a_worker_refuses_is_told_without_its_secrets(
    autojump_clock: MockClock, nursery: trio.Nursery, message: str, told: str
) -> None:
    worker = MemoryTransport()
    error = {"code": f"{KEY}_refused", "message": message.format(KEY), "data": {"tried": [KEY, "others"]}}
    async with talking(worker) as client:
        nursery.start_soon(answer, worker, {"error": error})
        with pytest.raises(WorkerRefused) as caught:
            await client.request("get_state")
    assert caught.value.message == told
    assert caught.value.details["worker_code"] == "***_refused"
    assert caught.value.details["data"] == {"tried": ["***", "others"]}


@pytest.mark.parametrize("before", [0, 485, MAX_REASON_CHARS - 40, MAX_REASON_CHARS - 6])
async def test_s22_why_a_worker_refuses_has_an_end_and_no_part_of_a_secret(
    autojump_clock: MockClock, nursery: trio.Nursery, before: int
) -> None:
    why = "x" * before + KEY + "y" * 100_000
    for shown in (why, {"why": why}):
        pi = MemoryTransport()
        async with talking(pi, dialect=make_dialect("pi", settings=RpcSettings(), allow_bash=False)) as client:
            refusal = {"type": "response", "command": "get_state", "success": False, "error": shown}
            nursery.start_soon(answer, pi, refusal)
            with pytest.raises(WorkerStartFailed) as failed:
                await client.wait_ready(5)
        assert "canary" not in failed.value.message
        assert MAX_REASON_CHARS <= len(failed.value.message) < MAX_REASON_CHARS + 100
    worker = MemoryTransport()
    async with talking(worker) as client:
        nursery.start_soon(answer, worker, {"error": {"code": why, "message": why}})
        with pytest.raises(WorkerRefused) as refused:
            await client.request("get_state")
    for told in (refused.value.message, refused.value.details["worker_code"]):
        assert ("x" * before + "***" + "y" * MAX_REASON_CHARS).startswith(told)
        assert MAX_REASON_CHARS - len(KEY) < len(told) <= MAX_REASON_CHARS


async def test_s22_the_error_that_ends_a_turn_has_an_end_and_no_part_of_a_secret(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport()
    async with talking(worker) as client, RpcTurn(client, {"text": "go"}) as turn:
        nursery.start_soon(answer, worker, {"result": {"stop_reason": "error", "error": KEY + "y" * 100_000}})
        assert (await turn.wait()).error == "***" + "y" * (MAX_REASON_CHARS - len(KEY))


class Coloured(msgspec.Struct):
    colour: Literal["red"]


async def test_s22_an_answer_in_a_wrong_shape_is_told_without_its_secrets(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    worker = MemoryTransport()
    async with talking(worker) as client:
        nursery.start_soon(answer, worker, {"result": {"colour": f"{KEY} is no colour"}})
        with pytest.raises(ProtocolViolation, match=r"\*\*\* is no colour") as caught:
            await client.request_as(Coloured, "get_state")
    assert KEY not in caught.value.message


class Bewildered(NativeDialect):
    def receive(self, block: bytes, now: float) -> Step:  # noqa: ARG002 - the contract's
        raise ValueError(block)


async def test_s22_output_that_meets_a_fault_of_ours_is_told_without_secrets_and_has_an_end(
    autojump_clock: MockClock,
) -> None:
    worker = MemoryTransport()
    async with talking(worker, dialect=Bewildered()) as client:
        worker.print(f"no access with {KEY}".encode() + b"x" * 100_000 + b"\n")
        error = await client.wait_ended()
    assert "ValueError: b'no access with ***xxx" in error.message
    assert KEY not in error.message
    assert len(error.message) < MAX_REASON_CHARS + 100


class Holding:
    """A worker that may be asked to resume anything."""

    def __init__(self, client: RpcClient) -> None:
        self.client = client

    async def prepare_resume(self, _transcript: str) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    async def resume_params(self, transcript: str, *, honest: bool) -> dict[str, Any]:  # noqa: ARG002 - as in PoolWorker
        await trio.lowlevel.checkpoint()
        return {"session_file": transcript}


@pytest.mark.parametrize("wanted", [None, "/t/0"])
async def test_s22_the_conversation_that_a_worker_has_instead_is_told_without_its_secrets(
    autojump_clock: MockClock, nursery: trio.Nursery, wanted: str | None
) -> None:
    worker = MemoryTransport()
    held = {"result": {"session_id": f"id-{KEY}", "session_file": f"/t/{KEY}", "message_count": 3}}
    async with talking(worker) as client:
        nursery.start_soon(answer, worker, held, held)
        with pytest.raises((ProtocolViolation, ResumeFailed), match=r"holds (session id-|/t/)\*\*\*") as caught:
            await load_conversation(cast("PoolWorker", Holding(client)), Reset("w1", "s", wanted), lambda *_: False)
        nursery.cancel_scope.cancel()
    assert KEY not in repr((caught.value.message, caught.value.details))


@pytest.mark.parametrize("make", [lambda _: None, Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path)])
async def test_s22_a_transcript_that_cannot_be_resumed_is_named_without_secrets(
    autojump_clock: MockClock, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    transcript = tmp_path / KEY  # its name is a worker's word
    make(transcript)
    async with talking(MemoryTransport()) as client:
        worker = LocalWorker("w1", cast("NodeProcess", None), client, {str(transcript)}, dialect="native")
        with pytest.raises(ResumeFailed, match=r"/\*\*\*") as caught:
            await worker.prepare_resume(str(transcript))
    assert KEY not in caught.value.message


async def test_s22_what_is_no_message_is_shown_without_secrets(autojump_clock: MockClock) -> None:
    worker = MemoryTransport()
    async with talking(worker) as client:
        for _ in range(200):
            worker.print(f"export SOME_KEY={KEY}\n".encode())
        error = await client.wait_ended()
        assert client.invalid_lines.samples[-1] == b"export SOME_KEY=***"
    assert "SOME_KEY=***" in error.message


@pytest.mark.parametrize("key", [KEY, "canary" + "k" * 2000])
@pytest.mark.parametrize("end", [b"\n", b""], ids=["line", "torn line"])
async def test_s22_of_a_secret_that_is_cut_nothing_is_shown(autojump_clock: MockClock, key: str, end: bytes) -> None:
    worker = MemoryTransport()
    async with talking(worker, key) as client:
        worker.print(b"x" * 505 + key.encode() + end)
        await trio.testing.wait_all_tasks_blocked()
        worker.exit(code=0)
        await client.wait_ended()
        assert client.invalid_lines.samples == [b"x" * 505 + b"***"]


@pytest.mark.parametrize("key", ['canary"quoted', "canary\\folder", "canary-schlüssel"])
async def test_s22_a_secret_is_hidden_as_json_escapes_it(autojump_clock: MockClock, key: str) -> None:
    worker = MemoryTransport()
    async with talking(worker, key) as client:
        worker.say({"level": "error", "why": f"no access with {key}"})
        await trio.testing.wait_all_tasks_blocked()
        (shown,) = client.invalid_lines.samples
    assert msgspec.json.decode(shown) == {"level": "error", "why": "no access with ***"}


KEPT = 64 * 1024


@pytest.mark.process
@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (f"no access with {KEY}\n{KEY[:9]}\n", "no access with ***\ncanary-ke\n"),
        (f"{KEY}\n{'x' * (KEPT - 6)}\n", "x" * (KEPT - 6) + "\n"),
        (f"{'x' * KEPT}{KEY}{'y' * (KEPT - 6)}\n", "y" * (KEPT - 6) + "\n"),
    ],
    ids=["short", "does not begin inside a secret", "the end of a long line"],
)
async def test_s22_what_a_worker_writes_to_stderr_is_kept_without_its_secrets(
    tmp_path: Path, written: str, kept: str
) -> None:
    (tmp_path / "written").write_text(written)
    code = f"import sys; sys.stderr.write(open({str(tmp_path / 'written')!r}).read())"
    spec = msgspec.structs.replace(spec_of(code), log_path=tmp_path / "w1.log", secrets=(KEY,))
    async with running(spec) as process:
        await process.wait_exit()
        assert process.stderr_tail() == kept
    assert KEY not in (tmp_path / "w1.log").read_text()
    with LogReader(tmp_path, "w1") as reader:
        logged = "".join(f"{line.text}\n" for line in reader.last(100) if line.source == "stderr")
    assert len(written) > 100 or logged == kept


def test_s22_a_long_line_is_not_cut_inside_a_secret_on_its_way_to_the_log(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "w1.log", 10**6, mask=SecretMask([KEY]))
    for piece in ("x" * 65_530 + KEY[:6], KEY[6:] + "y" * 65_536, "\n"):
        log.feed(piece.encode())
    log.close()
    assert (tmp_path / "w1.log").read_text().replace("\n", "") == "x" * 65_530 + "***" + "y" * 65_536


@pytest.mark.parametrize("url", ["https://me:word@host/v1", "http://me@host", "https://:word@host:1/v1"])
def test_s15_an_address_with_a_password_never_becomes_an_argument(url: str, tmp_path: Path) -> None:
    settings = ProfilesSettings(agents={"main": AgentSettings(base_url=url)})
    with pytest.raises(UsageError, match="base_url") as caught:
        build_profile(settings, "main", "default", str(tmp_path))
    assert "word" not in caught.value.message.replace("password", "")


def test_s15_an_address_that_has_the_sign_elsewhere_may_be_one(tmp_path: Path) -> None:
    settings = ProfilesSettings(agents={"main": AgentSettings(base_url="https://host/team@place/v1")})
    assert "https://host/team@place/v1" in build_profile(settings, "main", "default", str(tmp_path)).hard_args
