"""What every benchmark shares: a result with its baseline and bar, facts about the machine, the table, the JSON file.

A benchmark is a module ``benchmarks/bench_*.py`` with a function ``run() -> list[Result]`` that takes < 20 s. It
measures its baseline in the same run: a figure without one says more about the machine than about the code.
"""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

__all__ = ["Result", "best_of", "machine_facts", "median", "percentile", "result", "show", "write_json"]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. ``ratio`` is value / baseline, ``bar`` the demand in words, ``met`` None where there is none."""

    name: str
    value: float
    unit: str
    baseline: float | None = None
    baseline_name: str = ""
    ratio: float | None = None
    bar: str = ""
    met: bool | None = None


def result(
    name: str,
    value: float,
    unit: str,
    *,
    baseline: float | None = None,
    baseline_name: str = "",
    at_most: float | None = None,
    at_least: float | None = None,
    ratio_at_most: float | None = None,
    ratio_at_least: float | None = None,
) -> Result:
    """Put a figure beside its baseline and judge it by the bars that are given."""
    ratio = value / baseline if baseline else None
    demands = [
        (at_most, value, "<=", f" {unit}"),
        (at_least, value, ">=", f" {unit}"),
        (ratio_at_most, ratio, "<=", " x"),
        (ratio_at_least, ratio, ">=", " x"),
    ]
    bars, verdicts = [], []
    for limit, measured, sign, suffix in demands:
        if limit is not None and measured is not None:
            bars.append(f"{sign} {limit:,.10g}{suffix}")
            verdicts.append(measured <= limit if sign == "<=" else measured >= limit)
    return Result(
        name=name,
        value=value,
        unit=unit,
        baseline=baseline,
        baseline_name=baseline_name,
        ratio=ratio,
        bar=", ".join(bars),
        met=all(verdicts) if verdicts else None,
    )


def percentile(samples: Sequence[float], share: float) -> float:
    """The sample below which ``share`` (0 ... 1) of them lie."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(samples: Sequence[float]) -> float:
    """The middle one: what a usual call takes."""
    return statistics.median(samples)


def best_of(times: int, measure: Callable[[], float]) -> float:
    """The smallest of some measurements in seconds: what the code takes when nothing else disturbs it."""
    return min(measure() for _ in range(times))


def machine_facts() -> dict[str, Any]:
    """What somebody needs to know to compare the figures with theirs."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024**2,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "trio": version("trio"),
        "msgspec": version("msgspec"),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def show(results: Sequence[Result], console: Console) -> None:
    """Print the table."""
    table = Table(title="benchmarks", title_justify="left")
    for heading in ("what", "value", "baseline", "ratio", "bar", ""):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for found in results:
        table.add_row(
            found.name,
            f"{_number(found.value)} {found.unit}",
            f"{_number(found.baseline)} {found.baseline_name}" if found.baseline is not None else "",
            f"{found.ratio:.2f} x" if found.ratio is not None else "",
            found.bar,
            {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[found.met],
        )
    console.print(table)
    console.print(", ".join(f"{name} {value}" for name, value in machine_facts().items()), style="dim")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def write_json(results: Sequence[Result], path: Path) -> None:
    """Keep the figures with the facts, for comparison over time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine_facts(), "results": [msgspec.to_builtins(found) for found in results]}
    path.write_text(json.dumps(content, indent=2) + "\n")
