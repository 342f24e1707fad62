"""A worker that is killed at any step to the disk: what it did is known, done once, and the conversation goes on."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.agent.inprocess import Client, worker
from tests.house import ROOT
from wire.transcript import read_entries

pytestmark = pytest.mark.process

PROMPT = (
    'PARALLEL TOOL:exec {"command":"echo a >> log"} TOOL:exec {"command":"echo b >> log"} '
    'TOOL:todo {"todos":[{"id":"1","text":"x"}]} TOOL:nothing {}'
)


async def new_session(sessions: str) -> str:
    async with worker("--session-dir", sessions) as client:
        path: str = (await client.call("new_session"))["session_file"]
    return path


def die(path: str, step: int, how: str) -> bytes | None:
    """Run the prompt; what the worker said until it died, None when it lived to the end. Blocks: nothing else runs."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.agent.dying_agent", "--mode", "rpc", "--no-hooks", "--session", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "DIE_AT": str(step), "DIE_HOW": how},
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(
            msgspec.json.encode({"id": "prompt", "method": "prompt", "params": {"text": PROMPT}}) + b"\n"
        )
        process.stdin.flush()
        said = b""
        while b'{"id":"prompt"' not in said and (line := process.stdout.readline()):
            said += line
        process.stdin.close()
        code = process.wait()
    assert code in {0, -signal.SIGKILL}
    return said if code else None


async def check_whole(client: Client, path: str, said: bytes) -> None:
    messages = (await client.call("get_messages"))["messages"]
    blocks = [block for message in messages for block in message["content"]]
    called = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"] == called
    assert len(set(called)) == len(called)
    seqs = [entry.seq for entry in read_entries(path)]
    assert seqs == sorted(set(seqs))
    if b'{"id":"prompt"' in said:  # what was acknowledged is there
        assert messages[0]["content"][0]["text"] == PROMPT
        assert messages[3]["role"] == "assistant"


@pytest.mark.parametrize("how", ["before", "after", "torn"])
async def test_killed_at_any_step_to_the_disk_nothing_runs_twice_and_every_call_has_one_result(
    how: str, sessions: str, workspace: Path
) -> None:
    step = 0
    log = workspace / "log"
    while True:
        step += 1
        log.write_text("")
        path = await new_session(sessions)
        said = die(path, step, how)
        if said is None:
            break
        before = Counter(log.read_text().split())
        async with worker("--session", path) as client:
            assert (await client.prompt("RECALL")).stop_reason == "stop"
            await check_whole(client, path, said)
            results = [
                block["content"]
                for message in (await client.call("get_messages"))["messages"]
                for block in message["content"]
                if block["type"] == "tool_result"
            ]
        assert Counter(log.read_text().split()) == before
        assert max(before.values(), default=1) == 1
        assert all("_autoSealed" in result for result in results if result.get("error_type") == "aborted")
        for name, result in zip("ab", results, strict=False):
            if result["ok"] or "had not begun" in result["error"]:  # what the model is told is true
                assert before[name] == int(result["ok"])
    assert step > 10
