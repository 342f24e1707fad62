"""Faults that are injected while the load goes on, by name."""

from errors import UsageError
from stress.faults.clock_and_pids import ClockAndPids
from stress.faults.ended_supervisors import EndedSupervisors
from stress.faults.hurt_workers import HurtWorkers
from stress.faults.lost_front_ends import LostFrontEnds
from stress.faults.port import Fault, Preparation, Stroke, Target
from stress.faults.shortages import Shortages
from stress.faults.wicked_workers import StubbornWorkers, WickedOutput

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
