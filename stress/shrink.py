"""The shortest history that still shows a broken promise: delta debugging with the check as the oracle. Pure."""

from collections.abc import Callable, Hashable, Sequence
from itertools import chain

from stress.checker import CheckRules, Evidence, reproduces
from stress.facts import Fact, RequestAsked

_MAX_CHECKED = 2_000_000
"""Facts that are checked again for one violation, some seconds' worth; the best history found so far is used."""


def shrink(
    evidence: Evidence, rules: CheckRules, *, likely: Sequence[Fact] = (), budget: int = _MAX_CHECKED
) -> list[Fact]:
    """The facts before a violation that are all needed to show it.

    The same promise must break in the same way, about the same requests and workers, at the same time; a request is
    kept from its beginning or not at all. ``likely``: facts that may suffice, tried first. If ``budget`` checked facts
    do not complete the search there are more than needed; empty if even all of them do not show it, because it began
    before the first fact kept.
    """
    search = _Shrinker(evidence, rules, budget)
    kept: Sequence[Fact] = evidence.facts
    if likely and search.reproduces(likely):
        kept = likely
    elif not search.reproduces(kept):
        return []
    for key in (_kind, _subject, _itself):
        kept = search.shortened(kept, key)
    return list(kept)


class _Shrinker:
    """The search for one violation, and its remaining budget."""

    def __init__(self, evidence: Evidence, rules: CheckRules, budget: int) -> None:
        self._evidence = evidence
        self._rules = rules
        self._budget = budget
        self._asked = {fact.number for fact in evidence.facts if isinstance(fact, RequestAsked)}

    def reproduces(self, facts: Sequence[Fact]) -> bool:
        """Whether these facts show the violation."""
        self._budget -= len(facts)
        return reproduces(facts, self._rules, self._evidence) and self._is_self_contained(facts)

    def shortened(self, facts: Sequence[Fact], key: Callable[[int, Fact], Hashable]) -> Sequence[Fact]:
        """Leave out ever smaller runs of groups of facts (by ``key``) that are not needed."""
        groups = _grouped(facts, key)
        size = max(1, len(groups) // 2)
        while True:
            fewer = self._sweep(facts, groups, size)
            if self._budget <= 0 or (size == 1 and len(fewer) == len(groups)):
                return [facts[index] for index in sorted(chain.from_iterable(fewer))]
            groups = fewer
            size = max(1, min(size, len(groups)) // 2)

    def _sweep(self, facts: Sequence[Fact], groups: list[list[int]], size: int) -> list[list[int]]:
        """One pass from the end, which leaves out each run of ``size`` groups that is not needed."""
        for first in range((len(groups) - 1) // size * size, -1, -size):
            if self._budget <= 0:
                break
            fewer = groups[:first] + groups[first + size :]
            if self.reproduces([facts[index] for index in sorted(chain.from_iterable(fewer))]):
                groups = fewer
        return groups

    def _is_self_contained(self, facts: Sequence[Fact]) -> bool:
        """Whether every request in the facts is there from its beginning, as in the evidence."""
        begun: set[int] = set()
        for fact in facts:
            if isinstance(fact, RequestAsked):
                begun.add(fact.number)
            elif (number := getattr(fact, "number", None)) in self._asked and number not in begun:
                return False
        return True


def _grouped(facts: Sequence[Fact], key: Callable[[int, Fact], Hashable]) -> list[list[int]]:
    groups: dict[Hashable, list[int]] = {}
    for index, fact in enumerate(facts):
        groups.setdefault(key(index, fact), []).append(index)
    return list(groups.values())


def _kind(_index: int, fact: Fact) -> Hashable:
    return type(fact)


def _subject(index: int, fact: Fact) -> Hashable:
    """All facts of one request; else a single fact."""
    number = getattr(fact, "number", None)
    return ("fact", index) if number is None else ("request", number)


def _itself(index: int, _fact: Fact) -> Hashable:
    return index
