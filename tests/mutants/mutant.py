"""One guard of the code, what it keeps, how to take it out, and the tests that must notice."""

import msgspec

PROMISES = {
    "I1": "one outcome for each request, nothing sent twice",
    "I2": "no byte of one session reaches another",
    "I3": "never more processes than allowed",
    "I4": "nothing is left when the supervisor is gone",
    "I5": "order of service, and nobody is starved",
    "I6": "nobody waits in vain",
    "I7": "everything that grows is bounded",
    "I8": "nobody is moved in the middle of a turn",
    "I9": "lost capacity comes back, starts are paced",
    "I10": "status is what there is",
    "I11": "a stranger is never signalled",
    "I12": "one's fault is not another's",
    "durable": "what was promised survives a crash",
    "access": "who may not, cannot",
    "private": "a secret stays one",
}
"""I1 to I12 are the invariants of the acceptance battery; the others belong to single rooms."""


class Mutant(msgspec.Struct, frozen=True):
    """``old`` occurs once in ``file`` (from the root); with ``new`` in its place ``tests`` must fail.

    ``without``: what happens where the guard is missing, in a few words. ``tests`` are names of test functions as
    pytest takes them (``tests/pool/test_machine.py::test_...``), without parameters. ``hangs``: without the guard
    they come to no end but by a time limit, and that is how it is missed.
    """

    keeps: str
    without: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    hangs: bool = False
