"""A front end accounts for each of its messages while the supervisor is killed again and again."""

from pathlib import Path

import pytest

from tests.acceptance.accounting import account_for

pytestmark = pytest.mark.process


@pytest.mark.timeout(180)  # a few seconds where nothing else runs
async def test_each_of_400_messages_is_accounted_for_while_the_supervisor_is_killed_twice(
    tmp_path: Path,
) -> None:
    account = await account_for(tmp_path, messages=400, senders=40, kills=2, seed=7, limit=120)
    assert account.problems == []
    assert account.fates.total() == 400
    assert account.lives == 3
    assert account.fates["completed"] > 40  # and every other way to end was tried too
    assert account.fates["completed in another's turn"] > 20
    assert account.fates["refused: saturated"] > 0
    assert account.fates["interrupted: aborted"] > 0
    assert account.resumed > 20
    assert account.sent_again > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
async def test_each_of_two_thousand_messages_is_accounted_for_while_the_supervisor_is_killed_ten_times(
    tmp_path: Path, seed: int
) -> None:
    account = await account_for(tmp_path, messages=2000, senders=50, kills=10, seed=seed, limit=100)
    assert account.problems == []
    assert account.fates.total() == 2000
    assert account.lives == 11


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
async def test_whatever_a_turn_says_of_a_steer_an_interruption_cannot_make_it_untrue(tmp_path: Path, seed: int) -> None:
    modes = ("steer", "steer", "steer", "interrupt")
    account = await account_for(tmp_path, messages=1500, senders=10, kills=0, seed=seed, modes=modes, limit=45)
    assert account.problems == []
    assert account.fates["completed in another's turn"] > 50
