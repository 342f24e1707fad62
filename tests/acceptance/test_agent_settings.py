"""What a settings file says about an agent holds in the real worker: rights, hooks, bounds, hidden keys."""

from pathlib import Path

import pytest

from tests.acceptance.supervisor import running_supervisor

pytestmark = pytest.mark.process

HOOKS = """
from agent.hooks import UseResult

def before_tool_call(call):
    return UseResult("the hook answered")
"""
SETTINGS = """
[agents.reader]
permission_mode = "readonly"

[agents.hooked]
hooks = ["{place}/hooks.py"]

[agents.brief]
max_steps = 1

[agents.outside]
allow_outside = true

[agents.keyed]
env = {{ OPENAI_API_KEY = "k1", XAI_API_KEY = "k2" }}
tool_env = ["XAI_API_KEY"]

[agents.waiting]
allow_background = false
"""


def test_what_the_settings_say_about_an_agent_holds_in_its_worker(tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text(HOOKS)
    (tmp_path / "secret").write_text("outside")
    read = f'TOOL:read {{"path": "{tmp_path}/secret"}} TELL'
    background = 'TOOL:exec {"command": "echo $PPID; echo over", "background": true} TELL'
    with running_supervisor(tmp_path / "data", settings=SETTINGS.format(place=tmp_path)) as supervisor:

        def ask(agent: str, text: str) -> str:
            return supervisor.prompt(f"s-{agent}", text, "-a", agent)

        assert "this session may only read" in ask("reader", 'TOOL:exec {"command": "echo made it"} TELL')
        assert ask("hooked", read) == "the hook answered"
        brief = supervisor.pool("prompt", "-s", "b", "-a", "brief", read)
        assert brief.returncode == 5
        assert "all model calls that one run may (max_steps)" in brief.stderr
        length = supervisor.pool("prompt", "-s", "l", "LENGTH")
        assert length.returncode == 5
        assert "the answer is cut off" in length.stderr
        assert "outside" in ask("outside", read)
        assert "outside" not in ask("main", read).replace("outside the working directory", "")
        assert ask("keyed", 'TOOL:exec {"command": "echo [$OPENAI_API_KEY][$XAI_API_KEY]"} TELL') == "[][k2]"
        assert "nothing may go to the background here" in ask("waiting", background)
