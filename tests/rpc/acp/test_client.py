"""An ACP agent behind the client of a worker: what the layers above do with it."""

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from errors import ProtocolViolation, WorkerRefused, WorkerStartFailed
from rpc.acp import make
from rpc.acp.options import AcpOptions
from rpc.client import RpcClient
from rpc.journal import JournalWriter
from rpc.settings import RpcSettings
from rpc.turn import RpcTurn
from tests.rpc.acp.agent import CWD, INITIALIZED, JOURNALS, piece, user_message
from tests.rpc.clients import AskingClient, running
from tests.rpc.memory_transport import MemoryTransport
from wire.entries import MessageEntry
from wire.messages import PromptParams, SessionResult
from wire.transcript import read_entries


class MemoryAgent:
    """The agent's side of a memory transport."""

    def __init__(self, journals: str = JOURNALS) -> None:
        self.worker = MemoryTransport()
        self.dialect = make(RpcSettings(), acp=AcpOptions(cwd=CWD, journal_dir=journals))

    async def read(self, method: str) -> dict[str, Any]:
        """The next line that the client writes."""
        line = await self.worker.next_request()
        assert line["method"] == method
        return line

    def say(self, *lines: dict[str, Any]) -> None:
        """Lines of the agent."""
        self.worker.say(*lines)

    async def answer(self, method: str, result: Any) -> None:
        """Answer the next line, which is of that method."""
        line = await self.read(method)
        self.say({"jsonrpc": "2.0", "id": line["id"], "result": result})

    async def start(self) -> None:
        """Become ready."""
        await self.answer("initialize", INITIALIZED)
        await self.answer("session/new", {"sessionId": "s1"})
        await self.answer("_pool/ping", {})


@pytest.fixture
def agent() -> MemoryAgent:
    """Not started."""
    return MemoryAgent()


async def test_a_turn_through_the_client(agent: MemoryAgent) -> None:
    async with running(agent.worker, dialect=agent.dialect) as client:
        await agent.start()
        assert (await client.wait_ready(5)).agent == "demo"
        session = await client.request_as(SessionResult, "new_session")
        assert session == SessionResult("s1", f"{JOURNALS}/s1.jsonl")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_answer_one_prompt, agent)
            async with RpcTurn(client, PromptParams(text="hi")) as turn:
                events = [message.event async for message in turn]
        assert events == ["run_start", "assistant_message", "done"]
        assert turn.result.text == "hello"
        assert not client.is_running


async def _answer_one_prompt(agent: MemoryAgent) -> None:
    line = await agent.read("session/prompt")
    agent.say(piece("hel"), piece("lo"), {"jsonrpc": "2.0", "id": line["id"], "result": {"stopReason": "end_turn"}})


@pytest.mark.parametrize("reads", [True, False])
async def test_a_prompt_stands_in_the_transcript_only_where_it_may_have_been_read(
    tmp_path: Path, *, reads: bool
) -> None:
    """What was not sent is given to another worker, which records it, too."""
    agent = MemoryAgent(str(tmp_path))
    writer = JournalWriter()
    dialect = agent.dialect
    async with trio.open_nursery() as nursery:
        client = AskingClient(agent.worker, dialect, RpcSettings(), name="w1", journal=writer.append)
        client.nursery = nursery
        await nursery.start(client.run)
        await agent.start()
        session = await client.request_as(SessionResult, "new_session")
        assert session.session_file is not None
        first = client.ask("prompt", params={"text": "first"})
        await _answer_one_prompt(agent)
        await first.answer()
        if not reads:
            agent.worker.close_input()
        prompt = client.ask("prompt", params={"text": "second"})
        await trio.testing.wait_all_tasks_blocked()
        agent.worker.exit(signal=9)
        assert (await prompt.error()).details["sent"] is reads
        writer.close()
        said = [entry.message.text for entry in read_entries(session.session_file) if isinstance(entry, MessageEntry)]
        assert said == ["first", "hello", *(["second"] if reads else [])]


async def test_an_agent_that_cannot_work_fails_its_start(agent: MemoryAgent) -> None:
    async with running(agent.worker, dialect=agent.dialect) as client:
        await agent.answer("initialize", {"protocolVersion": 2})
        with pytest.raises(WorkerStartFailed, match="version 2 of the Agent Client Protocol"):
            await client.wait_ready(5)


async def test_a_foreign_conversation_ends_the_worker(agent: MemoryAgent) -> None:
    async with running(agent.worker, dialect=agent.dialect) as client:
        await agent.start()
        switch = client.ask("switch_session", params=_switch())
        await agent.answer("session/close", {})
        agent.say(user_message("of another one"))
        await agent.answer("session/load", {})
        assert isinstance(await switch.error(), ProtocolViolation)
        assert isinstance(await client.wait_ended(), ProtocolViolation)


async def test_a_late_load_is_refused_and_the_worker_lives(agent: MemoryAgent, autojump_clock: trio.abc.Clock) -> None:
    async with running(agent.worker, dialect=agent.dialect) as client:
        await agent.start()
        switch = client.ask("switch_session", params=_switch(), timeout=None)
        await agent.answer("session/close", {})
        await agent.read("session/load")
        error = await switch.error()
        assert isinstance(error, WorkerRefused)
        assert error.details["worker_code"] == "timeout"
        assert _is_alive(client)


def _is_alive(client: RpcClient) -> bool:
    return client.end_error is None


def _switch() -> dict[str, Any]:
    facts = {"agent_session": "old", "cwd": CWD, "turns": 1, "last_user_text": "mine", "tail": "user:mine"}
    return {"session_file": f"{JOURNALS}/old.jsonl", "journal": facts}
