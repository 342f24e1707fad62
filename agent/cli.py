"""The command ``agent``: binds itself to its parent, reads the options, starts rpc or text mode. Imports late.

The kernel kills a worker with SIGKILL when its supervisor's thread ends, whatever state the worker is in: one stopped
by SIGSTOP reacts to no other signal. Linux only; elsewhere the end of stdin ends a worker that runs.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.options import Options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; without arguments on a terminal become ``pool chat``.

    The exit code: 0 done, 1 it could not start or failed, 2 usage, 128 + n ended by signal n.
    """
    parent = os.getppid()
    from agent.options import OptionError, parse_options
    from wire.terminal import fill_standard_streams

    fill_standard_streams()
    given = sys.argv[1:] if arguments is None else arguments
    if not given and sys.stdin.isatty() and sys.stdout.isatty():
        os.execv(sys.executable, [sys.executable, "-P", "-m", "cli", "chat"])  # noqa: S606 - this program, no shell
    try:
        options = parse_options(given)
    except OptionError as exc:
        return _print_error(str(exc), 2)
    if options.mode == "rpc" and not set_parent_death_signal(parent, os.environ.pop("POOL_WORKER_PARENT", None)):
        return _print_error("the supervisor is gone", 1)
    title = _show_title(os.environ.pop("POOL_WORKER_TITLE", "")) if options.mode == "rpc" else None
    try:
        code = _run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except Exception as exc:  # noqa: BLE001 - the last edge: one clear line instead of a traceback
        return _report_failure(_root_cause(exc))
    finally:
        del title  # it was shown as long as this lived
    return code


def _show_title(title: str) -> object | None:
    """Be called by that title, for ``ps``; what must stay alive for it. None where it was given none, or cannot."""
    if not title or sys.platform != "linux":
        return None
    from wire.process_title import ProcessText

    text = ProcessText(ctypes.CDLL(None, use_errno=True))
    try:
        text.show_title(title)
    except OSError:
        return None  # a kernel without it: only the title is missing
    return text


def _run(options: "Options") -> int:
    if options.help or options.version:
        sys.stdout.write(_info_text(version=options.version))
        return 0
    from agent.assembly import StartupError

    try:
        if options.mode == "rpc":
            from agent.rpc import serve

            return serve(options)
        from agent.text import run_once
        from wire.terminal import replace_unencodable_characters

        replace_unencodable_characters()
        return run_once(options)
    except StartupError as exc:
        return _print_error(str(exc), 1)


def _info_text(*, version: bool) -> str:
    if version:
        from agent import __version__

        return f"agent {__version__}\n"
    from agent.flags import help_text
    from agent.models.directives import DIRECTIVES_HELP

    return help_text(DIRECTIVES_HELP)


def _report_failure(cause: BaseException) -> int:
    from wire.terminal import OUTPUT_ERRNOS, discard_unwritable_output

    if isinstance(cause, OSError) and cause.errno in OUTPUT_ERRNOS:
        where = f" {cause.filename}" if cause.filename else ""  # stdout has no file name
        code = _print_error(f"cannot write{where}: {cause.strerror}", 1)
    else:
        code = _print_error(f"{type(cause).__name__}: {cause}", 1)
    discard_unwritable_output()
    return code


def _root_cause(exc: BaseException) -> BaseException:
    from agent.output import OutputLost

    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc.__cause__ or exc if isinstance(exc, OutputLost) else exc


def _print_error(message: str, code: int) -> int:
    with suppress(OSError):  # stderr takes nothing either
        sys.stderr.write(f"agent: {message}\n")
        sys.stderr.flush()
    return code


_PR_SET_PDEATHSIG = 1


def set_parent_death_signal(first_parent: int, expected: str | None = None) -> bool:
    """Ask for the signal; False when the parent is gone already, so that the signal will never come.

    ``first_parent`` is ``os.getppid()`` as early as possible; ``expected`` the supervisor's pid, where it passed one in
    the environment variable ``POOL_WORKER_PARENT`` (which no child of ours must inherit). A parent of pid 1 alone is
    no sign of an orphan: in a container the supervisor itself may be pid 1.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    parent = os.getppid()
    return parent == first_parent and expected in {None, "", str(parent)}
