"""Invitations: a secret lets one link of one node in."""

import pytest

from cluster.invitations import Invitations
from cluster.remote_node import NodeOrigin

RAY = NodeOrigin(engine="ray", labels={"gpu": "yes"}, slots=2)


@pytest.fixture
def invitations() -> Invitations:
    return Invitations()


def test_a_secret_is_worth_nothing_for_another_name_or_where_it_is_empty(invitations: Invitations) -> None:
    secret = invitations.invite("a", RAY)
    assert invitations.origin_of("a", secret) == RAY
    assert [invitations.origin_of(*shown) for shown in (("b", secret), ("a", ""), ("a", secret[:-1]))] == [None] * 3


def test_a_used_secret_lets_no_other_link_in_and_its_name_stays_the_engines(invitations: Invitations) -> None:
    secret = invitations.invite("a", RAY)
    invitations.use("a")
    assert [invitations.origin_of("a", shown) for shown in (secret, "")] == [None, None]
    assert invitations.is_invited("a")
    again = invitations.invite("a", RAY)
    assert [invitations.origin_of("a", shown) for shown in (secret, again)] == [None, RAY]
    invitations.revoke("a")
    assert (invitations.origin_of("a", again), invitations.is_invited("a")) == (None, False)
