"""Hooks and skills lie where the tools of the agent cannot change them: refused at the start, and in each write."""

from pathlib import Path

import pytest

from agent.assembly import StartupError
from tests.agent.inprocess import worker

GATED = ("--require-approval", "exec")


async def refusal(*options: str) -> str:
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - nurseries may wrap it
        async with worker("--no-session", *options):
            pass
    found = raised.value
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, StartupError)
    return str(found)


@pytest.fixture
def hooks(workspace: Path) -> Path:
    path = workspace / "hooks.py"
    path.write_text("")
    return path


@pytest.mark.parametrize("options", [(), GATED, ("--tools", "edit"), ("--deny-tools", "write,edit")])
async def test_hooks_in_the_working_directory_are_refused_while_a_tool_could_replace_them(
    options: tuple[str, ...], hooks: Path
) -> None:
    said = await refusal("--hooks", hooks.name, *options)
    assert "the hooks hooks.py lie in the working directory" in said
    assert "keep them elsewhere" in said


async def test_a_link_to_hooks_elsewhere_is_refused_as_well(workspace: Path) -> None:
    (workspace.parent / "hooks.py").write_text("")
    (workspace / "link.py").symlink_to("../hooks.py")
    assert "could replace them" in await refusal("--hooks", "link.py")


@pytest.mark.parametrize(
    "options",
    [("--permission-mode", "readonly"), ("--permission-mode", "approval"), ("--tools", "read"), ("--no-hooks",)],
)
async def test_hooks_that_no_tool_can_replace_unasked_may_lie_anywhere(options: tuple[str, ...], hooks: Path) -> None:
    async with worker("--no-session", "--hooks", hooks.name, *options) as client:
        assert (await client.prompt("ECHO:fine")).text == "fine"


async def test_no_tool_writes_hooks_or_skills_wherever_they_lie(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "hooks.py"
    outside.write_text("# mine\n")
    skill = workspace / "sewing"
    skill.mkdir()
    (skill / "SKILL.md").write_text("---\nname: sewing\n---\n")
    (skill / "run.sh").write_text("echo mine\n")
    (workspace / "way").symlink_to("sewing")
    calls = [
        f'TOOL:write {{"path": "{outside}", "content": "evil"}}',
        f'TOOL:write {{"path": "{tmp_path}/__pycache__/hooks.pyc", "content": "evil"}}',
        f'TOOL:edit {{"path": "{outside}", "edits": [{{"old_text": "mine", "new_text": "evil"}}]}}',
        'TOOL:edit {"path": "sewing/run.sh", "edits": [{"old_text": "mine", "new_text": "evil"}]}',
        'TOOL:write {"path": "way/run.sh", "content": "evil"}',
        'TOOL:write {"path": "sewing/new.sh", "content": "evil"}',
    ]
    options = ("--hooks", str(outside), "--skill", "sewing", "--allow-outside", *GATED)
    async with worker("--no-session", *options) as client:
        await client.prompt(f"PARALLEL {' '.join(calls)}")
        results = await client.results()
        assert [result["error_type"] for result in results] == ["denied"] * len(calls)
        assert all("which its tools may not change" in result["error"] for result in results)
        await client.prompt('TOOL:write {"path": "seam.txt", "content": "fine"}')
    assert (workspace / "seam.txt").read_text() == "fine"
    assert (outside.read_text(), (skill / "run.sh").read_text()) == ("# mine\n", "echo mine\n")
    assert sorted(path.name for path in skill.iterdir()) == ["SKILL.md", "run.sh"]


async def test_a_skill_that_takes_up_the_working_directory_is_refused(workspace: Path) -> None:
    (workspace / "SKILL.md").write_text("---\nname: all\n---\n")
    assert "takes up the whole working directory" in await refusal("--skill", ".")
