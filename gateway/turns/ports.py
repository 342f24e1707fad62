"""What a turn asks of the house around it: the gateway's desk, and the lane that its session is in."""

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from gateway.events.translate import TurnOutput
from gateway.runs.run import Run
from heartbeat.system_events import SystemEvent
from pool.lease import Lease

if TYPE_CHECKING:
    from gateway.turns.turn import Turn


class TurnDesk(Protocol):
    """What a turn asks of the gateway."""

    def lease(self, turn: "Turn") -> AbstractAsyncContextManager[Lease]:
        """A worker for the turn's session."""
        ...

    async def mark_started(self, runs: list[Run], turn: "Turn", worker: str) -> None:
        """Make durable that these runs may reach the worker from now on."""
        ...

    def history_turns(self, turn: "Turn") -> int | None:
        """How many user messages the model is shown in the turn; None = all."""
        ...

    def claim_events(self, turn: "Turn") -> list[SystemEvent]:
        """What the session is to be told with the turn's prompt, and is told by no other turn."""
        ...

    async def publish(self, turn: "Turn", steps: list[TurnOutput]) -> None:
        """Hand on what the worker said; waits for nothing but hooks that have a say in it."""
        ...

    async def wait_store_room(self) -> None:
        """Wait while too much of what was published is not yet on the disk."""
        ...

    def set_awaiting_person(self, turn: "Turn", over: str | None) -> None:
        """The turn waits for a person from now on (``over`` None), or no longer; ``over``: why."""
        ...


class TurnLanes(Protocol):
    """What a turn tells its session's lane."""

    def set_steerable(self, turn: "Turn", *, now: bool) -> None:
        """The turn takes steers from now on, or no longer."""
        ...

    def requeue_steer(self, turn: "Turn", run: Run) -> None:
        """The worker did not take the steer: it waits for a turn of its own."""
        ...
