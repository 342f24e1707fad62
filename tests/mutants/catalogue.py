"""All guards of the list, by the room they stand in."""

from tests.mutants import agent, doors, gateway, heartbeat, pool, rpc, store, stress
from tests.mutants.mutant import Mutant

BY_ROOM: dict[str, tuple[Mutant, ...]] = {
    "pool": pool.MUTANTS,
    "rpc": rpc.MUTANTS,
    "gateway": gateway.MUTANTS,
    "store": store.MUTANTS,
    "agent": agent.MUTANTS,
    "heartbeat": heartbeat.MUTANTS,
    "doors": doors.MUTANTS,
    "stress": stress.MUTANTS,
}
MUTANTS: tuple[Mutant, ...] = tuple(mutant for mutants in BY_ROOM.values() for mutant in mutants)
