"""What tests of system events do: end a command, inject an event, look at what waits."""

from typing import Any

from tests.gateway.workers import GatewayWorker
from tests.gateway.world import World

BUILT = "Exec completed (calm-fox, code 0) :: built"


def end_command(worker: GatewayWorker, summary: str = BUILT, **changes: Any) -> None:
    """A background command of the conversation that the worker has ends."""
    data = {"session_id": "calm-fox", "summary": summary, "session_key": worker.file, "exit_code": 0, **changes}
    worker.tell("exec_exit", **data)
    worker.tell("background", running=0)


async def inject(world: World, text: str, session: str = "alice", **params: Any) -> Any:
    return await world.call("events.inject", session=session, text=text, **params)


async def pending(world: World, session: str = "alice") -> list[str]:
    answer = await world.call("events.peek", session=session)
    assert answer["session"] == session
    return [event["text"] for event in answer["events"]]
