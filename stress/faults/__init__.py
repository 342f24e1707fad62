"""Faults that are injected while the load goes on, by name."""

from errors import UsageError
from stress.faults.base import Fault, Preparation, Stroke, Target
from stress.faults.front_ends import LostFrontEnds
from stress.faults.supervisor import ClockAndPids, EndedSupervisors, Shortages
from stress.faults.workers import HurtWorkers, StubbornWorkers, WickedOutput

__all__ = ["Fault", "Preparation", "Stroke", "Target", "faults_of"]

_KINDS: tuple[type[Fault], ...] = (
    *(HurtWorkers, WickedOutput, StubbornWorkers, Shortages, EndedSupervisors, LostFrontEnds, ClockAndPids),
)


def faults_of(names: tuple[str, ...]) -> list[Fault]:
    """A fault for each name. Raises UsageError for one that there is not."""
    kinds = {kind.name: kind for kind in _KINDS}
    unknown = [name for name in names if name not in kinds]
    if unknown:
        raise UsageError(f"there is no fault {unknown[0]!r}; there are {', '.join(sorted(kinds))}")
    return [kinds[name]() for name in names]
