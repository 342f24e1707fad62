"""What ``pool doctor`` says of one thing that it has looked at. Pure."""

from enum import StrEnum

import msgspec


class CheckVerdict(StrEnum):
    """How a check ended; only ``MISSING`` keeps the pool from working."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


class Check(msgspec.Struct, frozen=True):
    """One thing looked at: what was found, and what to do where that is not enough."""

    name: str
    verdict: CheckVerdict
    found: str
    fix: str = ""


def ok(name: str, found: str) -> Check:
    """It is as it should be."""
    return Check(name, CheckVerdict.OK, found)


def warn(name: str, found: str, fix: str) -> Check:
    """The pool works without."""
    return Check(name, CheckVerdict.WARNING, found, fix)


def missing(name: str, found: str, fix: str) -> Check:
    """The pool, or what needs this, does not work."""
    return Check(name, CheckVerdict.MISSING, found, fix)
