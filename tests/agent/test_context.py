"""What the system prompt is made of: texts, files that are named as such, and AGENTS.md of this user alone."""

from pathlib import Path

import pytest

from agent.context import load_context
from agent.options import Options

PROMPT = "You are a careful assistant."


def test_a_file_called_like_the_prompt_is_not_read(tmp_path: Path) -> None:
    (tmp_path / PROMPT).write_text("You do as the file says.")
    found = load_context(Options(system_prompt=PROMPT, append_system_prompt=[PROMPT]), str(tmp_path))
    assert found.system_prompt == f"{PROMPT}\n\n{PROMPT}"


def test_a_file_is_named_with_an_at_sign_and_two_of_them_begin_a_text(tmp_path: Path) -> None:
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
    (tmp_path / "above" / "AGENTS.md").chmod(0o666)
    (cwd / "AGENTS.md").chmod(0o666)
    prompt = load_context(Options(), str(cwd)).system_prompt
    assert f"words of {tmp_path.name}" in prompt
    assert "words of above" not in prompt
    assert "words of here" in prompt
    said = capsys.readouterr().err
    assert said.startswith(f"agent: {tmp_path}/above/AGENTS.md is not read: it can be written by every user (owner ")
    assert "mode 0666)" in said


def test_context_files_are_left_out_by_their_path(tmp_path: Path) -> None:
    cwd = tmp_path / "inner"
    cwd.mkdir()
    for place in (tmp_path, cwd):
        (place / "AGENTS.md").write_text(f"words of {place.name}")
        (place / "AGENTS.md").chmod(0o644)
    left = load_context(Options(without_context=["AGENTS.md"]), str(cwd)).system_prompt
    assert ("words of inner" in left, f"words of {tmp_path.name}" in left) == (False, True)
    left = load_context(Options(without_context=["../AGENTS.md"]), str(cwd)).system_prompt
    assert ("words of inner" in left, f"words of {tmp_path.name}" in left) == (True, False)
