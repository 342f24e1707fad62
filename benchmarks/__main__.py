"""``python -m benchmarks [NAME ...]``: run every ``bench_*.py`` (or those named), print the table, keep the figures."""

import argparse
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import msgspec
from rich.console import Console

import benchmarks
from benchmarks.chart import draw
from benchmarks.harness import Result
from benchmarks.report import Report, show, this_machine

_LIMIT = 600  # seconds for one module


def main() -> int:
    """Exit status 0 if all ran; with ``--strict`` only if every row has its figures and each reaches its bar."""
    arguments = _arguments()
    if arguments.child:
        results = importlib.import_module(f"benchmarks.{arguments.child}").run()
        sys.stdout.buffer.write(msgspec.json.encode(results))
        return 0
    console = Console()
    load = os.getloadavg()
    results, broken = [], 0
    for name in _chosen(arguments.names):
        try:
            results += _run_alone(name)
        except (subprocess.SubprocessError, msgspec.MsgspecError) as exc:
            broken += 1
            console.print(f"{name}: {exc}", style="red")
    report = Report(machine=this_machine(load), results=results)
    show(report, console, is_whole=not arguments.names)
    report.write(arguments.json)
    if arguments.chart:
        arguments.chart.write_text(draw(Report.read(arguments.json)))
    return 1 if broken or (arguments.strict and (report.missed or report.unmeasured)) else 0


def _run_alone(name: str) -> list[Result]:
    """In a process of its own, so that memory and garbage of one benchmark do not weigh on the next."""
    command = [sys.executable, "-P", "-m", "benchmarks", "--child", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=_LIMIT, check=True)
    return msgspec.json.decode(done.stdout, type=list[Result])


def _all() -> list[str]:
    return sorted(found.name for found in pkgutil.iter_modules(benchmarks.__path__) if found.name.startswith("bench_"))


def _chosen(names: list[str]) -> list[str]:
    return [name for name in _all() if not names or name.removeprefix("bench_") in names]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    known = [name.removeprefix("bench_") for name in _all()]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or some of {', '.join(known)}")
    parser.add_argument("--json", type=Path, default=Path("artefacts/bench.json"), help="where to keep the figures")
    parser.add_argument("--chart", type=Path, help="where to draw them, as SVG")
    parser.add_argument("--strict", action="store_true", help="fail when a bar is missed or a row has no figure")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
