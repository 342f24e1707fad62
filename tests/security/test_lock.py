"""What is installed is what was locked: every package by version and by the hashes of its files."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text()


class Locked(NamedTuple):
    """One entry of the lock file."""

    requirement: Requirement
    hashes: list[str]

    @property
    def version(self) -> str:
        (pin,) = self.requirement.specifier
        assert pin.operator == "=="
        return pin.version


def read_lock(text: str) -> dict[str, Locked]:
    entries: dict[str, Locked] = {}
    for entry in re.sub(r"\s*#.*", "", text).replace("\\\n", " ").splitlines():
        if entry.strip():
            words, *hashes = re.split(r"\s+--hash=", entry.strip())
            requirement = Requirement(words)
            entries[canonicalize_name(requirement.name)] = Locked(requirement, hashes)
    return entries


ENTRIES = read_lock(LOCK)


def asked_for() -> list[str]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    build: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    return [*project["dependencies"], *project["optional-dependencies"]["dev"], *build["requires"]]


@pytest.mark.parametrize("text", asked_for())
def test_s80_the_lock_has_what_the_project_asks_for_in_a_version_that_it_takes(text: str) -> None:
    """Where this fails: make lock."""
    wanted = Requirement(text)
    assert wanted.specifier.contains(ENTRIES[canonicalize_name(wanted.name)].version)


def test_s80_every_package_is_pinned_with_hashes_and_from_no_place_of_its_own() -> None:
    assert len(ENTRIES) > len(asked_for())
    for name, locked in ENTRIES.items():
        assert locked.version, name
        assert locked.hashes, name
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in locked.hashes), name
        assert locked.requirement.url is None
    assert not re.search(r"://|^\s*-(?!-hash=)", LOCK, re.MULTILINE)


def test_s80_what_is_installed_here_is_what_is_locked() -> None:
    """Where this fails: make -B .venv/.installed."""
    here = {name: locked for name, locked in ENTRIES.items() if locked.requirement.marker is None}
    assert {name: version(name) for name in here} == {name: locked.version for name, locked in here.items()}


def test_s80_make_installs_the_locked_files_and_nothing_besides() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"^\$\(STAMP\):(.*)\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe is not None
    assert "$(LOCK)" in recipe[1]
    locked, own = [line for line in recipe[2].splitlines() if "pip install" in line]
    assert {"--require-hashes", "--only-binary", "$(LOCK)"} <= set(locked.split())
    assert {"--no-deps", "--no-build-isolation", "."} <= set(own.split())
