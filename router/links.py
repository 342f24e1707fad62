"""Identity links: several ids of one person, one name. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

__all__ = ["Identity", "find_identity"]


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who a sender is: ``name`` stands in the session key."""

    name: str
    link: str | None = None
    """The id in the settings by which the sender was recognised; None = the sender is linked to nobody."""
    is_namesake: bool = False
    """An unlinked sender whose id is the name of a link: whoever may choose an id could otherwise be that person."""


def find_identity(links: Mapping[str, Sequence[str]], channel: str, sender: str) -> Identity:
    """The person behind a sender. ``channel:id`` comes before the bare id.

    An entry with a colon is always ``channel:id``: else a sender who calls himself ``telegram:111`` elsewhere would be
    taken for that person.
    """
    entries = [f"{channel}:{sender}"]
    if ":" not in sender:
        entries.append(sender)
    for entry in entries:
        for name, ids in links.items():
            if entry in ids:
                return Identity(name=name, link=entry)
    return Identity(name=sender, is_namesake=sender in links)
