"""Where an alert is to go: ``last``, ``none`` or ``channel:peer``, as settings and the command line say it. Pure.

Three channels are built in: ``events`` (the event stream alone), ``stdout`` (of ``pool run``) and ``webhook:NAME``. Any
other one is a front end's own: it follows the event stream and finds there who the alert is for.
"""

import re
from collections.abc import Collection

import msgspec

from errors import UsageError

__all__ = ["EVENTS", "LAST", "NOWHERE", "STDOUT", "WEBHOOK", "Place", "place_of", "target_problem"]

LAST = "last"
NOWHERE = "none"
WEBHOOK = "webhook"
_CHANNEL = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_LONGEST = 512
_HINT = 'write "last", "none", "events", "stdout", "webhook:NAME" or "CHANNEL:PEER"'


class Place(msgspec.Struct, frozen=True):
    """A channel and whom to reach through it; ``is_carried`` says that our own channels do not lead there.

    Then a front end carries it, which is told by the event stream.
    """

    channel: str
    peer: str = ""
    is_carried: bool = False

    def __str__(self) -> str:
        return f"{self.channel}:{self.peer}" if self.peer else self.channel


EVENTS = Place("events", is_carried=True)
STDOUT = Place("stdout")


def place_of(target: str, last: str | None) -> Place | None:
    """The place that a target means; None = it is to be told nowhere. ``last``: where the session last spoke.

    A session that spoke nowhere is told by the event stream alone. So is one whose front end goes by the name of a
    channel of ours: what a sender calls itself must not open the operator's webhooks. Raises UsageError.
    """
    if target == NOWHERE:
        return None
    if target != LAST:
        return _parse(target)
    channel, _, peer = (last or "").partition(":")
    if not peer or len(peer) > _LONGEST or not _CHANNEL.fullmatch(channel) or channel in _BUILT_IN:
        return EVENTS
    return Place(channel, peer, is_carried=True)


def target_problem(target: str, webhooks: Collection[str]) -> str | None:
    """What is wrong with a target where these webhooks are configured; None = nothing."""
    try:
        place = place_of(target, None)
    except UsageError as exc:
        return exc.message
    if place is not None and place.channel == WEBHOOK and place.peer not in webhooks:
        known = ", ".join(sorted(webhooks)) or "none"
        return f"there is no webhook {place.peer!r}; there are: {known}"
    return None


def _parse(target: str) -> Place:
    channel, colon, peer = target.partition(":")
    if target in _ALONE:
        return _ALONE[target]
    if not _CHANNEL.fullmatch(channel) or len(target) > _LONGEST:
        raise UsageError(f"{target[:80]!r} is no target of an alert; {_HINT}")
    if channel in _ALONE:
        raise UsageError(f"{channel!r} takes no peer; {_HINT}")
    if not (colon and peer and peer.isprintable() and peer == peer.strip()):
        raise UsageError(f"{target[:80]!r} does not say whom to reach through {channel!r}; {_HINT}")
    if channel in (LAST, NOWHERE):
        raise UsageError(f"{channel!r} is no channel; {_HINT}")
    return Place(channel, peer, is_carried=channel != WEBHOOK)


_ALONE = {str(place): place for place in (EVENTS, STDOUT)}
_BUILT_IN = frozenset({*_ALONE, WEBHOOK})
