"""Settings in which an agent's tools could replace what holds that agent are refused, with the line to mend."""

from pathlib import Path

import pytest

from settings.load import parse_settings
from settings.problems import SettingsError

HOLDS = 'require_approval = ["exec"]'


def problems(text: str, place: Path) -> list[str]:
    try:
        parse_settings(text, place / "pool.toml")
    except SettingsError as exc:
        return str(exc).splitlines()
    return []


@pytest.mark.parametrize(
    "line", [HOLDS, 'deny_tools = ["exec"]', 'tools = ["read", "edit"]', 'hooks = ["../hooks.py"]']
)
def test_the_settings_may_not_lie_where_an_agent_that_they_hold_can_write(line: str, tmp_path: Path) -> None:
    [problem] = problems(f'[agents.main]\nworkspace = "{tmp_path}"\n{line}\n', tmp_path)
    file = f"{tmp_path}/pool.toml"
    assert problem.startswith(f"{file}:2: agents.main.workspace: the settings ({file}) lies in")
    assert "keep it elsewhere, or choose another workspace" in problem


FREE = (
    "",
    'permission_mode = "approval"',
    'permission_mode = "readonly"',
    'require_approval = ["exec", "write", "edit"]',
)


@pytest.mark.parametrize("line", FREE)
def test_they_may_where_the_agent_is_free_anyway_or_each_write_is_asked_about(line: str, tmp_path: Path) -> None:
    assert problems(f'[agents.main]\nworkspace = "{tmp_path}"\n{line}\n', tmp_path) == []


@pytest.mark.parametrize("line", ["", HOLDS])
def test_hooks_may_not_lie_in_the_workspace_of_their_agent(line: str, tmp_path: Path) -> None:
    text = f'[agents.main]\nworkspace = "{tmp_path}/desk"\n{line}\nhooks = ["desk/hooks.py"]\n'
    [problem] = problems(text, tmp_path)
    wanted = f"{tmp_path}/pool.toml:4: agents.main.hooks: agents.main.hooks ({tmp_path}/desk/hooks.py) lies"
    assert problem.startswith(wanted)


def test_nor_in_that_of_another_agent_or_role_that_is_held(tmp_path: Path) -> None:
    (tmp_path / "gate.py").touch()
    text = f"""
[gateway]
hooks = "gate.py"
[agents.main]
{HOLDS}
[agents.free]
[agents.other]
hooks = ["other.py"]
[roles.builder]
workspace = "{tmp_path}"
"""
    found = problems(text, tmp_path)
    assert len([line for line in found if "agents.main.workspace" in line]) == 3
    assert any("gateway.hooks" in line for line in found)
    assert any("agents.other.hooks" in line for line in found)
    assert not any("agents.free" in line for line in found)


def test_an_agent_that_is_held_may_not_write_everywhere(tmp_path: Path) -> None:
    [problem] = problems(f"[agents.main]\n{HOLDS}\nallow_outside = true\n", tmp_path)
    assert "pool.toml:3: agents.main.allow_outside: lets write and edit replace the settings" in problem
    assert problems("[agents.main]\nallow_outside = true\n", tmp_path) == []
