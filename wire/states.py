"""State machines as tables: an enum, and from each state the states it may move to. Pure."""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

S = TypeVar("S", bound=Enum)


class IllegalTransition(RuntimeError):
    """A state machine was asked for a transition that it does not have: a defect, never a caller's fault."""


def transition(table: Mapping[S, frozenset[S]], old: S, new: S) -> S:
    """Return ``new`` when ``table`` has the transition from ``old`` to it; raises IllegalTransition otherwise."""
    if new not in table[old]:
        raise IllegalTransition(f"{type(old).__name__} has no transition from {old.value} to {new.value}")
    return new
