"""Fixtures of the whole suite: where the real pi is; how Hypothesis runs."""

import os
import re
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest

hypothesis.settings.register_profile("suite", deadline=None)  # a deadline per example measures how busy the machine is
hypothesis.settings.load_profile("suite")

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("COLUMNS", None)  # what the tests start is told no width, as where they run one after the other

PI_VERSION = "0.73.1"
CACHED = Path(__file__).parents[1] / ".cache" / f"pi-{PI_VERSION}" / "node_modules" / ".bin" / "pi"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Each test has the usual umask, whatever the one before has left: a supervisor hardens its process for good."""
    before = os.umask(0o022)
    try:
        return (yield)
    finally:
        os.umask(before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hostile texts that a test has logged go to another process with its report, which takes no lone surrogates."""
    report = yield
    report.sections = [(title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections]
    return report


def _unavailable(why: str) -> NoReturn:
    """At home a test that cannot run is skipped, and says so; in CI it must run."""
    message = f"{why}; `make test-pi` installs pi {PI_VERSION}, or set POOL_TEST_PI to its executable"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


@pytest.fixture(scope="session")
def pi_command() -> str:
    """The real pi's executable."""
    node = shutil.which("node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout if node else ""
    found = re.match(r"v(\d+)", version)
    if found is None or int(found[1]) < 20:
        _unavailable(f"pi needs node 20 or newer, there is {version.strip() or 'none'}")
    named = os.environ.get("POOL_TEST_PI")
    command = Path(named) if named else CACHED
    if named and not command.exists():
        pytest.fail(f"POOL_TEST_PI names {named}, which does not exist", pytrace=False)
    if not command.exists():
        _unavailable(f"{command} does not exist")
    return str(command)
