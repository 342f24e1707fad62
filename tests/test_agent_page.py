"""What the documents say of the bundled agent is run as it stands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.supervisor import running_supervisor
from tests.documents import AGENT_PAGE, README, commands_of, example

AGENT = str(Path(sys.executable).parent / "agent")


def agent_answers(document: str, first: str, place: Path) -> list[subprocess.CompletedProcess[str]]:
    """What the commands of that block say, run one after the other in a directory and a home of their own."""
    home_of(place).mkdir(exist_ok=True)
    env = {**os.environ, "HOME": str(home_of(place))}
    return [
        subprocess.run(
            [AGENT, *command[1:]], cwd=place, env=env, capture_output=True, text=True, check=False, timeout=20
        )
        for command in commands_of(document, first)
    ]


def home_of(place: Path) -> Path:
    """Beside the directory: what lies in a home is none of the agent's business there."""
    return place.with_name(f"{place.name}-home")


def write_example(name: str, place: Path) -> None:
    (place / name).parent.mkdir(exist_ok=True)
    (place / name).write_text(example(AGENT_PAGE, name))


@pytest.mark.process
def test_the_agent_answers_alone_as_it_says(tmp_path: Path) -> None:
    tests, sorted_, steps, denied, recalled = agent_answers(README, "agent -p", tmp_path)
    assert [done.returncode for done in (tests, sorted_, steps, denied, recalled)] == [0] * 5
    assert "3 passed" in tests.stdout
    assert "still running in the background as" in tests.stderr
    assert "ended: completed, code 0" in sorted_.stdout
    assert (steps.stdout, "✓ ok, code 0" in steps.stderr) == ("done\n", True)
    assert "this session may only read" in denied.stdout
    assert "run the tests" not in recalled.stdout  # a session of its own for each of the former ones
    assert "touch made" in recalled.stdout
    assert not (tmp_path / "made").exists()


@pytest.mark.process
def test_hooks_and_skills_go_as_they_say(tmp_path: Path) -> None:
    settings = home_of(tmp_path) / ".config" / "agent"
    settings.mkdir(parents=True)
    write_example("hooks.py", settings)
    write_example("sewing/SKILL.md", tmp_path)
    (denied,) = agent_answers(AGENT_PAGE, "agent --hooks", tmp_path)
    assert "a hook does not allow it" in denied.stdout
    system, env, read = agent_answers(AGENT_PAGE, "agent --skill", tmp_path)
    assert "- sewing: How to sew on a button" in system.stdout
    assert env.stdout == "fine\n"
    assert "Thread the needle first." in read.stdout


@pytest.mark.process
def test_the_end_of_a_background_command_is_told_as_it_says(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, "--max", "1") as supervisor:
        begun, follow = commands_of(AGENT_PAGE, "pool prompt -s build")
        assert supervisor.pool(*begun[1:]).stdout == "begun\n"
        events = supervisor.start(*follow[1:])
        assert events.stdout is not None
        assert ":: built" in events.stdout.readline()
        events.terminate()
        events.communicate(timeout=20)
