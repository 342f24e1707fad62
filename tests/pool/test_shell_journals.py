"""What the shell does for programs whose conversations this pool records: resets, their news, their retirement."""

from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
import trio
from trio.testing import MockClock

from errors import PoolError, ProfileBroken, ProtocolViolation, ResumeFailed
from pool.agent_records import AgentRecords
from pool.agent_report import AgentReport
from pool.local_worker import LocalWorker
from pool.plan import _acp_options
from profiles import DIALECTS, CapabilityProfile
from rpc.acp.options import JournalFacts
from rpc.dialect import ConversationFacts, JournalWrite
from rpc.journal import JournalWriter
from rpc.native import NativeDialect
from tests.pool.memory_workers import DEFAULT, MemoryLauncher, MemoryWorker, make_pool, plain_profile, say
from tests.rpc.clients import running
from tests.rpc.memory_transport import MemoryProcess
from wire.entries import SessionHeader, TextBlock, TranscriptMessage
from wire.messages import ContextSize, Ready
from wire.transcript import TranscriptWriter, read_entries

ACP = plain_profile(dialect="acp")


class SlowWorker(MemoryWorker):
    """Takes 60 s to go on with a conversation, and says how it did."""

    async def resume_params(self, transcript: str, *, honest: bool) -> dict[str, Any]:
        await trio.sleep(60)
        return await super().resume_params(transcript, honest=honest)

    def switch_session(self, request: dict[str, Any]) -> dict[str, Any]:
        return {**super().switch_session(request), "strategy": "refed", "cause": "error", "error": "gone"}


class RetiringDialect(NativeDialect):
    retire_reason: str | None = None  # type: ignore[assignment]  # that of the native dialect never has one
    has_lost_conversation: bool = False


class RetiringWorker(MemoryWorker):
    """One that should serve no further conversation once it was sent ``enough``."""

    def __init__(self, name: str, launcher: MemoryLauncher, profile: CapabilityProfile) -> None:
        super().__init__(name, launcher, profile)
        self.client.dialect = RetiringDialect()

    def prompt(self, request: dict[str, Any]) -> dict[str, Any] | None:
        if request["params"]["text"] == "enough":
            self.client.dialect.retire_reason = "it has had enough"  # type: ignore[misc]
        return super().prompt(request)


async def turn(launcher: MemoryLauncher, profile: CapabilityProfile, **options: Any) -> str:
    """Two sessions take one worker from each other; the answer of the third turn."""
    async with make_pool(launcher, max=1, reset_timeout=30, **options) as pool:
        said = ""
        for session, text in (("alice", "a1"), ("bob", "b1"), ("alice", "a2")):
            async with pool.lease(session, profile, timeout=500) as lease:
                said = (await lease.prompt(text).wait()).text
        return said


async def test_a_load_may_take_longer_than_a_reset_of_other_programs(autojump_clock: MockClock) -> None:
    assert DIALECTS["acp"].reset_seconds > 120, "a load alone may take as long"
    launcher = MemoryLauncher()
    launcher.kind = SlowWorker
    assert await turn(launcher, ACP) == "a1|a2"
    assert launcher.starts == ["w1"]
    other = MemoryLauncher()
    other.kind = SlowWorker
    with pytest.raises(PoolError, match="did not finish the reset within 30 s"):
        await turn(other, plain_profile())


async def test_how_a_conversation_goes_on_is_published(autojump_clock: MockClock) -> None:
    launcher, events = MemoryLauncher(), list[tuple[str, dict[str, Any]]]()
    launcher.kind = SlowWorker
    await turn(launcher, ACP, on_event=lambda event, data: events.append((event, data)))
    resumed = [data for event, data in events if event == "agent_resumed"]
    facts = {"strategy": "refed", "cause": "error", "error": "gone"}
    assert resumed == [{"session": "alice", "worker": "w1", **facts}]


async def test_a_worker_that_should_serve_no_further_conversation_is_replaced_after_its_turn(
    autojump_clock: MockClock,
) -> None:
    launcher = MemoryLauncher()
    launcher.kind = RetiringWorker
    async with make_pool(launcher, max=1) as pool:
        assert await say(pool, "alice", "a1") == "a1"
        assert await say(pool, "alice", "enough") == "a1|enough"
        assert await say(pool, "alice", "a2") == "a1|enough|a2"
    assert launcher.starts == ["w1", "w2"]


class ForgetfulWorker(MemoryWorker):
    """One that no longer has its conversation after the prompt ``lose``, and refuses its model then."""

    def __init__(self, name: str, launcher: MemoryLauncher, profile: CapabilityProfile) -> None:
        super().__init__(name, launcher, profile)
        self.client.dialect = RetiringDialect()

    def prompt(self, request: dict[str, Any]) -> dict[str, Any] | None:
        self.client.dialect.has_lost_conversation = request["params"]["text"] == "lose"  # type: ignore[misc]
        return super().prompt(request)


async def test_a_conversation_that_a_worker_has_lost_is_put_into_it_again(autojump_clock: MockClock) -> None:
    launcher, events = MemoryLauncher(), list[tuple[str, dict[str, Any]]]()
    launcher.kind = ForgetfulWorker
    async with make_pool(launcher, max=1, on_event=lambda event, data: events.append((event, data))) as pool:
        async with pool.lease("alice", DEFAULT) as first, pool.lease("alice", DEFAULT) as second:
            await first.prompt("lose").wait()
            await pool.release(first)
            assert pool.placement("alice").worker == "w1", "the other lease holds it"
            assert not second.is_released
        assert pool.placement("alice").worker is None
        assert await say(pool, "alice", "a2") == "lose|a2"
    assert launcher.starts == ["w1"]
    reasons = [data["reason"] for event, data in events if event == "session_parked"]
    assert reasons[0] == "lost"


class NamingWorker(MemoryWorker):
    """Each process gives its first conversation the same name, and any further one the name of that."""

    def new_session(self, _: dict[str, Any]) -> dict[str, Any]:
        self.file = "/t/first"
        self.launcher.transcripts.setdefault(self.file, [])
        return self.state()

    def state(self) -> dict[str, Any]:
        return {**super().state(), "message_count": 0}


@pytest.mark.parametrize("profile", [ACP, DEFAULT], ids=["acp", "native"])
async def test_an_agent_that_names_two_conversations_alike_serves_the_first_and_no_other(
    autojump_clock: MockClock, profile: CapabilityProfile
) -> None:
    launcher = MemoryLauncher()
    launcher.kind = NamingWorker

    async def ask(session: str) -> str:
        async with pool.lease(session, profile, timeout=5) as lease:
            return (await lease.prompt("hi").wait()).text

    async with make_pool(launcher, breaker_failures=1) as pool:
        await ask("alice")
        if profile is DEFAULT:  # such a worker is at fault itself
            with pytest.raises(ProfileBroken):
                await ask("bob")
            return
        for _ in range(3):
            with pytest.raises(ProtocolViolation, match="each must have an id of its own"):
                await ask("bob")
        assert await ask("alice") == "hi|hi"


class TalkativeDialect(NativeDialect):
    conversation_facts = ConversationFacts(("x" * 300,) * 20, "m" * 300, "ask", ContextSize(5, 10))  # type: ignore[assignment]


class TalkativeWorker(MemoryWorker):
    def __init__(self, name: str, launcher: MemoryLauncher, profile: CapabilityProfile) -> None:
        super().__init__(name, launcher, profile)
        self.client.dialect = TalkativeDialect()

    def switch_session(self, request: dict[str, Any]) -> dict[str, Any]:
        return {**super().switch_session(request), "strategy": "loaded"}


async def test_what_a_program_says_of_itself_is_reported_in_bounds_with_the_way_its_conversation_went_on(
    autojump_clock: MockClock,
) -> None:
    launcher, while_begun = MemoryLauncher(), list[AgentReport | None]()

    class WatchedWorker(TalkativeWorker):
        def new_session(self, request: dict[str, Any]) -> dict[str, Any]:
            while_begun.append(pool.report_of("carol"))
            return super().new_session(request)

    launcher.kind = WatchedWorker
    async with make_pool(launcher, max=1) as pool:
        for session in ("alice", "bob", "alice"):
            await say(pool, session, "hi")
        [worker] = pool.statistics().workers
        report = pool.report_of("alice")
        assert pool.report_of("bob") is None, "another has its worker"
        await say(pool, "carol", "hi")
        fresh = pool.report_of("carol")
    assert report is not None
    assert worker.report == report
    assert (report.strategy, report.mode, report.context) == ("loaded", "ask", ContextSize(5, 10))
    assert (report.model, report.options) == ("m" * 100, ("x" * 100,) * 16)
    assert fresh == while_begun[-1] == msgspec.structs.replace(report, strategy=None)


async def test_of_a_program_that_is_asked_for_its_conversation_nothing_is_reported(autojump_clock: MockClock) -> None:
    async with make_pool(MemoryLauncher(), max=1) as pool:
        await say(pool, "alice", "hi")
        [worker] = pool.statistics().workers
        assert worker.report is msgspec.UNSET


# --- what is tried before the first conversation ---


class TriedWorker(SlowWorker):
    """Claims to resume; answers the trial as ``answers`` says, the first one of them first."""

    answers: ClassVar[list[Any]] = []

    def __init__(self, name: str, launcher: MemoryLauncher, profile: CapabilityProfile) -> None:
        super().__init__(name, launcher, profile)
        self.said_when_ready = {"agent": "a", "version": "1", "capabilities": ["load", "resume"]}
        self.is_honest: list[bool] = []

    async def resume_params(self, transcript: str, *, honest: bool) -> dict[str, Any]:
        self.is_honest.append(honest)
        return {"session_file": transcript}

    def probe_resume(self, request: dict[str, Any]) -> dict[str, Any] | None:
        assert len(request["params"]["nonce"]) == 32
        answer: Any = self.answers.pop(0)
        if answer == "die":
            self.transport.exit(1)
        return answer if isinstance(answer, dict) else None


async def tried(answers: list[Any]) -> tuple[MemoryLauncher, AgentRecords, list[bool]]:
    """Two sessions take one worker from each other, of an agent that answers so; what the second worker was told."""
    launcher = MemoryLauncher()
    launcher.kind = type("Tried", (TriedWorker,), {"answers": answers})
    records = AgentRecords()
    async with make_pool(launcher, max=1, agent_records=records) as pool:
        for session, text in (("alice", "a1"), ("bob", "b1"), ("alice", "a2")):
            async with pool.lease(session, ACP, timeout=500) as lease:
                await lease.prompt(text).wait()
        (worker,) = launcher.live.values()
        assert isinstance(worker, TriedWorker)
        return launcher, records, worker.is_honest


@pytest.mark.parametrize("honest", [True, False])
async def test_a_new_worker_is_asked_for_what_it_cannot_have_before_it_serves(
    autojump_clock: MockClock, *, honest: bool
) -> None:
    launcher, records, was_told = await tried([{"honest": honest}])
    assert (launcher.starts, was_told) == (["w1"], [honest])
    assert records.is_honest("main", Ready(agent="a", version="1")) is honest


@pytest.mark.parametrize("end", ["die", "hang"])
async def test_one_that_gives_no_answer_is_replaced_by_one_that_is_not_asked(
    autojump_clock: MockClock, end: str
) -> None:
    launcher, records, was_told = await tried([end])
    assert (launcher.starts, was_told) == (["w1", "w2"], [False])
    found = records.find("main")
    assert found is not None
    assert found.honest == "unknown", "a death is no answer"


# --- what a resume is given -------------------------------------------------------------------------------------------


def local_worker(transport: MemoryProcess, client: Any, journal: JournalWriter | None) -> LocalWorker:
    dialect = "native" if journal is None else "acp"
    return LocalWorker("w1", transport, client, set(), dialect=dialect, journal=journal)


def begun(path: Path) -> JournalWriter:
    """A journal of one message, and its writer."""
    header = SessionHeader(version=1, id="s1", created="", cwd="/w", agent_session="S/1")
    writer = JournalWriter()
    assert writer.append([JournalWrite(str(path), header, TranscriptMessage("user", [TextBlock("hi")]))]) is None
    return writer


async def test_a_resume_is_given_the_facts_of_the_journal_and_its_numbers_go_on(tmp_path: Path) -> None:
    path, transport = tmp_path / "s1.jsonl", MemoryProcess()
    begun(path).close()
    journal = JournalWriter()
    async with running(transport) as client:
        worker = local_worker(transport, client, journal)
        assert await worker.prepare_resume(str(path))
        params = await worker.resume_params(str(path), honest=True)
    assert transport.transcripts == [str(path)], "it is brought to where the process runs"
    journal_facts = JournalFacts("S/1", "/w", 0, "hi", "user:\nhi")
    assert params == {"session_file": str(path), "journal": journal_facts, "honest": True}
    assert journal.append([JournalWrite(str(path), None, TranscriptMessage("assistant", []))]) is None
    assert [entry.seq for entry in read_entries(path)] == [1, 2]


async def test_a_worker_whose_node_has_no_such_transcript_is_not_asked_to_resume_it(tmp_path: Path) -> None:
    path, process = tmp_path / "s1.jsonl", MemoryProcess()
    begun(path).close()
    process.has_transcripts = False
    async with running(process) as client:
        assert not await local_worker(process, client, JournalWriter()).prepare_resume(str(path))


async def test_a_resume_of_a_program_with_transcripts_of_its_own_is_given_the_file_alone(tmp_path: Path) -> None:
    transport = MemoryProcess()
    async with running(transport) as client:
        worker = local_worker(transport, client, None)
        assert await worker.resume_params("/t/x", honest=False) == {"session_file": "/t/x"}


async def test_a_transcript_of_another_dialect_is_not_gone_on_with(tmp_path: Path) -> None:
    path, transport = tmp_path / "n.jsonl", MemoryProcess()
    TranscriptWriter.create(path, SessionHeader(version=1, id="n", created="2026-01-31T10:00:00Z", cwd="/")).close()
    before = path.read_bytes()
    async with running(transport) as client:
        worker = local_worker(transport, client, JournalWriter())
        with pytest.raises(ResumeFailed, match="of the native dialect, and the agent speaks acp"):
            await worker.prepare_resume(str(path))
        with pytest.raises(ResumeFailed, match="is no journal of an ACP agent"):
            await worker.resume_params(str(path), honest=False)
        with pytest.raises(ResumeFailed, match="there is no transcript"):
            await worker.resume_params(str(tmp_path / "none.jsonl"), honest=False)
    assert path.read_bytes() == before


async def test_what_the_profile_declares_reaches_the_dialect(tmp_path: Path) -> None:
    declared = {"permission_mode": '"readonly"', "preamble": '"Be brief."', "mcp_servers": '[{"name":"x"}]'}
    options = _acp_options(plain_profile(dialect="acp", agent="demo", declared=declared), tmp_path / "data")
    assert (options.permission_mode, options.instructions, options.cwd) == ("readonly", "Be brief.", "/")
    assert (options.mcp_servers, options.agent) == ([{"name": "x"}], "demo")
    assert options.journal_dir == str(tmp_path / "data" / "sessions" / "demo")
