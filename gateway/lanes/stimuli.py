"""What can happen to the lanes: the inputs of ``LaneMachine.handle``. Plain facts, no behaviour.

A *run* is one accepted message; a *turn* is one prompt to a worker and serves one run, or several that were merged or
steered into it. Both are opaque unique names: the runs' are the gateway's, the turns' the machine's.
"""

import msgspec

from gateway.settings import QueueMode, QueueSettings

__all__ = [
    "Clear",
    "Reconfigure",
    "SteerRefused",
    "Stimulus",
    "Submit",
    "Tick",
    "TurnEnded",
    "TurnSteerable",
    "Withdraw",
]


class Submit(msgspec.Struct, frozen=True, kw_only=True):
    """A run was accepted. Ends in exactly one of: StartTurn, Steer (whose turn answers for it), Refuse, or a Withdraw.

    ``mode``: what to do when the session is busy. ``lane``: which named lane bounds it besides. ``exclusive``: never
    merged with others and never steered (it holds the session, or carries more than text).
    """

    run: str
    session: str
    text: str
    mode: QueueMode
    priority: int = 5
    lane: str = "main"
    exclusive: bool = False


class TurnSteerable(msgspec.Struct, frozen=True):
    """The turn streams and takes steers from now on, or (compaction, its end near) takes none for now."""

    turn: str
    steerable: bool


class SteerRefused(msgspec.Struct, frozen=True):
    """The worker did not take the steer: the run becomes a follow-up, ahead of what came after it."""

    turn: str
    run: str


class TurnEnded(msgspec.Struct, frozen=True):
    """The turn is over, however it ended. ``unconsumed``: steers it took and never saw; they become follow-ups."""

    turn: str
    unconsumed: tuple[str, ...] = ()


class Withdraw(msgspec.Struct, frozen=True):
    """The caller takes a waiting run back; no action follows for it. Unknown and running ones: no-op."""

    run: str


class Clear(msgspec.Struct, frozen=True):
    """Every run of the session that waits is refused with ``cleared``; a running turn goes on."""

    session: str


class Tick(msgspec.Struct, frozen=True):
    """Time has passed: sent at ``next_wakeup``."""


class Reconfigure(msgspec.Struct, frozen=True):
    """New limits; what waits already stays."""

    settings: QueueSettings


Stimulus = Submit | TurnSteerable | SteerRefused | TurnEnded | Withdraw | Clear | Tick | Reconfigure
