"""Outputs too long for a model: kept for their own conversation, wherever it goes, and for no other one."""

from pathlib import Path
from typing import Any

import msgspec
import trio

from tests.agent.inprocess import Client, worker

LONG = 'TOOL:exec {"command": "seq 3000", "timeout": 20}'


def using(tool: str, **arguments: Any) -> str:
    return f"TOOL:{tool} {msgspec.json.encode(arguments).decode()} TELL"


async def saved_output(client: Client) -> Path:
    """The file with the full output of a call, as the model is told of it."""
    text = (await client.prompt(f"{LONG} TELL")).text
    return Path(text.partition("the full text is in ")[2].partition("]")[0])


async def test_outputs_follow_their_conversation_from_worker_to_worker(sessions: str) -> None:
    async with worker("--session-dir", sessions) as client:
        transcript = (await client.call("new_session"))["session_file"]
        path = await saved_output(client)
        assert path.parent == Path(f"{transcript}.tool-outputs").resolve()  # noqa: ASYNC240
        assert (path.parent.stat().st_mode & 0o777, path.read_text().count("\n")) == (0o700, 3000)
        await client.call("new_session")
        closed = [using("read", path=str(path)), using("ls", path=str(path.parent))]
        closed += [using("grep", path=str(path.parent), pattern="2999")]
        for prompt in closed:
            assert "where the outputs of a conversation are kept" in (await client.prompt(prompt)).text
    async with worker("--session-dir", sessions) as client:
        await client.call("switch_session", session_file=transcript)
        read = await client.prompt(using("read", path=str(path), offset=2999))
        assert read.text == "2999\n3000\n"


async def test_outputs_of_a_conversation_without_a_transcript_end_with_it(sessions: str) -> None:
    async with worker("--no-session", "--session-dir", sessions) as client:
        path = await saved_output(client)
        assert (await client.prompt(using("read", path=str(path), offset=3000))).text == "3000\n"
        await client.call("new_session")
        assert not path.parent.exists()
        path = await saved_output(client)
    assert not path.parent.exists()
    assert not await trio.Path(sessions).exists()
