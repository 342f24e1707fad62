"""What came of a simulation: its figures, and whether the pool did as much as the load may expect of it."""

import msgspec

from tests.sim.simulation import Simulation

_IN_VAIN = ("expired", "refused: saturated", "refused: profile_broken")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One run in figures; waits are seconds."""

    load: str
    faults: str
    seed: int
    hours: float
    requests: int
    events: int
    granted: int
    in_vain: int
    """Requests that waited and got nothing: expired, refused by a full list or an open breaker."""
    spawned: int
    used: float
    """Share of the workers' time that was turns, while the load lasted."""
    median: float
    p99: float
    shortfalls: tuple[str, ...] = ()
    """What the pool should have done better; empty where all is well."""


def judge(sim: Simulation) -> Verdict:
    """The verdict on a simulation that has run to its end."""
    waits = sorted(wait for line in sim.waits.values() for wait in line)
    verdict = Verdict(
        load=sim.load.name,
        faults=",".join(fault.name for fault in sim.faults) or "none",
        seed=sim.seed,
        hours=sim.until / 3600.0,
        requests=sim.request_count,
        events=sim.promises.steps,
        granted=sim.totals["granted"],
        in_vain=sum(sim.totals[what] for what in _IN_VAIN),
        spawned=sim.totals["spawned"],
        used=sim.used / sim.scale.workers / sim.until,
        median=waits[len(waits) // 2] if waits else 0.0,
        p99=waits[len(waits) * 99 // 100] if waits else 0.0,
    )
    return msgspec.structs.replace(verdict, shortfalls=tuple(_shortfalls(sim, verdict)))


def _shortfalls(sim: Simulation, verdict: Verdict) -> list[str]:
    load, found = sim.load, []
    if load.lost is not None:
        allowed = load.lost * verdict.requests if sim.faults else 0
        if verdict.in_vain > allowed:
            found.append(f"{verdict.in_vain} of {verdict.requests} requests waited in vain, at most {allowed:.0f} may")
    if verdict.used < load.served:
        found.append(f"the workers were used for {verdict.used:.2f} of their time, {load.served} is asked")
    ranked = [sum(sim.waits[priority]) / max(1, len(sim.waits[priority])) for priority in sorted(sim.waits)]
    if load.served and ranked != sorted(ranked, reverse=True):
        found.append(f"the more important waited longer: {ranked}")
    return found
