"""I4, I7, I11: nothing is left behind, memory and files stay bounded, strangers are let alone."""

import signal
from collections.abc import Iterator, Sequence

from stress.checker.book import Book
from stress.checker.judge import Blame, Judge, Rules
from stress.facts import Emptied, Fact, Left, LifeBegan, LifeEnded, Processes, Silence, Stranger

__all__ = ["Bounded", "NothingLeft", "StrangersLetAlone"]

_MIB = 1024 * 1024
_LEAST_SIZES = 120


class NothingLeft(Judge):
    """I4: no process of a supervisor outlives it; and it ends only when it is told to, in good order where asked."""

    invariant = "I4"

    def see(self, fact: Fact, book: Book) -> Iterator[Blame]:  # noqa: ARG002 - the judges' signature
        """Judge the ends of lives."""
        match fact:
            case Left():
                self.checked += 1
                if fact.pids:
                    what = f"{len(fact.pids)} processes are left {fact.seconds:g} s after the supervisor's end"
                    yield Blame(what, pids=fact.pids)
            case LifeEnded():
                self.checked += 1
                if not fact.signals:
                    yield Blame(f"the supervisor ended by itself, with code {fact.code}")
                elif fact.code not in _codes_after(fact.signals):
                    yield Blame(f"the supervisor was told to end, and did with code {fact.code}")
            case _:
                pass


def _codes_after(signals: Sequence[int]) -> set[int]:
    """How it may end: in good order, however often it was told to; killed."""
    return {0, -signal.SIGKILL} if signal.SIGKILL in signals else {0}


class Bounded(Judge):
    """I7: the supervisor's memory and open files, and children that nobody waits for."""

    invariant = "I7"

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules)
        self._zombies: dict[int, float] = {}
        self._sizes: list[int] = []
        self._is_too_large = False

    def see(self, fact: Fact, book: Book) -> Iterator[Blame]:
        """Judge what ``/proc`` says of the supervisor."""
        match fact:
            case Processes():
                yield from self._look_for_zombies(fact, book)
                yield from self._judge_size(fact.rss)
            case LifeBegan() | LifeEnded():
                self._zombies.clear()
                self._sizes.clear()
            case Emptied():
                self.checked += 1
                yield from self._judge_size(fact.rss)
                yield from self._judge_files(fact)
                yield from self._judge_rest(fact)
            case Silence() if self.rules.rss_growth:
                yield from self._judge_growth()
            case _:
                pass

    def _look_for_zombies(self, fact: Processes, book: Book) -> Iterator[Blame]:
        self._zombies = {pid: self._zombies.get(pid, fact.t) for pid in fact.zombies}
        for pid, since in list(self._zombies.items()):
            if fact.t - since > self.rules.zombie_seconds + book.delay():
                del self._zombies[pid]
                yield Blame(f"process {pid} has ended and nobody has waited for it for over a second", pids=(pid,))

    def _judge_size(self, rss: int | None) -> Iterator[Blame]:
        if rss is None:
            return
        self.checked += 1
        self._sizes.append(rss)
        is_too_large = rss > self.rules.rss_limit
        if is_too_large and not self._is_too_large:
            yield Blame(f"the supervisor has {rss // _MIB} MiB, {self.rules.rss_limit // _MIB} are the limit")
        self._is_too_large = is_too_large

    def _judge_files(self, fact: Emptied) -> Iterator[Blame]:
        if fact.fds is None or fact.fds_before is None:
            self.note = "its open files cannot be counted by who runs this"
        elif fact.fds > fact.fds_before + self.rules.fds_slack:
            yield Blame(f"{fact.fds} files are open when all is done, {fact.fds_before} were at the beginning")

    def _judge_rest(self, fact: Emptied) -> Iterator[Blame]:
        if fact.workers or fact.zombies:
            yield Blame(f"{fact.workers} workers and {fact.zombies} zombies are there after the pool was drained")

    def _judge_growth(self) -> Iterator[Blame]:
        """From the end of the first third of its life, which is the warm-up, to the end."""
        if len(self._sizes) < _LEAST_SIZES:
            self.note = "too short to judge growth"
            return
        third, a_while = len(self._sizes) // 3, len(self._sizes) // 12
        warm, last = max(self._sizes[third : third + a_while]), max(self._sizes[-a_while:])
        self.checked += 1
        if last > warm * self.rules.rss_growth:
            yield Blame(f"the supervisor grew from {warm // _MIB} to {last // _MIB} MiB after the warm-up")


class StrangersLetAlone(Judge):
    """I11: whoever has a dead worker's pid is never signalled."""

    invariant = "I11"

    def see(self, fact: Fact, book: Book) -> Iterator[Blame]:  # noqa: ARG002 - the judges' signature
        """Judge what became of strangers."""
        if isinstance(fact, Stranger):
            self.checked += 1
            if fact.signalled:
                yield Blame(f"a stranger with the pid {fact.pid} of a dead worker was signalled", pids=(fact.pid,))
