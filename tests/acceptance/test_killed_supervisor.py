"""kill -9 of the supervisor at any moment under load: what was accepted ends once, whatever its end."""

from pathlib import Path

import pytest

from tests.acceptance.killing import moments_of, survive

pytestmark = pytest.mark.process

FIVE_DEATHS_EACH = [*range(2), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(100, 140))]


@pytest.mark.timeout(180)  # seven seconds where nothing else runs
@pytest.mark.parametrize("seed", FIVE_DEATHS_EACH)
async def test_what_was_accepted_ends_once_whenever_the_supervisor_is_killed(tmp_path: Path, seed: int) -> None:
    book = await survive(tmp_path, moments_of(seed), seed)
    assert book.audit() == []
    fates = book.fates()
    assert fates.total() == 190
    assert fates["completed"] > 30  # the load was one
