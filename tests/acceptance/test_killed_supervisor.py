"""kill -9 of the supervisor at any moment under load: a front end accounts for each of its messages."""

from pathlib import Path

import pytest

from tests.acceptance.accounting import account_for

pytestmark = pytest.mark.process


async def test_what_was_accepted_ends_once_whenever_the_supervisor_is_killed(tmp_path: Path) -> None:
    """Once after each kind of sign; and every other way for a message to end is tried too."""
    account = await account_for(tmp_path, messages=400, senders=40, kills=5, seed=7, limit=150)
    assert account.problems == []
    assert (account.fates.total(), account.lives) == (400, 6)
    for fate, least in (("completed", 40), ("completed in another's turn", 20), ("refused: saturated", 1)):
        assert account.fates[fate] >= least, account.fates
    assert account.fates["interrupted: aborted"] > 0
    assert min(account.resumed, account.sent_again) > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(30))
async def test_each_of_two_thousand_messages_is_accounted_for_while_the_supervisor_is_killed_ten_times(
    tmp_path: Path, seed: int
) -> None:
    account = await account_for(tmp_path, messages=2000, senders=50, kills=10, seed=seed, limit=100)
    assert account.problems == []
    assert (account.fates.total(), account.lives) == (2000, 11)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
async def test_whatever_a_turn_says_of_a_steer_an_interruption_cannot_make_it_untrue(tmp_path: Path, seed: int) -> None:
    modes = ("steer", "steer", "steer", "interrupt")
    account = await account_for(tmp_path, messages=1500, senders=10, kills=0, seed=seed, modes=modes, limit=45)
    assert account.problems == []
    assert account.fates["completed in another's turn"] > 50
