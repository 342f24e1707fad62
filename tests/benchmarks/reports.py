"""Reports to test with, of figures that are good, bad and unlike any."""

from benchmarks.harness import Result
from benchmarks.report import Machine, Report

MACHINE = Machine(
    time="2026-01-31T10:00:00Z",
    cpu="Some & Sons <64>",
    cores=2,
    memory_mib=4096,
    kernel="Linux 6.1",
    python="3.11.7",
    trio="0.30",
    msgspec="0.19",
    load_at_begin=(0.1, 0.2, 0.3),
    load_at_end=(1.5, 0.9, 0.4),
)


def report_of(*results: Result) -> Report:
    return Report(machine=MACHINE, results=list(results))
