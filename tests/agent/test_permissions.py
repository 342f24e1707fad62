"""Approvals and policies as the flags of a worker set them, and what its tools may not change or see."""

from pathlib import Path

import msgspec
import pytest
import trio

from agent.assembly import StartupError
from tests.agent.inprocess import asked, tool, worker
from wire.messages import PromptResult

EXEC = 'TOOL:exec {"command":"echo ran >> log"} TELL'
ASKED = ("--no-session", "--require-approval", "exec")


async def ran() -> int:
    return len((await trio.Path("log").read_text()).split()) if await trio.Path("log").exists() else 0


async def test_a_call_that_waited_when_its_worker_died_is_sealed_and_cannot_be_decided(sessions: str) -> None:
    async with worker("--session-dir", sessions, "--require-approval", "exec") as client:
        _, call_id = await asked(client, EXEC)
        path = (await client.call("get_state"))["session_file"]
        transcript = await trio.Path(path).read_bytes()
    await trio.Path(path).write_bytes(transcript)  # as it was when it was waiting
    async with worker("--session", path) as client:
        resumed = await client.event("agent_resumed")
        assert (resumed["strategy"], resumed["sealed"]) == ("seal", [call_id])
        assert await client.refused("decide", call_id=call_id, decision="allow") == "sealed"


async def test_the_time_of_a_person_does_not_count_as_the_runs(autojump_clock: trio.testing.MockClock) -> None:
    async with worker(*ASKED, "--timeout", "100") as client:
        client.patience = 100_000
        request, call_id = await asked(client, 'TOOL:exec {"command":"none"} HANG')
        await trio.sleep(5_000)
        await client.call("decide", call_id=call_id, decision="deny")
        result = msgspec.convert((await client.answer(request))["result"], PromptResult)
        assert result.stop_reason == "timeout"
        assert trio.current_time() == pytest.approx(5_100, abs=5)


@pytest.mark.parametrize(
    ("flags", "error_type"),
    [
        (("--permission-mode", "readonly"), "denied"),
        (("--deny-tools", "exec"), "denied"),
        (("--tools", "read,ls"), "validation"),
    ],
)
async def test_what_the_flags_forbid_does_not_run(flags: tuple[str, ...], error_type: str) -> None:
    async with worker("--no-session", *flags) as client:
        await client.prompt(EXEC)
        assert [result["error_type"] for result in await client.results()] == [error_type]
    assert await ran() == 0


async def refusal(*options: str) -> str:
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - nurseries may wrap it
        async with worker("--no-session", *options):
            pass
    found = raised.value
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, StartupError)
    return str(found)


@pytest.mark.parametrize(
    "options", [(), ("--require-approval", "exec"), ("--tools", "edit"), ("--deny-tools", "write,edit")]
)
async def test_hooks_in_the_working_directory_are_refused_while_a_tool_could_replace_them(
    options: tuple[str, ...], workspace: Path
) -> None:
    (workspace / "hooks.py").touch()
    said = await refusal("--hooks", "hooks.py", *options)
    assert "the hooks hooks.py lie in the working directory" in said
    assert "keep them elsewhere" in said


async def test_a_link_to_hooks_elsewhere_and_a_skill_of_the_whole_directory_are_refused_as_well(
    workspace: Path,
) -> None:
    (workspace.parent / "hooks.py").touch()
    (workspace / "link.py").symlink_to("../hooks.py")
    assert "could replace them" in await refusal("--hooks", "link.py")
    (workspace / "SKILL.md").write_text("---\nname: all\n---\n")
    assert "takes up the whole working directory" in await refusal("--skill", ".")


@pytest.mark.parametrize(
    "options",
    [("--permission-mode", "readonly"), ("--permission-mode", "approval"), ("--tools", "read"), ("--no-hooks",)],
)
async def test_hooks_that_no_tool_can_replace_unasked_may_lie_anywhere(
    options: tuple[str, ...], workspace: Path
) -> None:
    (workspace / "hooks.py").touch()
    async with worker("--no-session", "--hooks", "hooks.py", *options) as client:
        assert (await client.prompt("ECHO:fine")).text == "fine"


async def test_no_tool_writes_hooks_or_skills_wherever_they_lie(workspace: Path, tmp_path: Path) -> None:
    outside, skill = tmp_path / "hooks.py", workspace / "sewing"
    outside.write_text("# mine\n")
    skill.mkdir()
    (skill / "SKILL.md").write_text("---\nname: sewing\n---\n")
    (skill / "run.sh").write_text("echo mine\n")
    (workspace / "way").symlink_to("sewing")
    edits = [{"old_text": "mine", "new_text": "evil"}]
    calls = [
        tool("write", path=str(outside), content="evil"),
        tool("write", path=f"{tmp_path}/__pycache__/hooks.pyc", content="evil"),
        tool("edit", path=str(outside), edits=edits),
        tool("edit", path="sewing/run.sh", edits=edits),
        tool("write", path="way/run.sh", content="evil"),
        tool("write", path="sewing/new.sh", content="evil"),
    ]
    async with worker(*ASKED, "--hooks", str(outside), "--skill", "sewing", "--allow-outside") as client:
        await client.prompt(f"PARALLEL {' '.join(calls)}")
        results = await client.results()
        assert [result["error_type"] for result in results] == ["denied"] * len(calls)
        assert all("which its tools may not change" in result["error"] for result in results)
        await client.prompt('TOOL:write {"path": "seam.txt", "content": "fine"}')
    assert (workspace / "seam.txt").read_text() == "fine"
    assert (outside.read_text(), (skill / "run.sh").read_text()) == ("# mine\n", "echo mine\n")
    assert sorted(path.name for path in skill.iterdir()) == ["SKILL.md", "run.sh"]


async def saved_output(text: str) -> Path:
    """The file with the full output of a call, as the model is told of it."""
    return Path(text.partition("the full text is in ")[2].partition("]")[0])


async def test_outputs_follow_their_conversation_from_worker_to_worker(sessions: str) -> None:
    long = tool("exec", command="seq 3000", timeout=20) + " TELL"
    async with worker("--session-dir", sessions) as client:
        transcript = (await client.call("new_session"))["session_file"]
        path = await saved_output((await client.prompt(long)).text)
        assert path.parent == Path(f"{transcript}.tool-outputs").resolve()  # noqa: ASYNC240
        assert (path.parent.stat().st_mode & 0o777, path.read_text().count("\n")) == (0o700, 3000)
        await client.call("new_session")
        closed = [tool("read", path=str(path)), tool("ls", path=str(path.parent))]
        for call in [*closed, tool("grep", path=str(path.parent), pattern="2999")]:
            assert "where the outputs of a conversation are kept" in (await client.prompt(f"{call} TELL")).text
    async with worker("--session-dir", sessions) as client:
        await client.call("switch_session", session_file=transcript)
        assert (await client.prompt(tool("read", path=str(path), offset=2999) + " TELL")).text == "2999\n3000\n"
    async with worker("--no-session", "--session-dir", f"{sessions}-none") as client:
        path = await saved_output((await client.prompt(long)).text)
        assert (await client.prompt(tool("read", path=str(path), offset=3000) + " TELL")).text == "3000\n"
        await client.call("new_session")
        assert not path.parent.exists()  # without a transcript they end with the conversation
        path = await saved_output((await client.prompt(long)).text)
    assert not path.parent.exists()
    assert not await trio.Path(f"{sessions}-none").exists()
