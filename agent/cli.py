"""The command ``agent``: bind to the parent, read the options, start the front that they ask for; imports late."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.options import Options

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit code: 0 done, 1 it could not start or failed, 2 usage, 128 + n ended by signal n."""
    parent = os.getppid()
    from agent.options import UsageError, parse_options
    from wire.streams import fill_standard_streams

    fill_standard_streams()
    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments)
    except UsageError as exc:
        return _complain(str(exc), 2)
    if options.mode == "rpc":
        from agent.lifeline import bind_to_parent

        if not bind_to_parent(parent, os.environ.pop("POOL_WORKER_PARENT", None)):
            return _complain("the supervisor is gone", 1)
    try:
        code = _run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except Exception as exc:  # noqa: BLE001 - the last edge: one clear line instead of a traceback
        return _failed(_innermost(exc))
    return code


def _run(options: "Options") -> int:
    if options.help or options.version:
        sys.stdout.write(_about(version=options.version))
        return 0
    from agent.assembly import BadStart

    try:
        if options.mode == "rpc":
            from agent.rpc import serve

            return serve(options)
        from agent.text import run_once
        from wire.streams import replace_what_cannot_be_encoded

        replace_what_cannot_be_encoded()
        return run_once(options)
    except BadStart as exc:
        return _complain(str(exc), 1)


def _about(*, version: bool) -> str:
    if version:
        from agent import __version__

        return f"agent {__version__}\n"
    from agent.flags import help_text
    from agent.models.directives import DIRECTIVES_HELP

    return help_text(DIRECTIVES_HELP)


def _failed(cause: BaseException) -> int:
    from wire.streams import CANNOT_WRITE, drop_output

    if isinstance(cause, OSError) and cause.errno in CANNOT_WRITE:
        where = f" {cause.filename}" if cause.filename else ""  # stdout has no file name
        code = _complain(f"cannot write{where}: {cause.strerror}", 1)
    else:
        code = _complain(f"{type(cause).__name__}: {cause}", 1)
    drop_output()
    return code


def _innermost(exc: BaseException) -> BaseException:
    from agent.output import OutputLost

    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc.__cause__ or exc if isinstance(exc, OutputLost) else exc


def _complain(message: str, code: int) -> int:
    with suppress(OSError):  # stderr takes nothing either
        sys.stderr.write(f"agent: {message}\n")
        sys.stderr.flush()
    return code
