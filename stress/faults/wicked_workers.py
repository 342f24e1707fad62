"""F2 and F3: workers that write what is no message, and workers that do not want to end.

Both happen inside a worker when a prompt says so; the load asks some of its sessions for such prompts. There are no
strokes: which prompts come when is the load's choice, by the same seed.
"""

from collections.abc import Sequence
from random import Random
from typing import ClassVar

from stress.faults.port import Preparation, Stroke, Target
from stress.plan import Plan
from stress.wicked_agent import COMMAND
from stress.wickedness import wicked_word

__all__ = ["StubbornWorkers", "WickedOutput"]

_AGENT, _ROLE = "wicked", "default"
_KIB, _MIB = 1024, 1024 * 1024
_LONGEST_LINE = "32MiB"
"""Above the longest legal line that is written here; an endless one must not cost more than it has to."""


class _WickedWorkers:
    """What F2 and F3 have in common: an agent of their own, and words for what it is to do."""

    explains: frozenset[str] = frozenset()
    words: ClassVar[tuple[str, ...]]
    share: ClassVar[float]

    def prepare(self, plan: Plan) -> Preparation:
        """An agent whose workers obey; the order of its prompts follows from the seed."""
        words = list(self.words)
        Random(plan.seed).shuffle(words)  # noqa: S311 - the same choices for the same seed is the point
        return Preparation(
            settings={"agents": {_AGENT: {"command": list(COMMAND)}}, "rpc": {"max_line_bytes": _LONGEST_LINE}},
            profiles=((_AGENT, _ROLE),),
            share=self.share,
            prompts=tuple(f"{word} " for word in words),
        )

    def schedule(self, plan: Plan, rng: Random) -> Sequence[Stroke]:  # noqa: ARG002 - the port's signature
        """Nothing: it is the prompts that do it."""
        return ()

    async def inject(self, stroke: Stroke, target: Target) -> None:
        """There are no strokes."""


class WickedOutput(_WickedWorkers):
    """F2: what a worker writes is garbage, cut off, doubled, endless, or nobody's."""

    name = "F2"
    share = 0.02
    words = (
        *(wicked_word("garbage"), wicked_word("garbage", 500), wicked_word("bad-utf8"), wicked_word("one-byte")),
        *(wicked_word("half-line-stall"), wicked_word("half-line-eof"), wicked_word("half-line-exit")),
        *(wicked_word("line", size) for size in (64 * _KIB - 1, 64 * _KIB, 64 * _KIB + 1, 16 * _MIB)),
        *(wicked_word("endless-line"), wicked_word("duplicate"), wicked_word("unknown-id")),
        *(wicked_word("late-id"), wicked_word("late-answer")),
    )


class StubbornWorkers(_WickedWorkers):
    """F3: a worker closes its streams, or is not to be got rid of, or leaves others behind."""

    name = "F3"
    share = 0.01
    words = tuple(wicked_word(deed) for deed in ("close-stdin", "close-stdout", "no-end", "heir", "daemon"))
