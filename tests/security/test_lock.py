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
LOCKS = {
    name: (ROOT / name).read_text()
    for name in ("requirements.lock", "requirements-dev.lock", "requirements-cluster.lock")
}
"""What runs the pool, what is developed with besides, and what runs it with Ray."""


def read_lock(text: str) -> dict[str, tuple[Requirement, list[str]]]:
    """Each entry of the lock file by its name, with its hashes."""
    entries: dict[str, tuple[Requirement, list[str]]] = {}
    for entry in re.sub(r"\s*#.*", "", text).replace("\\\n", " ").splitlines():
        if entry.strip():
            words, *hashes = re.split(r"\s+--hash=", entry.strip())
            entries[canonicalize_name(Requirement(words).name)] = (Requirement(words), hashes)
    return entries


ENTRIES = {name: read_lock(text) for name, text in LOCKS.items()}
VERSIONS = {
    lock: {name: str(requirement.specifier).removeprefix("==") for name, (requirement, _) in entries.items()}
    for lock, entries in ENTRIES.items()
}


def asked_for() -> list[tuple[str, str]]:
    """Each requirement of pyproject.toml with the lock file that must have it."""
    document: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = document["dependency-groups"]
    runtime = [*document["project"]["dependencies"], *document["build-system"]["requires"], *groups["build"]]
    rest = [text for group in groups.values() for text in group if isinstance(text, str)]
    with_ray = [*runtime, *document["project"]["optional-dependencies"]["cluster"]]
    wanted = {"requirements.lock": runtime, "requirements-dev.lock": rest, "requirements-cluster.lock": with_ray}
    return [(lock, text) for lock, texts in wanted.items() for text in texts]


@pytest.mark.parametrize(("lock", "text"), asked_for())
def test_s80_the_lock_has_what_the_project_asks_for_in_a_version_that_it_takes(lock: str, text: str) -> None:
    """Where this fails: make lock."""
    wanted = Requirement(text)
    assert wanted.specifier.contains(VERSIONS[lock][canonicalize_name(wanted.name)])


@pytest.mark.parametrize("lock", LOCKS)
def test_s80_every_lock_has_what_runs_the_pool_in_the_same_versions(lock: str) -> None:
    """Where this fails: make lock."""
    assert VERSIONS["requirements.lock"].items() <= VERSIONS[lock].items()


def test_s80_ray_is_in_no_environment_but_its_own() -> None:
    assert [lock for lock in LOCKS if "ray" in VERSIONS[lock]] == ["requirements-cluster.lock"]
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^\$\(RAY_VENV\)/\.runtime:.*\n\t@\$\(MAKE\) .* LOCK=\$\(CLUSTER_LOCK\)", makefile, re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_s80_every_package_is_pinned_with_hashes_and_from_no_place_of_its_own(lock: str) -> None:
    assert len(ENTRIES[lock]) > 20
    for name, (requirement, hashes) in ENTRIES[lock].items():
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)), name
        assert hashes, name
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), name
        assert requirement.url is None
    assert not re.search(r"://|^\s*-(?!-hash=)", LOCKS[lock], re.MULTILINE)


def test_s80_what_is_installed_here_is_what_is_locked() -> None:
    """Where this fails: make -B .venv/.installed."""
    locked = ENTRIES["requirements-dev.lock"]
    everywhere = [name for name, (requirement, _) in locked.items() if requirement.marker is None]
    here = {name: VERSIONS["requirements-dev.lock"][name] for name in everywhere}
    assert {name: version(name) for name in here} == here


def test_s80_make_installs_the_locked_files_and_nothing_besides() -> None:
    makefile = (ROOT / "Makefile").read_text()
    installing = [line for line in makefile.splitlines() if "$(BIN)/pip install" in line]
    locked, own = installing
    assert {"--require-hashes", "--only-binary", ":all:"} <= set(locked.split())
    assert {"--no-deps", "--no-build-isolation", "."} <= set(own.split())
    assert re.findall(r"\$\(call install,\$\((\w+)\)\)", makefile) == ["LOCK", "DEV_LOCK"]


def test_s80_the_demo_installs_only_what_runs_it() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^demo: \$\(RUNTIME\) ", makefile, re.MULTILINE)
    recipe = re.search(r"^\$\(RUNTIME\): .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe is not None
    assert "DEV_LOCK" not in recipe[1]
    assert "pytest" not in VERSIONS["requirements.lock"]
