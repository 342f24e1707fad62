"""Skills: what is read of their front matter, that the model may read them, and whose children see their variables."""

from pathlib import Path

import pytest

from agent.assembly import StartupError
from agent.context import SkillError, environment_of, read_skill
from tests.agent.inprocess import worker

SEWING = """\
---
name: sewing
description: "How to sew"
env:
  NEEDLE: fine
  # THREAD: red
  THIMBLE: /nowhere
other:
  deep: x
---
Thread first.
"""


@pytest.fixture
def sewing(tmp_path: Path) -> Path:
    (tmp_path / "sewing").mkdir()
    (tmp_path / "sewing" / "SKILL.md").write_text(SEWING)
    return tmp_path / "sewing"


def test_name_description_and_variables_are_read(sewing: Path) -> None:
    skill = read_skill(sewing)
    assert (skill.name, skill.description) == ("sewing", "How to sew")
    assert skill.env == {"NEEDLE": "fine", "THIMBLE": "/nowhere"}
    assert read_skill(sewing / "SKILL.md") == skill


@pytest.mark.parametrize("text", ["", "Thread first.", "---\nname: x\nThread first.", "------\n"])
def test_without_front_matter_the_directory_names_it(sewing: Path, text: str) -> None:
    (sewing / "SKILL.md").write_text(text)
    assert (read_skill(sewing).name, read_skill(sewing).env) == ("sewing", {})


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "POOL_WORKER_ID", "no name", "A=B"])
async def test_a_skill_that_sets_what_it_may_not_is_no_start(sewing: Path, name: str) -> None:
    (sewing / "SKILL.md").write_text(f"---\nenv:\n  {name}: x\n---\n")
    with pytest.raises(SkillError, match="may not set"):
        read_skill(sewing)
    with pytest.raises(StartupError, match="may not set"):
        async with worker("--no-session", "--skill", str(sewing)):
            pass


def test_of_two_skills_that_set_a_variable_the_first_has_it(sewing: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "SKILL.md").write_text("---\nenv:\n  NEEDLE: thick\n  YARN: wool\n---\n")
    skills = [read_skill(sewing), read_skill(tmp_path / "other")]
    assert environment_of(skills) == {"NEEDLE": "fine", "YARN": "wool", "THIMBLE": "/nowhere"}


async def test_the_model_may_read_a_skill_and_children_get_what_is_not_set_yet(
    sewing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THIMBLE", "here")
    async with worker("--no-session", "--skill", str(sewing)) as client:
        assert f"- sewing: How to sew (read {sewing}/SKILL.md)" in (await client.prompt("SYSTEM")).text
        told = await client.prompt(f'TOOL:read {{"path":"{sewing}/SKILL.md"}} TELL')
        assert "Thread first." in told.text
        refused = await client.prompt(f'TOOL:write {{"path":"{sewing}/SKILL.md","content":"x"}} TELL')
        assert "which its tools may not change" in refused.text
        children = await client.prompt('TOOL:exec {"command":"echo $NEEDLE $THIMBLE"} TELL')
    assert children.text == "fine here\n"
