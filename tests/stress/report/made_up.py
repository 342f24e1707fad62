"""Results as runs might have had them, made up."""

from typing import Any

from stress.facts import FaultInjected
from stress.outcome import INVARIANTS, InvariantVerdict, LatencyQuantiles, SecondMetrics, StressResult, ViolationReport
from stress.plan import StressOptions, make_plan
from tests.stress.story import Story


def a_second(second: int, **fields: Any) -> SecondMetrics:
    requests = {"asked": 20, "answered": 18, "failed": 1, "waiting": 5, "running": 3, "p50": 0.02, "p99": 0.15}
    supervisor = {"workers": 4, "rss": 50 * 1024 * 1024, "fds": 40}
    return SecondMetrics(**{"second": second, **requests, **supervisor, "faults": 0, "delayed": 0.01, **fields})


def verdicts(**broken: int) -> tuple[InvariantVerdict, ...]:
    """All of them looked at 1,234 times, and broken so often."""
    return tuple(
        InvariantVerdict(invariant=name, title=title, checked=1234, broken=broken.get(name, 0))
        for name, title in INVARIANTS.items()
    )


def a_violation(**fields: Any) -> ViolationReport:
    """A request that has no outcome, as the judge has seen it."""
    story = Story("ask 5; begin 5; end")
    shape: dict[str, Any] = {"invariant": "I1", "t": story.t, "what": "request 5 has no outcome"}
    return ViolationReport(**{**shape, "history": tuple(story.facts), "shortest": tuple(story.facts[1:]), **fields})


def a_result(**fields: Any) -> StressResult:
    """A green one of 30 seconds, unless ``fields`` say otherwise."""
    shape: dict[str, Any] = {
        "plan": make_plan(StressOptions(faults=("F1",), scale=1 / 20, seconds=30.0, seed=4711)),
        "machine": {"cpus": 2, "memory_gib": 24.0, "kernel": "6.1", "python": "3.11"},
        "began_at": 1_700_000_000.0,
        "seconds": 31.5,
        "lives": 1,
        "fates": {"completed": 540, "error: worker_exited": 30},
        "latencies": LatencyQuantiles(count=540, p50=0.02, p99=0.15, max=1.5),
        "calm_latencies": LatencyQuantiles(),
        "faults": (FaultInjected(t=12.0, fault="F1", action="kill", worker="w2", pid=42),),
        "verdicts": verdicts(),
        "violations": (),
        "series": tuple(a_second(second, faults=int(second == 12)) for second in range(30)),
    }
    return StressResult(**{**shape, **fields})
