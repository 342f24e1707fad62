"""Several ids of one person are one name, and nobody else can take it."""

import pytest

from router.sessions import SenderIdentity, find_identity

LINKS = {"alice": ["telegram:1", "discord:a:b", "7"], "bob": ["telegram:7", "alice2"]}


@pytest.mark.parametrize(
    ("channel", "sender", "identity"),
    [
        ("telegram", "1", SenderIdentity(name="alice", link="telegram:1")),
        ("discord", "a:b", SenderIdentity(name="alice", link="discord:a:b")),
        ("discord", "7", SenderIdentity(name="alice", link="7")),
        ("telegram", "7", SenderIdentity(name="bob", link="telegram:7")),
        ("irc", "alice2", SenderIdentity(name="bob", link="alice2")),
        ("discord", "1", SenderIdentity(name="1")),
        ("telegram", "5", SenderIdentity(name="5")),
        ("irc", "telegram:1", SenderIdentity(name="telegram:1")),
        ("irc", "alice", SenderIdentity(name="alice", is_namesake=True)),
    ],
)
def test_a_sender_is_the_person_that_the_most_specific_link_names(
    channel: str, sender: str, identity: SenderIdentity
) -> None:
    assert find_identity(LINKS, channel, sender) == identity


def test_without_links_everybody_is_who_they_are() -> None:
    assert find_identity({}, "irc", "alice") == SenderIdentity(name="alice")
