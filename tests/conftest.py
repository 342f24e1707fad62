"""Fixtures of the whole suite: where the real pi is; how Hypothesis runs."""

import gc
import os
import re
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest

from tests.real_pi import PI_VERSIONS, RealPi
from tests.virtual_time import use_virtual_time

hypothesis.settings.register_profile("suite", deadline=None)  # a deadline per example measures how busy the machine is
hypothesis.settings.load_profile("suite")

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("COLUMNS", None)  # what the tests start is told no width, as where they run one after the other

_NAMED = os.environ.get("POOL_TEST_PI")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: no collection of garbage looks at these millions of objects, then or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--each-pi", action="store_true", help="run every test with the real pi on each of the supported versions"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    use_virtual_time(items)


@pytest.fixture
def virtual_time() -> None:
    """The test runs on a clock that jumps to the next deadline."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """On the oldest version each test with the real pi runs, on others what is marked ``each_pi``, or asked for."""
    if "real_pi" in metafunc.fixturenames:
        on_each = metafunc.config.getoption("--each-pi") or metafunc.definition.get_closest_marker("each_pi")
        versions = [_NAMED] if _NAMED else PI_VERSIONS if on_each else PI_VERSIONS[:1]
        metafunc.parametrize("real_pi", versions, indirect=True, scope="session")


def _unavailable(why: str) -> NoReturn:
    """At home a test that cannot run is skipped, and says so; in CI it must run."""
    message = f"{why}; `make test-pi` installs pi {' and '.join(PI_VERSIONS)}, or set POOL_TEST_PI to an executable"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


@pytest.fixture(scope="session")
def real_pi(request: pytest.FixtureRequest) -> RealPi:
    """A version of the real pi; POOL_TEST_PI names one that takes the place of all."""
    node = shutil.which("node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout if node else ""
    found = re.match(r"v(\d+)", version)
    if found is None or int(found[1]) < 20:
        _unavailable(f"pi needs node 20 or newer, there is {version.strip() or 'none'}")
    pi = RealPi(Path(_NAMED)) if _NAMED else RealPi.of(request.param)
    if _NAMED and not pi.command.exists():
        pytest.fail(f"POOL_TEST_PI names {_NAMED}, which does not exist", pytrace=False)
    if not pi.command.exists():
        _unavailable(f"{pi.command} does not exist")
    return pi


@pytest.fixture(scope="session")
def pi_command(real_pi: RealPi) -> str:
    """The real pi's executable."""
    return str(real_pi.command)
