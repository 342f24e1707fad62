"""``python -m tests.mutants``: takes one guard after the other out of the code; every one must be missed by a test."""

import argparse
import sys
import time

from tests.house import ROOT
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import RottenListError
from tests.mutants.runner import Fate, Verdict, run_all


def main(arguments: list[str] | None = None) -> int:
    """Print a table of fates; 0 = every mutant was killed, 2 = the list does not fit the code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants whose file, promise or description has one of these")
    parser.add_argument("--lanes", type=int, default=2, help="how many at a time (default 2)")
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if _is_wanted(options.words, mutant.keeps, mutant.file, mutant.without)]
    began = time.perf_counter()
    try:
        verdicts = [_print(verdict) for verdict in run_all(chosen, ROOT, lanes=options.lanes)]
    except RottenListError as exc:
        sys.stderr.write(f"the list of mutants does not fit the code:\n{exc}\n")
        return 2
    left = [verdict for verdict in verdicts if verdict.fate is not Fate.KILLED]
    took = time.perf_counter() - began
    sys.stdout.write(f"{len(verdicts)} mutants, {len(verdicts) - len(left)} killed, {len(left)} not, {took:.0f} s\n")
    return 1 if left else 0


def _is_wanted(words: list[str], *texts: str) -> bool:
    return not words or any(word in text for word in words for text in texts)


def _print(verdict: Verdict) -> Verdict:
    mutant = verdict.mutant
    sys.stdout.write(f"{verdict.fate:8} {verdict.seconds:5.1f}s {mutant.keeps:7} {mutant.file:32} {mutant.without}\n")
    if verdict.fate is not Fate.KILLED:
        sys.stdout.write(f"{'':15} {verdict.noticed_by}\n")
    sys.stdout.flush()
    return verdict


if __name__ == "__main__":
    sys.exit(main())
