"""Facts of log lines: those of one line, and those that a task binds to all that is logged on its way.

The standard library's loggers take them: ``logger.warning("late", extra=facts(worker="w1"))``.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

_bound: ContextVar[Mapping[str, Any]] = ContextVar("bound facts", default=MappingProxyType({}))


def facts(**values: Any) -> dict[str, Any]:
    """The facts of one line, as a logger's ``extra``."""
    return {"facts": values}


def bound_facts() -> Mapping[str, Any]:
    """What is bound in this context."""
    return _bound.get()


def bind_facts(**values: Any) -> None:
    """Add to what is bound in this context: name the request or the run that everything from here on is for."""
    _bound.set({**_bound.get(), **values})


def rebind_facts(**values: Any) -> None:
    """Bind these alone."""
    _bound.set(values)
