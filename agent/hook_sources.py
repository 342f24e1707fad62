"""Where hooks come from: a Python file, and the installed packages that offer some (entry points ``agent.hooks``)."""

import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from agent.hook_types import HOOK_NAMES, Hook, HookFailed

__all__ = ["GROUP", "hooks_of_file", "hooks_of_packages"]

GROUP = "agent.hooks"


def hooks_of_file(path: str) -> list[Hook]:
    """The hooks that a Python file defines; runs the file. Raises HookFailed."""
    if not Path(path).is_file():
        raise HookFailed(f"there is no file {path}")
    try:
        with redirect_stdout(sys.stderr):  # stdout may be the pipe that carries the protocol
            return list(_hooks_in(_import(path), path))
    except (Exception, SystemExit) as exc:  # foreign code may raise anything
        raise HookFailed(f"{path} cannot be used: {type(exc).__name__}: {exc}") from exc


def _import(path: str) -> ModuleType:
    name = f"agent_hooks:{path}"  # no import statement can name it, so it hides nothing
    spec = spec_from_loader(name, SourceFileLoader(name, path))
    assert spec is not None  # noqa: S101 - a loader always makes one
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and the like look their module up
    SourceFileLoader(name, path).exec_module(module)
    return module


def hooks_of_packages() -> list[Hook]:
    """The hooks of installed packages, by the names of their entry points; each names a module or an object with hooks.

    One that cannot be loaded is no reason to do without its checks: each tool call fails in its place.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms that the start has no use for

    hooks: list[Hook] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            with redirect_stdout(sys.stderr):
                hooks.extend(_hooks_in(entry.load(), entry.name))
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - foreign code may raise anything
            hooks.append(_closed_door(entry.name, f"{type(exc).__name__}: {exc}"))
    return hooks


def _hooks_in(place: object, source: str) -> Iterator[Hook]:
    for name in HOOK_NAMES:
        function = getattr(place, name, None)
        if callable(function):
            yield Hook(name, function, source)
        elif function is not None:
            raise HookFailed(f"{name} is no function")


def _closed_door(source: str, why: str) -> Hook:
    def before_tool_call(_call: object) -> NoReturn:
        raise HookFailed(f"the hooks of {source} cannot be loaded: {why}")

    return Hook("before_tool_call", before_tool_call, source)
