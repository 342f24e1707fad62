"""The README's examples are run as they stand, so that what a reader copies works."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from settings import load_settings
from tests.acceptance.supervisor import running_supervisor

README = (Path(__file__).parents[1] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced code blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def prompts_of_the_first_session() -> list[list[str]]:
    """The ``pool`` commands of the block that begins with a prompt, without their comments."""
    (block,) = [text for text in blocks("sh") if text.startswith("pool prompt -s alice")]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


@pytest.mark.process
def test_the_first_session_goes_as_it_says(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, "--max", "2") as supervisor:
        for command in prompts_of_the_first_session():
            done = supervisor.pool(*command[1:])
            assert done.returncode == 0, done.stderr
            if command[-1] == "RECALL":
                assert "hello" in done.stdout
        assert supervisor.wait() == 0


@pytest.mark.process
def test_the_library_example_runs() -> None:
    (example,) = [text for text in blocks("python") if "pool.lease" in text]
    done = subprocess.run(
        [sys.executable, "-P", "-c", example], capture_output=True, text=True, check=False, timeout=25
    )
    assert done.returncode == 0, done.stderr
    assert "hello from a worker" in done.stdout


@pytest.mark.parametrize("text", blocks("toml"))
def test_every_settings_example_is_accepted(text: str, tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(text)
    assert load_settings(file).agents


def test_every_make_target_it_names_is_there() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    for target in re.findall(r"`?make ([a-z-]+)`?", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
