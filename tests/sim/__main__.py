"""``python -m tests.sim``: loads and faults on the pool's machine in virtual time; says how to repeat what failed."""

import argparse
import itertools
import math
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.sim.faults import ALL_FAULTS, named_faults
from tests.sim.loads import LOADS, Scale
from tests.sim.simulation import Simulation
from tests.sim.verdict import Verdict, judge

HEADINGS = f"{'load':4} {'faults':21} {'seed':>4} {'requests':>9} {'events':>9} {'granted':>9} {'in vain':>8}"
HEADINGS += f" {'spawned':>8} {'used':>5} {'p50':>8} {'p99':>8} {'virtual':>9} {'took':>6}"
_MOST_HOURS = 1_000_000


class Run(NamedTuple):
    """What to simulate."""

    seed: int
    load: str
    faults: tuple[str, ...]


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; 0 = every promise was kept."""
    options = _options(arguments)
    scale = Scale(options.sessions, options.workers, options.turn)
    began = time.perf_counter()
    _say(HEADINGS)
    for count, run in enumerate(_runs(options)):
        if count >= options.at_least and time.perf_counter() - began > options.budget:
            break
        if not _perform(run, scale, options.hours):
            return 1
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="where the choices begin (default 1)")
    parser.add_argument("--load", default="all", help=f"some of {','.join(LOADS)}, or all")
    parser.add_argument("--faults", help=f"some of {','.join(ALL_FAULTS)}, all, or none; without it: none, then all")
    parser.add_argument("--hours", type=_as_hours, default=1.0, help="of virtual time under load (default 1)")
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--turn", type=float, default=10.0, help="mean seconds of a turn")
    parser.add_argument(
        "--budget", type=float, default=0.0, help="go on with the next seeds for so many seconds of real time"
    )
    options = parser.parse_args(arguments)
    options.load = _named(parser, options.load, tuple(LOADS))
    faults = ((), ALL_FAULTS) if options.faults is None else (_named(parser, options.faults, ALL_FAULTS),)
    options.faults = faults
    options.at_least = len(options.load) * len(faults)
    return options


def _as_hours(text: str) -> float:
    """Of no time at all nothing could be said, and an endless one would never say it."""
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not 0 < hours <= _MOST_HOURS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hours above 0 and at most {_MOST_HOURS:,}")
    return hours


def _named(parser: argparse.ArgumentParser, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = known if text == "all" else () if text == "none" else tuple(text.split(","))
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def _runs(options: argparse.Namespace) -> Iterator[Run]:
    for seed in itertools.count(options.seed):
        for load, faults in itertools.product(options.load, options.faults):
            yield Run(seed, load, faults)


def _perform(run: Run, scale: Scale, hours: float) -> bool:
    """Simulate once and print a line; where a promise was broken, its story and how to see it again."""
    began = time.perf_counter()
    sim = Simulation(run.seed, LOADS[run.load], scale, named_faults(run.faults, run.seed))
    try:
        sim.run(hours)
    except Exception as exc:
        _tell_story(sim)
        _complain(f"\n{type(exc).__name__}: {exc}")
        _say_how(run, scale, hours)
        raise
    verdict = judge(sim)
    _say(_line(verdict, sim.now, time.perf_counter() - began))
    for shortfall in verdict.shortfalls:
        _complain(f"     {shortfall}")
    if verdict.shortfalls:
        _say_how(run, scale, hours)
    return not verdict.shortfalls


def _line(verdict: Verdict, virtual: float, took: float) -> str:
    return (
        f"{verdict.load:4} {verdict.faults:21} {verdict.seed:4} {verdict.requests:9,} {verdict.events:9,}"
        f" {verdict.granted:9,} {verdict.in_vain:8,} {verdict.spawned:8,} {verdict.used:5.2f}"
        f" {verdict.median:7.3f}s {verdict.p99:7.3f}s {virtual:8.0f}s {took:5.1f}s"
    )


def _tell_story(sim: Simulation) -> None:
    """The last of what happened, oldest first."""
    for when, stimulus, decided in sim.trail:
        _complain(f"{when:12.4f}  {_brief(stimulus)}")
        for action in decided:
            _complain(f"{'':12}    -> {_brief(action)}")


def _brief(what: object) -> str:
    text = repr(what)
    return text if len(text) <= 160 else f"{text[:157]}..."


def _say_how(run: Run, scale: Scale, hours: float) -> None:
    command = (
        f"python -m tests.sim --seed {run.seed} --load {run.load} --faults {','.join(run.faults) or 'none'}"
        f" --hours {hours:g} --sessions {scale.sessions} --workers {scale.workers} --turn {scale.turn:g}"
    )
    _complain(f"seed {run.seed} failed; to see it again: {command}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _complain(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
