"""What a run of the benchmarks results in: the figures with the facts of the machine, as a table and as a file."""

import os
import platform
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.harness import Result
from benchmarks.promises import Promise

_WIDTH = 160
"""Columns of the table where the terminal does not report its width."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of the machine that are needed to compare the figures with those of another one."""

    time: str
    cpu: str
    cores: int
    memory_mib: int
    kernel: str
    python: str
    trio: str
    msgspec: str
    load_at_begin: tuple[float, float, float]
    """Processes that wanted to run in the last 1, 5 and 15 minutes: more than there are cores, and nothing holds."""
    load_at_end: tuple[float, float, float]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one run."""

    machine: Machine
    results: list[Result]

    def of(self, promise: Promise | None) -> list[Result]:
        """Those that hold one row of the table; None: all others."""
        return [found for found in self.results if found.promise is promise]

    @property
    def missed(self) -> list[Result]:
        """Those that do not reach their bar."""
        return [found for found in self.results if found.met is False]

    @property
    def unmeasured(self) -> list[Promise]:
        """Rows of the table that have no figure."""
        return [promise for promise in Promise if not self.of(promise)]

    def write(self, path: Path) -> None:
        """Keep it, for comparison over time."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")

    @classmethod
    def read(cls, path: Path) -> "Report":
        """What ``write`` has kept."""
        return msgspec.json.decode(path.read_bytes(), type=cls)


def this_machine(load_at_begin: tuple[float, float, float]) -> Machine:
    """The facts as they are now, at the end."""
    return Machine(
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        cpu=_cpu_model(),
        cores=os.cpu_count() or 1,
        memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024**2,
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        trio=version("trio"),
        msgspec=version("msgspec"),
        load_at_begin=load_at_begin,
        load_at_end=os.getloadavg(),
    )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


# --- the table --------------------------------------------------------------------------------------------------------


def show(report: Report, console: Console, *, is_whole: bool = True) -> None:
    """Print what is promised, row by row, then what else was measured, then on what.

    A report that ``is_whole`` has all rows of the table: those without a figure are named.
    """
    if not console.is_terminal:
        console.width = _WIDTH
    promised = _table("what is promised", "figure", "value", "baseline", "ratio", "bar", "")
    for promise in Promise:
        figures = report.of(promise)
        for position, found in enumerate(figures):
            promised.add_row("" if position else promise, *_cells(found), end_section=position == len(figures) - 1)
        if is_whole and not figures:
            promised.add_row(promise, "[yellow]not measured[/]", end_section=True)
    others = _table("what else was measured", "value", "baseline", "ratio", "bar", "")
    for found in report.of(None):
        others.add_row(*_cells(found))
    for table in (promised, others):
        if table.row_count:
            console.print(table)
    console.print(", ".join(_facts(report.machine)), style="dim")


def _table(*headings: str) -> Table:
    table = Table()
    for heading in headings:
        table.add_column(heading, justify="right" if heading in {"value", "baseline", "ratio", "bar"} else "left")
    return table


def _cells(found: Result) -> Sequence[str]:
    return (
        found.name,
        f"{number(found.value)} {found.unit}",
        f"{number(found.baseline)} {found.baseline_name}" if found.baseline is not None else "",
        f"{number(found.ratio)} x" if found.ratio is not None else "",
        found.bar,
        {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[found.met],
    )


def _facts(machine: Machine) -> Iterable[str]:
    for name, value in msgspec.structs.asdict(machine).items():
        words = " ".join(f"{load:.2f}" for load in value) if isinstance(value, tuple) else value
        yield f"{name.replace('_', ' ')} {words}"


def number(value: float) -> str:
    """With three digits, or all that stand before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
