"""The container image: what its files promise, where no container can be built."""

import re

from tests.house import ROOT
from tests.test_architecture import project

DOCKERFILE = (ROOT / "Dockerfile").read_text()
INSTRUCTIONS = re.findall(r"^([A-Z]+) (.+)$", DOCKERFILE, re.MULTILINE)
LAST_STAGE = INSTRUCTIONS[max(n for n, (name, _) in enumerate(INSTRUCTIONS) if name == "FROM") :]


def test_it_runs_as_a_user_of_its_own_that_a_cluster_can_tell_from_root() -> None:
    users = [value for name, value in LAST_STAGE if name == "USER"]
    assert users == ["10001:10001"]
    assert LAST_STAGE.index(("USER", users[0])) < LAST_STAGE.index(("ENTRYPOINT", '["pool"]'))


def test_all_that_lasts_lies_in_its_volume() -> None:
    assert ("VOLUME", "/data") in LAST_STAGE
    assert "HOME=/data" in dict(LAST_STAGE)["ENV"].split()


def test_it_installs_what_is_locked_for_running() -> None:
    installs = re.findall(r"pip install (.+)", DOCKERFILE)
    assert "--require-hashes --only-binary :all: --requirement /src/requirements.lock" in installs[0]
    assert "--no-deps --no-build-isolation /src" in installs[1]
    assert len(installs) == 2


def test_its_context_is_what_the_wheel_is_built_of() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    wheel = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert "*" in lines
    assert kept == {*wheel, "LICENSE", "README.md", "pyproject.toml", "requirements.lock"}
