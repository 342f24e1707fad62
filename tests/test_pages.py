"""What the pages of the documentation show is what the program takes: settings, commands, the unit, the site itself."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import cli
from manual.examples import collect_answers
from manual.glossary import glossary_words, link_words, with_anchors
from manual.methods_page import methods_page
from settings.load import load_settings
from tests.acceptance.supervisor import running_supervisor
from tests.documents import PAGES, example
from tests.documents import blocks as blocks_of


def blocks(language: str) -> list[tuple[str, str]]:
    return [(name, text) for name, page in PAGES.items() for text in blocks_of(page, language)]


def typed_commands() -> Iterator[tuple[str, str]]:
    """Every line that begins with ``pool`` in what is to be typed, with its page."""
    for name, text in blocks("sh"):
        for line in text.replace("\\\n", " ").splitlines():
            if re.match(r"pool [a-z]", line.split("|")[-1].strip()):
                yield name, line.split("|")[-1].strip()


@pytest.mark.parametrize(("page", "text"), blocks("toml"))
def test_every_settings_example_is_accepted(page: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(text)
    settings = load_settings(file)
    assert settings != load_settings(None), page


@pytest.mark.parametrize(("page", "line"), sorted(set(typed_commands())))
def test_every_command_to_type_is_one_with_options_that_it_has(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    context = cli.main.make_context("pool", words)
    while isinstance(context.command, click.Group):
        words = [*context._protected_args, *context.args]
        if not words and context.command.invoke_without_command:
            return
        _name, command, rest = context.command.resolve_command(context, words)
        assert command is not None, page
        context = command.make_context(words[0], rest, parent=context)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
@pytest.mark.process
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = example(PAGES["docs/operate/systemd.md"], "pool.service")
    file = tmp_path / "pool.service"
    file.write_text(unit.replace("%h/.local/bin/pool", str(Path(sys.executable).parent / "pool")))
    done = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process
def test_the_control_socket_is_spoken_to_as_it_says(tmp_path: Path) -> None:
    program = example(PAGES["docs/reference/doors.md"], "socket.py")
    with running_supervisor(tmp_path, "--max", "1") as supervisor:
        env = {**os.environ, "POOL_SOCKET": str(supervisor.socket)}
        command = [sys.executable, "-P", "-c", program]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    *pushes, answer = done.stdout.splitlines()
    assert "'type': 'run:accepted'" in pushes[0]
    assert "'status': 'ok'" in answer


@pytest.mark.process
def test_every_method_of_the_reference_has_an_example_that_a_supervisor_has_answered() -> None:
    page = methods_page(collect_answers().examples)
    methods = re.findall(r"^## ([a-z.]+)$", page, re.MULTILINE)
    assert len(methods) > 50
    assert [name for name in methods if f'```json\n{{"method": "{name}", "params"' not in page] == []
    assert str(Path(__file__).parents[1]) not in page


def test_a_word_of_the_glossary_is_linked_where_it_first_stands_in_a_sentence() -> None:
    glossary = "# Glossary\n\n| word | meaning |\n|---|---|\n| *run* | a message |\n| *kill ladder* | EOF |\n"
    words = glossary_words(glossary)
    assert (words, with_anchors(glossary).count("| *kill ladder*{ #kill-ladder } |")) == (["run", "kill ladder"], 1)
    page = """# The run
`pool run` and **a run** run [a run](x.md), of which
a run ends; the run.
```sh
the kill ladder
```
Kill ladders: the kill ladder.
"""
    linked = page.replace("a run ends", "a [run](g.md#run) ends").replace(
        "Kill ladders", "[Kill ladders](g.md#kill-ladder)"
    )
    assert link_words(page, words, "g.md") == linked


def test_nothing_in_the_site_comes_from_elsewhere() -> None:
    """Other hosts would learn who reads; and the pages are read without a network."""
    settings = (Path(__file__).parents[1] / "mkdocs.yml").read_text()
    assert re.search(r"^  font: false$", settings, re.MULTILINE)
    assert not re.search(r"https?://", settings)
    ours = r'"([\w-]+/)*[\w-]+\.(png|svg)"'
    foreign = re.compile(rf"!\[[^]]*\]\((https?:)?//|<(script|link)|\bsrc(set)?\s*=\s*(?!{ours})", re.IGNORECASE)
    assert [name for name, page in PAGES.items() if foreign.search(page)] == []
    pictures = ('<img src="//host/x.png">', "<img src=x.png>", '<source srcset="https://host/x.svg">', "![x](//host/x)")
    assert all(map(foreign.search, pictures))


def test_ci_builds_the_site_and_every_warning_is_an_error() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    assert re.search(r"^check:.* docs\b", makefile, re.MULTILINE)
    assert re.search(r"^docs: .*\n\t.*mkdocs build --strict$", makefile, re.MULTILINE)
