"""What is promised to be measured, in the order in which the table shows it; ``what`` are the table's own words."""

from enum import StrEnum


class Promise(StrEnum):
    """A row of the table. One may be held by several figures, and every one must have at least one."""

    ROUND_TRIP = "warm request round trip through RpcClient"
    PING = "ping through the control socket"
    DURABLE_RUN = "a durable run through the control socket, warm"
    TURN = "a durable turn with the bundled agent, eight sessions at once"
    ACQUIRE = "PoolMachine.handle(Acquire) with 100 ... 50,000 waiters"
    MANY_WORKERS = "the same beside 10,000 workers, and a change of the settings"
    DRAIN = "enqueue + drain 50,000 waiters"
    EVENTS = "events/s, one worker streaming 400,000 pieces to one subscriber in process"
    DOORS = "the same over the control socket / SSE / WebSocket"
    PI_BYTES = "real pi answer of 2,000 pieces: bytes leaving the gateway / bytes from pi"
    ACQUIRE_IDLE = "acquire on an idle exact worker incl. reset (scripted)"
    REBIND = "rebind of a quiescent worker to a parked session"
    FIRST_PING = "bundled agent: spawn to first ping answered"
    MEMORY = "memory: supervisor RSS with 64 workers, 10,000 sessions, 1M events through"
    IDLE_WEBSOCKET = "an idle WebSocket connection"
    START = "pool run until its socket answers; full: 10,000 sessions and 1,000,000 events"
    COMMANDS = "short commands of the command line"
    DISPATCH = "dispatch beside other pools"
