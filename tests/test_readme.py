"""The README's examples are run as they stand, so that what a reader copies works."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import cli
from settings.load import load_settings
from tests.acceptance.supervisor import POOL, Supervisor, running_supervisor
from tests.documents import README, blocks, commands_of, example


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    with running_supervisor(tmp_path_factory.mktemp("r"), "--max", "1") as running:
        yield running


def command(supervisor: Supervisor, *words: str) -> "subprocess.CompletedProcess[str]":
    """As a reader types it in the supervisor's own directory: a process of its own."""
    env = {**os.environ, "POOL_SOCKET": str(supervisor.socket)}
    return subprocess.run(
        [*POOL, *words], cwd=supervisor.data_dir, env=env, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.process
def test_the_first_session_goes_as_it_says(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, "--max", "2") as supervisor:
        for words in commands_of(README, "pool prompt -s alice"):
            done = command(supervisor, *words[1:])
            assert done.returncode == 0, done.stderr
            if words[-1] == "RECALL":
                assert "hello" in done.stdout
        assert supervisor.wait() == 0


@pytest.mark.process
def test_a_supervisor_in_the_background_goes_as_it_says(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_RUNTIME_DIR": ""}

    def pool(*words: str) -> str:
        done = subprocess.run(
            [*POOL, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run, *others = commands_of(README, "pool run --detach")
    pool(*run[1:])
    try:
        pool("prompt", "-s", "a", "x")  # then there is a worker
        said = [pool(*words[1:]) for words in others]
        assert ["started" in said[0], "ready" in said[1], "-> 6" in said[2]] == [True] * 3
    finally:
        pool("stop")


@pytest.mark.process
def test_runs_and_events_go_as_they_say(supervisor: Supervisor) -> None:
    printed = [command(supervisor, *words[1:]) for words in commands_of(README, "pool prompt -s bob")]
    assert [done.stderr for done in printed] == [""] * len(printed)
    assert [done.stdout for done in printed[:2]] == ["report\n", "the report\n"]
    assert "ECHO:the report" in printed[2].stdout
    ((_, *follow),) = commands_of(README, "pool events follow")
    events = supervisor.start(*follow)
    assert events.stdout is not None
    assert '"type":' in events.stdout.readline()
    events.send_signal(signal.SIGINT)
    _, said = events.communicate(timeout=20)
    assert (events.returncode, "pool events follow --since" in said) == (130, True)


@pytest.mark.process
def test_a_session_is_told_what_was_injected_as_it_says(supervisor: Supervisor) -> None:
    inject, history = commands_of(README, "pool events inject")
    with supervisor.following("alert") as events:
        assert supervisor.pool(*inject[1:]).returncode == 0
        assert next(events)["session"] == "bob"
    assert "[SYSTEM] the build machine is back" in supervisor.pool(*history[1:]).stdout


@pytest.mark.process
def test_the_settings_are_made_changed_and_reloaded_as_it_says(tmp_path: Path) -> None:
    with running_supervisor(tmp_path) as supervisor:
        for words in commands_of(README, "pool config init"):
            done = command(supervisor, *words[1:])
            assert (done.returncode, done.stderr) == (0, "")
    assert load_settings(tmp_path / "pool.toml").pool.max == 8


@pytest.mark.process
def test_an_agent_of_another_make_is_used_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "opencode"
    program.parent.mkdir()
    fake = Path(__file__).parents[1] / "stress" / "acp_agent"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -S {fake} --store {tmp_path}/kept --like opencode\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with running_supervisor(tmp_path / "d", "--max", "1", settings=example(README, "another agent")) as supervisor:
        agents, prompt, history = commands_of(README, "pool agents  ")
        answer = command(supervisor, *prompt[1:])
        assert (answer.returncode, answer.stdout) == (0, "echo: What does this repository do?\n"), answer.stderr
        listed = command(supervisor, *agents[1:], "--json").stdout
        (found,) = [agent for agent in json.loads(listed) if agent["name"] == "opencode"]
        assert (found["make"], found["agent"], found["login"]) == ("opencode", "fake-agent", "ok")
        assert "echo: What does this repository do?" in command(supervisor, *history[1:]).stdout


def test_the_first_screen_adds_an_agent_that_can_be_added(tmp_path: Path) -> None:
    _install, add, key, *_others, prompt = commands_of(README, "uv tool install")
    for words in (add, key):
        done = CliRunner().invoke(cli.main, [*words[1:], "--config", str(tmp_path / "pool.toml")])
        assert done.exit_code == 0, done.output
    added = load_settings(tmp_path / "pool.toml").agents[prompt[prompt.index("-a") + 1]]
    assert added.env == {"ANTHROPIC_API_KEY": "$ANTHROPIC_API_KEY"}  # which a shell would fill in


@pytest.mark.process
def test_the_library_example_runs() -> None:
    (example,) = [text for text in blocks(README, "python") if "pool.lease" in text]
    done = subprocess.run(
        [sys.executable, "-P", "-c", example], capture_output=True, text=True, check=False, timeout=25
    )
    assert done.returncode == 0, done.stderr
    assert "hello from a worker" in done.stdout


def test_every_make_target_it_names_is_there() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    for target in re.findall(r"`?make ([a-z-]+)`?", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
