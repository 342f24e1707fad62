"""The faults F1 to F7 as far as the machine can see them: each arms itself in a simulation and strikes at random.

What a fault looks like from here is what the shell would tell: a worker's exit, a failure, silence, news that come
twice or too late, a caller that is gone, another machine after a restart, a clock that jumps.
"""

import contextlib
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from errors import UsageError
from pool import stimuli
from pool.stimuli import FailureKind

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation


RESET_TIMEOUT = 10.0
PING_LIMIT = 30.0
"""Seconds of silence after which the shell calls a worker unresponsive."""


class Fault:
    """Something that goes wrong again and again while the load lasts."""

    name = ""
    every = 60.0
    """Mean virtual seconds between two strikes, while the pool is busy."""

    def __init__(self, rng: random.Random, haste: float = 1.0) -> None:
        self.rng = rng
        self.haste = haste

    def begin(self, sim: "Simulation") -> None:
        """Take effect, and strike for the first time some time from now."""
        self._wait(sim)

    def _wait(self, sim: "Simulation") -> None:
        sim.after(self.rng.expovariate(self.haste / self.every), self._again, sim)

    def _again(self, sim: "Simulation") -> None:
        if sim.now < sim.until:
            self.strike(sim)
            self._wait(sim)

    def strike(self, sim: "Simulation") -> None:
        """Go wrong once."""
        raise NotImplementedError

    def some_worker(self, sim: "Simulation") -> str | None:
        return self.rng.choice(list(sim.workers)) if sim.workers else None


class Killed(Fault):
    """F1: a worker is killed in whatever state it is, or stands still for up to a minute."""

    name = "F1"
    every = 5.0

    def strike(self, sim: "Simulation") -> None:
        worker = self.some_worker(sim)
        if worker is None:
            return
        if self.rng.random() < 0.3:
            self._freeze(sim, worker)
        elif self.rng.random() < 0.5 or sim.workers[worker].stopping:
            sim.die(worker)
        else:
            sim.fail(worker, FailureKind.CRASHED)  # told at once; what it left behind is swept before it is reaped

    def _freeze(self, sim: "Simulation", worker: str) -> None:
        seconds = self.rng.uniform(0.1, 60.0)
        paper = sim.workers[worker]
        sim.frozen[worker] = sim.now + seconds
        limit = RESET_TIMEOUT if paper.resetting is not None else PING_LIMIT
        if seconds > limit:
            sim.in_this_life(limit, sim.give_up_on, worker)


class Garbage(Fault):
    """F2: a worker breaks the protocol, or says what nobody asked it, twice, or of somebody else."""

    name = "F2"
    every = 5.0

    def begin(self, sim: "Simulation") -> None:
        sim.reset_failures = 0.005
        super().begin(sim)

    def strike(self, sim: "Simulation") -> None:
        worker = self.some_worker(sim)
        if worker is None:
            return
        if self.rng.random() < 0.5:
            if not sim.workers[worker].stopping:
                sim.fail(worker, FailureKind.PROTOCOL)
            return
        self._nonsense(sim, worker)

    def _nonsense(self, sim: "Simulation", worker: str) -> None:
        """Late and wrong news are refused or passed over, and change nothing in either case."""
        paper = sim.workers[worker]
        session = paper.resetting[0] if paper.resetting else "nobody"
        news: list[stimuli.Stimulus] = [
            stimuli.WorkerResetDone(worker, f"not {session}", "elsewhere.jsonl"),
            stimuli.WorkerReady("w999999999"),
            stimuli.Release(stimuli.WorkerHold("never", "nobody", worker, 0)),
            stimuli.Cancel("never"),
        ]
        if paper.ready:
            news.append(stimuli.WorkerReady(worker))
        if paper.reconciling is None:
            news.append(stimuli.WorkerReconciled(worker))
        if sim.holds:
            hold = self.rng.choice(list(sim.holds.values()))
            stale = stimuli.WorkerHold(hold.request, hold.session, hold.worker, hold.generation - 1)
            news.append(stimuli.Release(stale))
        told = self.rng.choice(news)
        with contextlib.suppress(UsageError):
            happened = sim.tell(told)
            assert not happened, f"{told} had consequences: {happened}"


class Clinging(Fault):
    """F3: workers that do not go when they are told to, and leave commands behind that go on for a while."""

    name = "F3"
    every = 15.0

    def begin(self, sim: "Simulation") -> None:
        sim.stop_seconds = lambda rng: rng.choice((0.05, 0.5, 5.0, 11.0))
        super().begin(sim)

    def strike(self, sim: "Simulation") -> None:
        worker = self.some_worker(sim)
        if worker is None or not sim.workers[worker].at_rest:
            return
        sim.set_background(worker, self.rng.randint(1, 3))
        sim.in_this_life(self.rng.expovariate(1 / 30.0), sim.set_background, worker, 0)


class NoProcesses(Fault):
    """F4: for a while no process can be started (EAGAIN, EMFILE), or what starts does not come up."""

    name = "F4"
    every = 120.0

    def strike(self, sim: "Simulation") -> None:
        chance = self.rng.choice((0.2, 0.5, 1.0))
        sim.start_failures = chance
        sim.after(self.rng.uniform(0.5, 10.0), self._mend, sim)

    def _mend(self, sim: "Simulation") -> None:
        sim.start_failures = 0.0


class Restarted(Fault):
    """F5: the supervisor is killed and started again; or drained, in the middle of starts too, and goes on."""

    name = "F5"
    every = 300.0

    def strike(self, sim: "Simulation") -> None:
        if self.rng.random() < 0.5:
            sim.restart()
            return
        sim.tell(self.rng.choice((stimuli.Drain(), stimuli.Pause())))
        sim.after(self.rng.expovariate(1.0), sim.tell, stimuli.Resume())


class GoneAway(Fault):
    """F6: callers that are gone at any moment, in that of their grant too."""

    name = "F6"
    every = 2.0

    def begin(self, sim: "Simulation") -> None:
        sim.on_grant.append(self._at_once)
        super().begin(sim)

    def _at_once(self, sim: "Simulation", request: str) -> None:
        if self.rng.random() < 0.01:
            sim.after(0.0, sim.change_mind, request)

    def strike(self, sim: "Simulation") -> None:
        if sim.open_requests:
            sim.change_mind(self.rng.choice(list(sim.open_requests)))


class Clock(Fault):
    """F7: the clock that is read goes back an hour (which must be ignored), or leaps since everything stood still."""

    name = "F7"
    every = 200.0

    def strike(self, sim: "Simulation") -> None:
        if self.rng.random() < 0.7:
            sim.tell_at(stimuli.ClockTick(), sim.now - 3600.0)
        else:
            sim.leap(self.rng.uniform(1.0, 20.0))


FAULTS: dict[str, type[Fault]] = {
    kind.name: kind for kind in (Killed, Garbage, Clinging, NoProcesses, Restarted, GoneAway, Clock)
}
ALL_FAULTS = tuple(FAULTS)


def named_faults(names: Iterable[str], seed: int, haste: float = 1.0) -> list[Fault]:
    """New faults, each with choices of its own, so that leaving one out does not change the others' choices."""
    return [FAULTS[name](random.Random(f"{seed} {name}"), haste) for name in names]
