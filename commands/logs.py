"""``pool logs``: what workers have written to stderr, and the supervisor's log, from the files that are kept."""

import os
import sys
import time
from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import click

from commands.completion import complete_workers
from commands.log_view import LogView
from commands.options import (
    as_seconds,
    connection_options,
    find_socket,
    load_with_flags,
    session_option,
)
from doors.control.client import ControlClient
from errors import NoSupervisor, PoolClosed, UsageError
from wire.log_file import LOG_DIR, SUPERVISOR_LOG, LogLine, LogReader, has_ended, log_names
from wire.terminal import clean

_DEFAULT_LINES = 100
_MOST_LINES = 1_000_000
_NAMED_WORKERS = 10
_ENDED_KEPT = 1_000
_LAST_LINES_SECONDS = 2.0
_NO_MORE = "no supervisor runs: nothing more can come"


@click.command()
@click.argument("worker", required=False, shell_complete=complete_workers)
@click.option("--supervisor", "of_supervisor", is_flag=True, help="The supervisor's own log.")
@session_option("The worker that has this session now.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is added, until nothing more can come.")
@click.option(
    "-n", "--lines", type=click.IntRange(0, _MOST_LINES), metavar="N", help="The last N lines (100; all with --since)."
)
@click.option("--since", callback=as_seconds, metavar="TIME", help="Only lines of the last 10m, 2h ...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@connection_options
def logs(
    worker: str | None,
    session: str | None,
    since: float | None,
    lines: int | None,
    *,
    of_supervisor: bool,
    follow: bool,
    as_json: bool,
    **place: str | None,
) -> None:
    """Show what workers have written to stderr, and how they ended; WORKER is an id such as w3.

    Without WORKER, the last lines of all workers together. Works without a supervisor: log files outlive it
    (rpc.log_workers, rpc.log_bytes).
    """
    if sum(map(bool, (worker, of_supervisor, session))) > 1:
        raise UsageError("name one of WORKER, --supervisor and --session")
    with ExitStack() as stack:
        client = _connect(stack, place)
        name = SUPERVISOR_LOG if of_supervisor else _worker_of(client, session) if session else worker
        count = (_DEFAULT_LINES if since is None else _MOST_LINES) if lines is None else lines
        begin = None if since is None else time.time() - since
        request = LogsRequest(_data_dir(client, place) / LOG_DIR, name, count, begin)
        view = LogView(sys.stdout, os.environ, as_json=as_json, shows_names=name is None)
        followed = FollowedLogs(request, view, stack)
        followed.show_past(keep_open=follow)
        if follow:
            _follow(client, followed)
        elif name not in (None, SUPERVISOR_LOG) and not followed.has_ended and not _is_living(client, name):
            _explain_missing_end(name)


class LogsRequest(NamedTuple):
    """Which logs (``name`` None: of all workers), of these which lines. ``since``: seconds since the epoch."""

    directory: Path
    name: str | None
    limit: int
    since: float | None


def _connect(stack: ExitStack, place: dict[str, str | None]) -> ControlClient | None:
    try:
        return stack.enter_context(ControlClient(find_socket(**place)))
    except NoSupervisor:
        return None


def _data_dir(client: ControlClient | None, place: dict[str, str | None]) -> Path:
    """The supervisor's own word where a socket was named, for other settings may be found here, or invalid ones."""
    if client is not None and (place["socket"] or os.environ.get("POOL_SOCKET")):
        return _served_directory(client)
    try:
        return Path(load_with_flags(place["config"], place["data_dir"]).data_dir)
    except UsageError:
        if client is None:
            raise
        return _served_directory(client)


def _served_directory(client: ControlClient) -> Path:
    return Path(client.call("status")["supervisor"]["data_dir"])


def _worker_of(client: ControlClient | None, session: str) -> str:
    if client is None:
        raise NoSupervisor("no supervisor runs that would know the session's worker; `pool logs` shows all workers")
    worker = client.call("sessions.get", {"session": session})["worker"]
    if worker is None:
        raise UsageError(f"no worker has the session {session} now; `pool logs` shows all workers")
    return str(worker)


class FollowedLogs:
    """The logs that are asked for: what they hold, then what is added, also of workers that begin meanwhile."""

    def __init__(self, request: LogsRequest, view: LogView, stack: ExitStack) -> None:
        self.name = request.name
        self._request = request
        self._view = view
        self._stack = stack
        self._readers: dict[str, LogReader] = {}
        self._ended: deque[str] = deque(maxlen=_ENDED_KEPT)
        """Workers whose logs were read to their end, and are not to be read from their beginning again."""
        self.has_ended = False
        """Whether the one worker that is asked for has ended: nothing more can come."""

    def show_past(self, *, keep_open: bool) -> None:
        """Show what the logs hold; ``keep_open`` those that may grow. Raises UsageError for one that is not kept."""
        found: list[LogLine] = []
        for name in _existing_names(self._request):
            with ExitStack() as unless_kept:
                reader = unless_kept.enter_context(LogReader(self._request.directory, name))
                last = reader.last(self._request.limit, self._request.since)
                self.has_ended = has_ended(reader.last(1))
                found += last
                if keep_open and not self.has_ended:
                    self._readers[name] = reader
                    self._stack.push(unless_kept.pop_all())
        shown = _in_order(found)[-self._request.limit :] if self._request.limit else []
        self._view.show(shown)
        if not found and self._request.limit:
            self._explain_nothing()

    def read(self, names: Iterable[str] | None = None) -> None:
        """Show what is new in these logs; None = in all of them."""
        lines: list[LogLine] = []
        for name in dict.fromkeys([*self._readers] if names is None else names):
            reader = self._readers.get(name)
            if reader is None and self._is_new(name):
                reader = LogReader(self._request.directory, name, from_begin=True)
                self._readers[name] = self._stack.enter_context(reader)
            if reader is not None:
                new = reader.read()
                self.has_ended = has_ended(new) if new else self.has_ended
                lines += new
                if has_ended(new):  # workers come and go for as long as they are followed: no file stays open
                    reader.close()
                    del self._readers[name]
                    self._ended.append(name)
        self._view.show(_in_order(lines))

    def _is_new(self, name: str) -> bool:
        """Whether that is a worker which has just begun."""
        return self.name is None and name != SUPERVISOR_LOG and name not in self._ended

    def _explain_nothing(self) -> None:
        whose = {None: "any worker", SUPERVISOR_LOG: "the supervisor"}.get(self.name, f"worker {self.name}")
        when = "" if self._request.since is None else " of this time"
        notice(f"no line of {whose}{when} is kept in {self._request.directory}")


def _existing_names(request: LogsRequest) -> list[str]:
    """Of all workers, or of the one; raises UsageError where its log is not kept."""
    kept = log_names(request.directory)
    if request.name is None:
        return kept
    if request.name not in (SUPERVISOR_LOG, *kept):
        there = f"there are {_name_list(kept)}" if kept else "there is none of any worker"
        raise UsageError(f"no log of a worker {request.name!r} is kept in {request.directory}; {there}")
    return [request.name]


def _name_list(names: list[str]) -> str:
    shown = sorted(names, key=lambda name: (len(name), name))
    half = _NAMED_WORKERS // 2
    return ", ".join(shown if len(shown) <= _NAMED_WORKERS else [*shown[:half], "...", *shown[-half:]])


def _in_order(lines: Iterable[LogLine]) -> list[LogLine]:
    """By time; a line without one stays behind the line before it."""
    at, timed = 0.0, []
    for line in lines:
        at = at if line.at is None else line.at
        timed.append((at, line))
    timed.sort(key=lambda pair: pair[0])
    return [line for _, line in timed]


def _follow(client: ControlClient | None, followed: FollowedLogs) -> None:
    """Show what is added, as the supervisor says where, until nothing more can come."""
    name = followed.name
    is_one = name not in (None, SUPERVISOR_LOG)
    is_first = True
    if is_one and followed.has_ended:
        return
    if client is None:
        notice(_NO_MORE)
        return
    try:
        for batch in client.stream("logs.watch"):
            followed.read(None if is_first else [name for pushed in batch for name in pushed.data.logs])
            if is_one and is_first and not followed.has_ended and not _is_living(client, name):
                followed.read()
                _explain_missing_end(name)
                return
            if is_one and followed.has_ended:
                return
            is_first = False
    except (NoSupervisor, PoolClosed):
        client.wait_closed(_LAST_LINES_SECONDS)  # it logs its own end behind that of its connections
        followed.read()
        if not (is_one and followed.has_ended):
            notice("the supervisor has stopped, or restarts")


def _is_living(client: ControlClient | None, worker: str | None) -> bool:
    if client is None:
        return False
    with ControlClient(client.path) as other:  # the first one may be in the middle of a stream
        return any(each["id"] == worker for each in other.call("workers.list"))


def _explain_missing_end(worker: str | None) -> None:
    notice(f"no end of {worker} is recorded: its supervisor was killed, or the machine went down")


def notice(text: str) -> None:
    """Say something about the logs, on stderr."""
    click.echo(clean(text), err=True)
