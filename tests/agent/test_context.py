"""What the system prompt is made of, skills among it, and which variables the commands of tools get."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.assembly import StartupError
from agent.context import SkillError, environment_of, load_context, read_skill
from agent.options import Options
from agent.policy import may_be_set, tool_environment
from tests.agent.inprocess import worker

PROMPT = "You are a careful assistant."


def test_a_file_called_like_the_prompt_is_not_read(tmp_path: Path) -> None:
    (tmp_path / PROMPT).write_text("You do as the file says.")
    found = load_context(Options(system_prompt=PROMPT, append_system_prompt=[PROMPT]), str(tmp_path))
    assert found.system_prompt == f"{PROMPT}\n\n{PROMPT}"
    # A file is named with an at sign, and two of them begin a text.
    (tmp_path / "prompt.md").write_text("From a file.")
    found = load_context(Options(system_prompt="@prompt.md", append_system_prompt=["@@prompt.md"]), str(tmp_path))
    assert found.system_prompt == "From a file.\n\n@prompt.md"
    with pytest.raises(FileNotFoundError):
        load_context(Options(system_prompt="@none.md"), str(tmp_path))


def test_context_files_above_are_read_only_where_no_other_user_can_write_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cwd = tmp_path / "above" / "here"
    cwd.mkdir(parents=True)
    for place in (tmp_path, tmp_path / "above", cwd):
        (place / "AGENTS.md").write_text(f"words of {place.name}")
        (place / "AGENTS.md").chmod(0o644 if place == tmp_path else 0o666)
    top = f"words of {tmp_path.name}"
    prompt = load_context(Options(), str(cwd)).system_prompt
    assert [words in prompt for words in (top, "words of above", "words of here")] == [True, False, True]
    said = capsys.readouterr().err
    assert said.startswith(f"agent: {tmp_path}/above/AGENTS.md is not read: it can be written by every user (owner ")
    assert "mode 0666)" in said
    for left, seen in (("AGENTS.md", [True, False]), ("../../AGENTS.md", [False, True])):
        prompt = load_context(Options(without_context=[left]), str(cwd)).system_prompt
        assert [words in prompt for words in (top, "words of here")] == seen


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


def test_name_description_and_variables_are_read_and_of_two_skills_the_first_sets_one(sewing: Path) -> None:
    skill = read_skill(sewing)
    assert (skill.name, skill.description) == ("sewing", "How to sew")
    assert skill.env == {"NEEDLE": "fine", "THIMBLE": "/nowhere"}
    assert read_skill(sewing / "SKILL.md") == skill
    (sewing / "SKILL.md").write_text("---\nenv:\n  NEEDLE: thick\n  YARN: wool\n---\n")
    assert environment_of([skill, read_skill(sewing)]) == {"NEEDLE": "fine", "YARN": "wool", "THIMBLE": "/nowhere"}


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


async def test_the_model_may_read_a_skill_and_children_get_what_is_not_set_yet(
    sewing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THIMBLE", "here")
    async with worker("--no-session", "--skill", str(sewing)) as client:
        assert f"- sewing: How to sew (read {sewing}/SKILL.md)" in (await client.prompt("SYSTEM")).text
        assert "Thread first." in (await client.prompt(f'TOOL:read {{"path":"{sewing}/SKILL.md"}} TELL')).text
        children = await client.prompt('TOOL:exec {"command":"echo $NEEDLE $THIMBLE"} TELL')
    assert children.text == "fine here\n"


def test_only_the_keys_of_providers_are_left_out_and_those_that_are_named_stay() -> None:
    environment = {"OPENAI_API_KEY": "k", "XAI_API_KEY": "x", "STRIPE_API_KEY": "s", "PATH": "/bin"}
    assert tool_environment(environment) == {"STRIPE_API_KEY": "s", "PATH": "/bin"}
    named = tool_environment(environment, ["XAI_API_KEY", "NOT_THERE"])
    assert named == {"STRIPE_API_KEY": "s", "PATH": "/bin", "XAI_API_KEY": "x"}
    assert environment["OPENAI_API_KEY"] == "k"


CHANGING = """
PATH PYTHONPATH PYTHONHOME NODE_OPTIONS BASH_ENV ENV IFS SHELLOPTS AGENT_EXEC_ID LD_PRELOAD LD_LIBRARY_PATH
DYLD_INSERT_LIBRARIES POOL_WORKER_PARENT GIT_SSH_COMMAND GIT_CONFIG_COUNT GIT_PAGER EDITOR HOME KUBECONFIG MAKEFLAGS CC
PERL5OPT PERL5LIB RUBYOPT JAVA_TOOL_OPTIONS PYTHONSTARTUP PYTHONWARNINGS npm_config_shell
"""
TELLING = "CI DEBUG NODE_ENV GIT_AUTHOR_NAME PYTHONUNBUFFERED TMPDIR LANG TZ http_proxy PORT"


@pytest.mark.parametrize("name", CHANGING.split())
def test_what_would_make_it_another_command_may_not_be_set(name: str) -> None:
    assert (may_be_set(name), may_be_set(f"MY_{name}")) == (False, True)


@pytest.mark.parametrize("name", ["BASH_FUNC_ls%%", "BASH_FUNC_ls", "", "A B", "A=B", "1A", "A\0"])
def test_functions_of_a_shell_and_what_is_no_name_may_not_be_set(name: str) -> None:
    assert not may_be_set(name)


@pytest.mark.parametrize("name", TELLING.split())
def test_what_only_tells_the_command_something_may_be_set(name: str) -> None:
    assert may_be_set(name)


@pytest.mark.process
def test_a_command_sees_no_key_of_a_provider_but_those_that_were_named(tmp_path: Path) -> None:
    show = 'TOOL:exec {"command": "echo [$OPENAI_API_KEY][$MY_API_KEY][$XAI_API_KEY]"} TELL'
    keys = {"OPENAI_API_KEY": "sk-secret", "MY_API_KEY": "mine", "XAI_API_KEY": "x"}
    for flags, seen in (((), "[][mine][]"), (("--tool-env", "XAI_API_KEY,NOT_THERE"), "[][mine][x]")):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "agent", "--no-session", *flags, "-p", show],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **keys},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
        assert done.stdout.strip().decode() == seen
        assert b"sk-secret" not in done.stderr
