"""Passes every fact to the checks, the metrics and listeners; keeps the clock of a run."""

import os
import platform
import time
from collections.abc import Callable, Iterator

import msgspec

from stress.checker import Checker, CheckRules, shrink
from stress.facts import Fact, Journal
from stress.metrics import RunMetrics
from stress.outcome import StressResult, ViolationReport
from stress.plan import Plan


class RunRecorder(Journal):
    """One run. ``listeners`` get each fact at once; the checks follow later."""

    def __init__(self, plan: Plan, rules: CheckRules) -> None:
        super().__init__(self.clock, self._pass_on)
        self.plan = plan
        self.checker = Checker(rules)
        self._rules = rules
        self.metrics = RunMetrics(plan.ramp, plan.calm)
        self.listeners: list[Callable[[Fact], None]] = []
        self._began_at = time.time()
        self._began: float | None = None

    def begin(self) -> None:
        """The load begins now."""
        self._began = time.monotonic()

    def clock(self) -> float:
        """Seconds since the load began; 0 before."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def _pass_on(self, fact: Fact) -> None:
        self.checker.observe(fact)
        self.metrics.observe(fact)
        for listener in self.listeners:
            listener(fact)

    def finish(self) -> None:
        """No more facts come."""
        self.checker.finish()
        self.metrics.finish()

    def result(self, *, log: str = "") -> StressResult:
        """The result of a finished run. ``log``: path of the supervisor's log, if it was kept."""
        return StressResult(
            plan=self.plan,
            machine=_machine_facts(),
            began_at=self._began_at,
            seconds=self.clock(),
            lives=self.metrics.lives,
            faulty=self.metrics.faulty,
            fates=dict(self.metrics.fates),
            latencies=self.metrics.latencies,
            calm_latencies=self.metrics.calm_latencies,
            faults=tuple(self.metrics.faults),
            verdicts=self.checker.verdicts(),
            violations=tuple(self._violations()),
            harms=dict(self.checker.harms),
            series=tuple(self.metrics.series),
            log=log,
        )

    def _violations(self) -> Iterator[ViolationReport]:
        """The first of each invariant gets the shortest history that shows it, which may take some seconds each."""
        evidence = dict(self.checker.evidence)
        for violation in self.checker.violations:
            first = evidence.pop(violation.invariant, None)
            found = [] if first is None else shrink(first, self._rules, likely=violation.history)
            yield msgspec.structs.replace(violation, shortest=tuple(found))


def _machine_facts() -> dict[str, str | int | float]:
    """Facts of the machine that the figures depend on."""
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
