"""``pool events``: follow events across restarts of the supervisor; queue and list system events."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol

import click
import msgspec

from commands.completion import complete_sessions
from commands.event_lines import open_events_view
from commands.groups import CommandGroup
from commands.options import connection_flags, current_command, json_option, print_answer, session_option, with_client
from commands.prompt import read_text
from doors.control.client import ControlClient
from errors import NoSupervisor, PoolClosed, PoolError, PoolSaturated
from wire.messages import omit_none
from wire.terminal import clean


@click.group(cls=CommandGroup)
def events() -> None:
    """Follow the events of sessions; queue and list system events."""


@events.command("follow")
@click.option("-s", "--session", metavar="KEY", shell_complete=complete_sessions, help="Events of this session.")
@click.option(
    "--channel",
    "channels",
    multiple=True,
    type=click.Choice(("progress", "control", "monitor")),
    help="Channel: progress, control or monitor (repeatable).",
)
@click.option("--type", "kinds", multiple=True, metavar="T", help="Type of event (repeatable).")
@click.option(
    "--since", type=click.IntRange(min=0), metavar="SEQ", help="Start after this bookmark; 0 is the first event."
)
@click.option("--no-reconnect", is_flag=True, help="End when the supervisor stops.")
@click.option("--json", "as_json", is_flag=True, help="One JSON event a line; the default into a pipe.")
@with_client
@click.pass_context
def follow(
    ctx: click.Context,
    client: ControlClient,
    *,
    session: str | None,
    channels: tuple[str, ...],
    kinds: tuple[str, ...],
    since: int | None,
    no_reconnect: bool,
    as_json: bool,
) -> None:
    """Show events as they come, until Ctrl-C; then print the command that continues from there.

    Reconnects when the supervisor has restarted. Into a pipe it writes JSON lines.
    """
    wish = omit_none(session=session, channels=list(channels) or None, kinds=list(kinds) or None)
    view = open_events_view(as_json=as_json, place=connection_flags())
    command = current_command(leave_out=("since",))
    follow_events(client, wish, view, since=since, reconnects=not no_reconnect, command=command)
    ctx.exit(130)


@events.command("inject", short_help="Queue a system event for a session.")
@session_option
@click.option(
    "--kind",
    type=click.Choice(("exec", "cron", "delegate", "channel", "other")),
    help="Kind of event (default: other).",
)
@json_option
@click.argument("text")
@with_client
def inject(client: ControlClient, session: str, kind: str | None, text: str, *, as_json: bool) -> None:
    """Queue TEXT (with -, all of stdin) as a system event for a session, and wake its agent.

    The prompt of the next turn begins with a line [SYSTEM] TEXT; with heartbeat.wake off, that is the session's next
    ordinary turn. The event is kept, also over a restart, until a turn that had it has succeeded; at most for an hour,
    or for seven days where --kind is exec or delegate.
    """
    params = omit_none(session=session, kind=kind, text=read_text(text, sys.stdin.buffer))
    result = client.call("events.inject", params)
    where = clean(result["session"])
    is_same = f"the same event is already queued for {where}; nothing was added"
    print_answer(result, is_same if result["event"] is None else f"the event is queued for {where}", as_json=as_json)


@events.command("peek")
@session_option
@json_option
@with_client
def peek(client: ControlClient, session: str, *, as_json: bool) -> None:
    """List the system events that a session's next turn will receive."""
    from commands.output import show_result  # rich: only this command draws a table

    show_result(client, "events.peek", {"session": session}, as_json=as_json)


_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_RECONNECT_ERRORS = (NoSupervisor, PoolClosed, PoolSaturated)
"""What ends a subscription that may begin again."""


class EventFeed(Protocol):
    """A subscription: iterate over the envelopes of each push, undecoded, until the supervisor ends it.

    ``head``: the last seq there was at its beginning. ``complete``: False when events after the bookmark are gone.
    """

    head: int
    complete: bool

    def __iter__(self) -> Iterator[msgspec.Raw]:
        """Raises NoSupervisor when the connection is lost."""
        ...

    def end(self) -> None:
        """Tell the supervisor to end it."""
        ...


class EventSource(Protocol):
    """One connection to a supervisor."""

    def subscribe(self, wish: dict[str, Any]) -> EventFeed:
        """Begin with these parameters of ``subscribe``. Raises PoolError."""
        ...


class EventsView(Protocol):
    """Where events are shown."""

    def show(self, events: msgspec.Raw) -> int:
        """Show the envelopes of one push, and flush; the seq of the last one."""
        ...

    def show_notice(self, text: str) -> None:
        """Say something about the following itself."""
        ...

    def close(self) -> None:
        """Show what was kept back."""
        ...


class EventFollower:
    """Follows events for as long as it is let. ``bookmark``: the seq behind the last one that was shown."""

    def __init__(
        self,
        wish: dict[str, Any],
        view: EventsView,
        *,
        since: int | None,
        was_there: bool = False,
        on_connection: Callable[[bool], None] = lambda _is_there: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """``wish``: the filters of ``subscribe``. ``since``: a bookmark to go on from; None = only what comes now.

        ``was_there``: the supervisor has just answered, so that it may be waited for if it is gone now.
        ``on_connection``: called when events are followed from then on, and when the supervisor went away.
        """
        self.bookmark = since
        self._filters = wish
        self._view = view
        self._on_connection = on_connection
        self._sleep = pause
        self._backoff = backoff()
        self._has_begun = was_there
        self._is_disconnected = False

    def follow(self, source: EventSource) -> None:
        """Show what this connection brings until it is lost; who was cut off as too slow goes on from the bookmark.

        Ends by raising PoolError, always.
        """
        while True:
            for events in self._subscribe(source):
                self.bookmark = self._view.show(events)

    def follow_with_reconnect(
        self, source: EventSource, reconnect: Callable[[], AbstractContextManager[EventSource]]
    ) -> None:
        """The same over any number of connections. Raises PoolError only for what no new connection would mend."""
        self._follow_once(lambda: nullcontext(source))
        while True:
            self._sleep(next(self._backoff))
            self._follow_once(reconnect)

    def _follow_once(self, connect: Callable[[], AbstractContextManager[EventSource]]) -> None:
        try:
            with connect() as source:
                self.follow(source)
        except _RECONNECT_ERRORS as exc:
            self._on_disconnect(exc)

    def _subscribe(self, source: EventSource) -> EventFeed:
        feed = source.subscribe(omit_none(**self._filters, since=self.bookmark))
        if self._is_disconnected:
            self._view.show_notice("the supervisor is back")
        self._has_begun, self._is_disconnected, self._backoff = True, False, backoff()
        self._on_connection(True)  # noqa: FBT003 - a callback
        if self.bookmark is None:
            self.bookmark = feed.head
        elif feed.head < self.bookmark:
            self._view.show_notice("event history was reset; starting from the first available event")
            self.bookmark = 0
            feed.end()
            return self._subscribe(source)
        elif not feed.complete:
            self._view.show_notice(f"events after {self.bookmark} are missing: they were older than what is kept")
        return feed

    def _on_disconnect(self, error: PoolError) -> None:
        if not self._has_begun:
            raise error
        if not self._is_disconnected:
            self._on_connection(False)  # noqa: FBT003 - a callback
            self._view.show_notice("the supervisor went away; waiting for it to come back (Ctrl-C ends)")
        self._is_disconnected = True


def backoff() -> Iterator[float]:
    """Seconds to wait before each attempt: growing, bounded, without end."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)


def follow_events(
    client: ControlClient,
    wish: dict[str, Any],
    view: EventsView,
    *,
    since: int | None,
    reconnects: bool,
    command: str,
) -> None:
    """Show events until Ctrl-C, then print on stderr the command that continues from there.

    ``wish``: the filters of ``subscribe``. ``command``: what was typed, without ``--since``. Raises PoolError when the
    supervisor is lost and ``reconnects`` is False, or for what no new connection would mend.
    """
    follower = EventFollower(wish, view, since=since)
    try:
        if reconnects:
            follower.follow_with_reconnect(client, partial(ControlClient, client.path))
        else:
            follower.follow(client)
    except KeyboardInterrupt:
        view.close()
        sys.stderr.write("\n" if sys.stderr.isatty() else "")  # the terminal has written ^C
    except PoolError:
        view.close()
        _print_bookmark(follower, command)
        raise
    _print_bookmark(follower, command)


def _print_bookmark(follower: EventFollower, command: str) -> None:
    if follower.bookmark is not None:
        sys.stderr.write(f"to continue from here: {command} --since {follower.bookmark}\n")
