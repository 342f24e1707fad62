"""What is installed is what was locked: every package by version and by the hashes of its files."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text()


def read_lock(text: str) -> dict[str, tuple[Requirement, list[str]]]:
    """Each entry of the lock file by its name, with its hashes."""
    entries: dict[str, tuple[Requirement, list[str]]] = {}
    for entry in re.sub(r"\s*#.*", "", text).replace("\\\n", " ").splitlines():
        if entry.strip():
            words, *hashes = re.split(r"\s+--hash=", entry.strip())
            entries[canonicalize_name(Requirement(words).name)] = (Requirement(words), hashes)
    return entries


ENTRIES = read_lock(LOCK)


VERSIONS = {name: str(requirement.specifier).removeprefix("==") for name, (requirement, _) in ENTRIES.items()}


def asked_for() -> list[str]:
    document: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["dev"], *document["build-system"]["requires"]]


@pytest.mark.parametrize("text", asked_for())
def test_s80_the_lock_has_what_the_project_asks_for_in_a_version_that_it_takes(text: str) -> None:
    """Where this fails: make lock."""
    wanted = Requirement(text)
    assert wanted.specifier.contains(VERSIONS[canonicalize_name(wanted.name)])


def test_s80_every_package_is_pinned_with_hashes_and_from_no_place_of_its_own() -> None:
    assert len(ENTRIES) > len(asked_for())
    for name, (requirement, hashes) in ENTRIES.items():
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)), name
        assert hashes, name
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), name
        assert requirement.url is None
    assert not re.search(r"://|^\s*-(?!-hash=)", LOCK, re.MULTILINE)


def test_s80_what_is_installed_here_is_what_is_locked() -> None:
    """Where this fails: make -B .venv/.installed."""
    here = {name: VERSIONS[name] for name, (requirement, _) in ENTRIES.items() if requirement.marker is None}
    assert {name: version(name) for name in here} == here


def test_s80_make_installs_the_locked_files_and_nothing_besides() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"^\$\(STAMP\):(.*)\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe is not None
    assert "$(LOCK)" in recipe[1]
    locked, own = [line for line in recipe[2].splitlines() if "pip install" in line]
    assert {"--require-hashes", "--only-binary", "$(LOCK)"} <= set(locked.split())
    assert {"--no-deps", "--no-build-isolation", "."} <= set(own.split())
