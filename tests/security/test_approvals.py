"""Approval cannot be walked around: real workers, whose tools are told to replace what holds them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.conformance.processes import agent, tool
from tests.agent.conformance.test_people import asked

pytestmark = pytest.mark.process

GATED = ("--no-session", "--require-approval", "exec")


async def test_s58_input_for_a_command_that_was_approved_is_asked_about_as_another_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with agent(*GATED) as client:
        prompt, call = await asked(client, tool("exec", command="sh", background=True))
        await client.call("decide", call_id=call, decision="allow")
        await client.answer(prompt)
        name = (await client.results())[0]["details"]["session_id"]
        word = tool("process", action="submit", session_id=name, data="echo x > made")
        prompt = await client.send("prompt", text=word)
        why = "it is input for a command, and exec is on the list of tools that need approval"
        question = await client.event("permission_required", reason=why)
        await client.call("decide", call_id=question["call"]["id"], decision="deny")
        await client.answer(prompt)
        await client.prompt(tool("process", action="kill", session_id=name))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("way", ["hooks.py", "link.py"])
def test_s58_a_worker_whose_hooks_its_tools_could_replace_does_not_start(way: str, tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("")
    work = tmp_path / "work"
    work.mkdir()
    (work / "hooks.py").write_text("open('ran', 'w').close()")
    (work / "link.py").symlink_to("../outside.py")
    command = [sys.executable, "-P", "-m", "agent", "--mode", "rpc", "--require-approval", "exec", "--hooks", way]
    started = subprocess.run(command, cwd=work, input=b"", capture_output=True, check=False, timeout=60)
    assert started.returncode == 1
    assert b"where write and edit could replace them" in started.stderr
    assert not (work / "ran").exists()
