"""Invitations: a secret lets one link in, whatever is lost on the way."""

import itertools

import pytest

from cluster.invitations import Invitations
from cluster.remote_node import NodeOrigin

RAY = NodeOrigin(engine="ray", labels={"gpu": "yes"}, slots=2)


@pytest.fixture
def invitations() -> Invitations:
    numbers = itertools.count(1)
    found = Invitations(lambda: f"s{next(numbers)}")
    assert found.invite("a", RAY) == "s1"
    return found


def test_a_secret_is_worth_nothing_for_another_name_or_where_it_is_empty(invitations: Invitations) -> None:
    assert invitations.origin_of("a", "s1") == RAY
    assert [invitations.origin_of(*shown) for shown in (("b", "s1"), ("a", ""), ("a", "s2"))] == [None] * 3


def test_a_secret_is_used_up_once_its_node_has_shown_that_it_has_the_next_one(invitations: Invitations) -> None:
    given = invitations.welcome("a", "s1")
    assert [invitations.origin_of("a", shown) for shown in ("s1", given)] == [RAY, RAY], "the welcome may be lost"
    invitations.confirm("a", given)
    assert [invitations.origin_of("a", shown) for shown in ("s1", given)] == [None, RAY]
    later = invitations.welcome("a", given)
    assert invitations.welcome("a", given) != later, "a welcome that was lost is not confirmed by a later one"
    invitations.confirm("a", later)
    assert invitations.origin_of("a", given) == RAY


def test_a_new_invitation_and_a_dismissal_take_the_old_ones_back(invitations: Invitations) -> None:
    given = invitations.welcome("a", "s1")
    again = invitations.invite("a", RAY)
    invitations.confirm("a", given)
    assert [invitations.origin_of("a", shown) for shown in ("s1", given, again)] == [None, None, RAY]
    invitations.revoke("a")
    assert (invitations.origin_of("a", again), invitations.is_invited("a")) == (None, False)
    assert invitations.welcome("b", "") == "", "of a node that came by other means"
