"""The agent of docs/own-agent.md, as it stands there, behind a real supervisor."""

import sys
from pathlib import Path

import pytest

from tests.acceptance.supervisor import running_supervisor
from tests.documents import OWN_AGENT_PAGE, commands_of, example


@pytest.mark.process
def test_the_agent_of_the_page_serves_two_sessions_with_one_worker_and_knows_each(tmp_path: Path) -> None:
    program = tmp_path / "parrot.py"
    program.write_text(example(OWN_AGENT_PAGE, "parrot.py"))
    settings = f'[agents.parrot]\ncommand = ["{sys.executable}", "{program}"]\n'
    first, question = commands_of(OWN_AGENT_PAGE, "pool prompt -s tour")
    with running_supervisor(tmp_path / "d", "--max", "1", settings=settings) as supervisor:
        assert supervisor.pool(*first[1:]).stdout == "I heard: hello\n"
        assert supervisor.prompt("other", "good morning", "-a", "parrot") == "I heard: good morning"
        assert supervisor.pool(*question[1:]).stdout == "You said: ['hello']\n"
        assert "I heard: hello" in supervisor.pool("sessions", "history", "tour").stdout
