"""Where hooks come from: the operator's Python file and installed packages; refused with the line to mend."""

import inspect
import sys
import traceback
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from errors import UsageError
from gateway.hooks import HookName, HookTable, names_of

__all__ = ["ENTRY_POINT_GROUP", "installed_hooks", "load_hooks"]

ENTRY_POINT_GROUP = "pool.hooks"
_MODULE = "pool_gateway_hooks"
"""What the file is called among Python's modules; dataclasses and pickles look there."""

Hook = Callable[..., Any]


def installed_hooks() -> list[EntryPoint]:
    """The hooks that installed packages bring along, by name."""
    return sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name)


def load_hooks(file: Path | None, packages: Iterable[EntryPoint] = ()) -> HookTable:
    """Import everything and find the functions decorated with ``hook``.

    Runs the operator's code and blocks while it does. Raises UsageError, with file, line and reason, for code that
    cannot be imported, for a function that cannot take one argument, and where there is no hook at all.
    """
    found = [hook for point in packages for hook in _of_package(point)]
    found += _of_file(file) if file is not None else []
    table: dict[HookName, tuple[Hook, ...]] = {}
    for hook in dict.fromkeys(found):
        for name in names_of(hook):
            table[name] = (*table.get(name, ()), hook)
    return table


def _of_package(point: EntryPoint) -> list[Hook]:
    origin = f"the entry point {point.name} ({point.value})"
    try:
        loaded = point.load()
    except (Exception, SystemExit) as exc:  # whatever somebody else's code raises while it is imported
        raise UsageError(f"cannot load the gateway's hooks from {origin}: {_described(exc)}") from exc
    return _checked([loaded] if names_of(loaded) else _decorated(loaded), origin)


def _of_file(path: Path) -> list[Hook]:
    path = path.expanduser()
    module = ModuleType(_MODULE)
    module.__file__ = str(path)
    before = sys.modules.get(_MODULE)
    sys.modules[_MODULE] = module
    try:
        exec(_compiled(path), vars(module))  # noqa: S102 - running the operator's file is what is asked for
        return _checked(_decorated(module), str(path))
    except UsageError:
        _put_back(before)
        raise
    except (Exception, SystemExit) as exc:  # whatever the file raises
        _put_back(before)
        raise UsageError(f"cannot load the gateway's hooks: {_place(exc, path)}: {_described(exc)}") from exc


def _put_back(module: ModuleType | None) -> None:
    del sys.modules[_MODULE]
    if module is not None:
        sys.modules[_MODULE] = module


def _compiled(path: Path) -> CodeType:
    """The file's code; compiled here, since Python's own cache takes two edits within a second for one."""
    try:
        return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except OSError as exc:
        raise UsageError(f"cannot read the gateway's hooks: {path}: {exc.strerror}") from exc
    except (SyntaxError, ValueError) as exc:
        place = f"{path}:{getattr(exc, 'lineno', None) or 1}"
        raise UsageError(f"cannot load the gateway's hooks: {place}: {getattr(exc, 'msg', None) or exc}") from exc


def _decorated(module: object) -> list[Hook]:
    return [value for value in vars(module).values() if names_of(value)] if isinstance(module, ModuleType) else []


def _checked(hooks: list[Hook], origin: str) -> list[Hook]:
    if not hooks:
        raise UsageError(
            f"there are no hooks in {origin}; decorate functions with @hook(...) of gateway.hooks, or leave it out"
        )
    for problem in filter(None, map(_problem, hooks)):
        raise UsageError(f"cannot use the gateway's hooks: {problem}")
    return hooks


def _problem(hook: Hook) -> str | None:
    try:
        inspect.signature(hook).bind(object())
    except TypeError:
        return f"{place_of(hook)}: {hook_name(hook)} must take one argument, what happened"
    is_stream = inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook)
    return f"{place_of(hook)}: {hook_name(hook)} must return its answer, not yield it" if is_stream else None


def hook_name(hook: Hook) -> str:
    """What to call a hook in messages."""
    return getattr(hook, "__qualname__", type(hook).__qualname__)


def place_of(hook: Hook) -> str:
    """Where a hook is written: ``file:line`` as far as that can be told."""
    code = getattr(inspect.unwrap(hook), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(hook)


def _place(exc: BaseException, path: Path) -> str:
    """The line of the file where it went wrong, however deep in somebody else's code."""
    lines = [frame.lineno for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _described(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {exc}".rstrip(": ")
