"""Several ids of one person are one name, and nobody else can take it."""

import pytest

from router.sessions import Identity, find_identity

LINKS = {"alice": ["telegram:1", "discord:a:b", "7"], "bob": ["telegram:7", "alice2"]}


@pytest.mark.parametrize(
    ("channel", "sender", "identity"),
    [
        ("telegram", "1", Identity(name="alice", link="telegram:1")),
        ("discord", "a:b", Identity(name="alice", link="discord:a:b")),
        ("discord", "7", Identity(name="alice", link="7")),
        ("telegram", "7", Identity(name="bob", link="telegram:7")),
        ("irc", "alice2", Identity(name="bob", link="alice2")),
        ("discord", "1", Identity(name="1")),
        ("telegram", "5", Identity(name="5")),
        ("irc", "telegram:1", Identity(name="telegram:1")),
        ("irc", "alice", Identity(name="alice", is_namesake=True)),
    ],
)
def test_a_sender_is_the_person_that_the_most_specific_link_names(
    channel: str, sender: str, identity: Identity
) -> None:
    assert find_identity(LINKS, channel, sender) == identity


def test_without_links_everybody_is_who_they_are() -> None:
    assert find_identity({}, "irc", "alice") == Identity(name="alice")
