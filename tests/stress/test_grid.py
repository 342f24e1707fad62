"""The long form of driving a pool: every load beside every fault, full size, and a million requests."""

import subprocess
import sys
from pathlib import Path

import pytest

from stress.plan import FAULTS, LOADS

pytestmark = [pytest.mark.process, pytest.mark.soak]


def drive(folder: Path, *options: str) -> None:
    """A run of ``pool stress`` that ends green; what it says otherwise is shown."""
    command = [sys.executable, "-P", "-m", "cli", "stress", "--report", str(folder / "page.html"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("load", LOADS)
def test_every_promise_is_kept_under_this_load_and_fault(load: str, fault: str, tmp_path: Path) -> None:
    drive(tmp_path, "--load", load, "--faults", fault, "--scale", "1/20", "--seconds", "20")


@pytest.mark.timeout(1800)
def test_every_promise_is_kept_to_ten_thousand_sessions_by_64_workers(tmp_path: Path) -> None:
    drive(tmp_path, "--load", "L1", "--faults", "F1,F2", "--sessions", "10000", "--workers", "64")


@pytest.mark.timeout(12 * 3600)
def test_of_a_million_requests_none_is_lost_told_twice_or_answered_with_anothers_words(tmp_path: Path) -> None:
    """A fault a second, which is what 64 workers get; each session keeps its worker, so that turns take the time."""
    drive(tmp_path, "--load", "L5", "--faults", "F1", "--sessions", "64", "--workers", "64", "--rate", "200")
