"""Agents do not beat all at once."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heartbeat.schedule import jittered


@given(st.floats(1, 1e9), st.text())
def test_an_interval_is_within_a_tenth_of_the_one_that_is_set(every: float, agent: str) -> None:
    assert 0.9 * every * (1 - 1e-9) <= jittered(every, agent) <= 1.1 * every * (1 + 1e-9)


def test_names_that_are_no_unicode_have_an_interval_too() -> None:
    assert jittered(300, "\ud800") == pytest.approx(300, rel=0.1)


def test_agents_are_spread_over_all_of_it() -> None:
    intervals = [jittered(300, f"agent-{number}") for number in range(10_000)]
    shares = [sum(1 for each in intervals if 270 + 6 * step <= each < 276 + 6 * step) for step in range(10)]
    assert min(shares) > 800


@pytest.mark.process
def test_an_agents_interval_is_the_same_in_every_life() -> None:
    program = "from heartbeat.schedule import jittered; print(repr(jittered(300.0, 'scout')))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=20)
    assert float(printed.stdout) == jittered(300.0, "scout")
