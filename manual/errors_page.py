"""The page of errors: the code of each kind, and whose fault it is."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

from doors.http.errors import status_of
from errors import PoolError
from manual.markdown import one_line, table
from wire.terminal import exit_code

_INTRODUCTION = """# Errors

Every error has a `code` that stays when its wording changes, a `message` that says what failed, where and what to do,
and often further facts: `retry_after` in seconds, `worker`, `session`, `stderr_tail`. The control socket answers
`{"id", "error": {"code", "message", "data"}}`, HTTP `{"error": {"code", "message", "details"}}` with the status below.
The command line prints the message and ends with the exit code.
"""
_ROOMS = ("wire", "rpc", "pool", "router", "heartbeat", "store", "gateway", "doors", "settings")


def errors_page() -> str:
    """The page."""
    for room in _ROOMS:
        package = import_module(room)
        for module in walk_packages(package.__path__, f"{room}."):
            if not module.name.endswith(("__main__", "_main")):
                import_module(module.name)
    kinds = sorted({kind.code: kind for kind in _kinds(PoolError)}.items())
    rows = [
        (
            f"`{code}`",
            str(exit_code(kind(""))),
            str(int(status_of(kind("")))),
            one_line((kind.__doc__ or "").partition("\n\n")[0]),
        )
        for code, kind in kinds
    ]
    return "\n".join([_INTRODUCTION, *table(("code", "exit code", "HTTP", ""), rows)])


def _kinds(root: type[PoolError]) -> Iterator[type[PoolError]]:
    """Each class that has a code of its own."""
    if "code" in vars(root):
        yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)
