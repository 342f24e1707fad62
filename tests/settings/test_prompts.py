from pathlib import Path

import pytest

from settings.load import parse_settings
from settings.problems import SettingsError

TABLES = """
[agents.main]
system_prompt = "@prompts/main.md"
append_system_prompt = "@@home"

[roles.writer]
append_system_prompt = "@prompts/main.md"
"""


def test_a_prompt_is_a_file_where_it_begins_with_an_at_sign(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "main.md").write_text("You are careful.")
    (tmp_path / "You are careful.").write_text("You are not.")
    settings = parse_settings(TABLES, tmp_path / "pool.toml")
    agent = settings.agents["main"]
    assert (agent.system_prompt, agent.append_system_prompt) == ("You are careful.", "@home")
    assert settings.roles["writer"].append_system_prompt == "You are careful."


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"\xff", "it is not UTF-8 text"),
        (b"x" * 100_001, "it is longer than 100,000 bytes"),
    ],
)
def test_a_file_that_is_no_prompt_is_refused_with_its_line(tmp_path: Path, content: bytes | None, reason: str) -> None:
    (tmp_path / "prompts").mkdir()
    if content is not None:
        (tmp_path / "prompts" / "main.md").write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        parse_settings(TABLES, tmp_path / "pool.toml")
    first, second = str(caught.value).splitlines()
    file = tmp_path / "prompts" / "main.md"
    wanted = f"cannot read {file}: {reason}; @@ begins a text with @"
    assert first == f"{tmp_path}/pool.toml:3: agents.main.system_prompt: {wanted}"
    assert second == f"{tmp_path}/pool.toml:7: roles.writer.append_system_prompt: {wanted}"
