"""What the shutdown of a supervisor waits for, in words."""

from collections.abc import Iterable, Iterator

from gateway.permissions import Permissions
from gateway.turn import Turn

__all__ = ["waits_for"]

_SHOWN = 10


def waits_for(turns: Iterable[Turn], permissions: Permissions, asked: Iterable[str], now: float) -> list[str]:
    """One sentence for each running turn, and for each session in ``asked``, where a front end awaits an answer."""
    lines = [_turn(turn, permissions, now) for turn in turns if turn.worker is not None]
    lines += [f"session {session}: a request of a front end" for session in asked]
    return lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"and {len(lines) - _SHOWN} more"]


def _turn(turn: Turn, permissions: Permissions, now: float) -> str:
    return f"session {turn.session}: " + ", ".join(_parts(turn, permissions, now))


def _parts(turn: Turn, permissions: Permissions, now: float) -> Iterator[str]:
    yield f"a turn on worker {turn.worker}"
    since = None if turn.lease is None else turn.lease.running_since
    if since is not None:
        yield f"{now - since:.0f} s so far"
    for call in permissions.pending(turn.session)[:1]:
        yield f"which waits for a person (pool approve -s {turn.session} {call.id})"
