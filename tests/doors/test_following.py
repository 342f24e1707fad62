"""Following events over lost connections, restarts and slow reading, with connections that are told what to do."""

import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from commands.event_lines import EventJsonView, EventTextView
from commands.events import EventFollower, backoff
from errors import NoSupervisor, PoolClosed, PoolError, UsageError
from tests.doors.envelopes import event, pushed, text
from tests.wire.terminals import Terminal


class Feed:
    """A subscription that brings events with these seqs, then ends or raises."""

    def __init__(self, *seqs: int, head: int = 0, complete: bool = True, error: PoolError | None = None) -> None:
        self.seqs = seqs
        self.head = head or max(seqs, default=0)
        self.complete = complete
        self.error = error
        self.is_ended = False

    def __iter__(self) -> Iterator[msgspec.Raw]:
        yield from (pushed(event("done", {}, seq=seq)) for seq in self.seqs)
        if self.error is not None:
            raise self.error

    def end(self) -> None:
        self.is_ended = True


class Source:
    """A connection whose subscriptions are these, one after the other."""

    def __init__(self, *answers: Feed | PoolError) -> None:
        self.answers = list(answers)
        self.wishes: list[dict[str, Any]] = []

    def subscribe(self, wish: dict[str, Any]) -> Feed:
        self.wishes.append(wish)
        answer = self.answers.pop(0)
        if isinstance(answer, PoolError):
            raise answer
        return answer


class Seen:
    """A view that keeps what it was shown."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.notes: list[str] = []

    def show(self, events: msgspec.Raw) -> int:
        self.seqs += [envelope["seq"] for envelope in msgspec.json.decode(events)]
        return self.seqs[-1]

    def show_notice(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None:
        """Nothing is kept back."""


class Interrupt(Exception):
    """Somebody has seen enough."""


def follow_all(*sources: Source | PoolError, since: int | None = None) -> tuple[Seen, EventFollower, list[float]]:
    """Follow over these connections until they are used up; the pauses between them."""
    view = Seen()
    pauses: list[float] = []
    follower = EventFollower({"session": "ada"}, view, since=since, pause=pauses.append)
    left = iter(sources)

    def connect() -> Any:
        following = next(left, None)
        if following is None:
            raise Interrupt
        if isinstance(following, PoolError):
            raise following
        return nullcontext(following)

    with pytest.raises(Interrupt), connect() as first:
        follower.follow_with_reconnect(first, connect)
    return view, follower, pauses


GONE = NoSupervisor("gone")
WENT, CAME = "the supervisor went away; waiting for it to come back (Ctrl-C ends)", "the supervisor is back"


def test_it_begins_now_and_goes_on_from_its_bookmark_after_a_restart() -> None:
    before, after = Source(Feed(5, 7, head=3, error=GONE)), Source(Feed(9, head=8, error=GONE))
    view, follower, pauses = follow_all(before, GONE, GONE, after)
    assert view.seqs == [5, 7, 9]
    assert before.wishes == [{"session": "ada"}]
    assert after.wishes == [{"session": "ada", "since": 7}]
    assert view.notes == [WENT, CAME, WENT]
    assert pauses == [0.2, 0.4, 0.8, 0.2]
    assert follower.bookmark == 9


def test_where_nothing_has_come_yet_the_bookmark_is_where_it_began() -> None:
    after = Source(Feed(error=GONE, head=3))
    _, follower, _ = follow_all(Source(Feed(head=3, error=GONE)), after)
    assert after.wishes == [{"session": "ada", "since": 3}]
    assert follower.bookmark == 3


def test_a_bookmark_that_is_given_is_where_it_begins() -> None:
    source = Source(Feed(5, error=GONE))
    follow_all(source, since=0)
    assert source.wishes == [{"session": "ada", "since": 0}]


def test_who_was_too_slow_goes_on_from_the_bookmark_without_a_pause_or_a_word() -> None:
    source = Source(Feed(5, 6), Feed(7, error=GONE))
    view, _, pauses = follow_all(source, since=4)
    assert view.seqs == [5, 6, 7]
    assert [wish["since"] for wish in source.wishes] == [4, 6]
    assert (view.notes, pauses) == ([WENT], [0.2])


def test_a_supervisor_that_stops_or_is_full_is_waited_for() -> None:
    view, _, _ = follow_all(Source(Feed(5), PoolClosed("stopping")), Source(Feed(6, error=GONE)))
    assert view.seqs == [5, 6]


def test_what_retention_has_dropped_is_told() -> None:
    view, _, _ = follow_all(Source(Feed(50, complete=False, error=GONE)), since=4)
    assert view.notes[0] == "events after 4 are missing: they were older than what is kept"


def test_a_supervisor_without_its_past_is_followed_from_its_beginning() -> None:
    stranger = Feed(head=2)
    after = Source(stranger, Feed(1, 2, error=GONE))
    view, _, _ = follow_all(Source(Feed(900, error=GONE)), after)
    assert view.seqs == [900, 1, 2]
    assert [wish["since"] for wish in after.wishes] == [900, 0]
    assert stranger.is_ended


@pytest.mark.parametrize("error", [GONE, PoolClosed("stopping"), UsageError("no such channel")])
def test_what_fails_at_once_is_an_error_not_a_reason_to_wait(error: PoolError) -> None:
    follower = EventFollower({}, Seen(), since=None)
    with pytest.raises(type(error)):
        follower.follow_with_reconnect(Source(error), lambda: nullcontext(Source()))


@pytest.mark.parametrize("error", [GONE, PoolClosed("stopping")])
def test_a_supervisor_that_was_there_a_moment_ago_is_waited_for(error: PoolError) -> None:
    view = Seen()
    follower = EventFollower({}, view, since=0, was_there=True, pause=lambda _: None)
    with pytest.raises(UsageError):
        follower.follow_with_reconnect(
            Source(error), lambda: nullcontext(Source(Feed(5), UsageError("that is enough")))
        )
    assert view.seqs == [5]
    assert view.notes == [WENT, CAME]


def test_what_no_new_connection_would_mend_ends_it() -> None:
    follower = EventFollower({}, Seen(), since=None, pause=lambda _: None)
    with pytest.raises(UsageError):
        follower.follow_with_reconnect(
            Source(Feed(error=GONE)), lambda: nullcontext(Source(UsageError("another user's")))
        )


def test_pauses_grow_and_are_bounded() -> None:
    assert list(itertools.islice(backoff(), 8)) == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


# --- where it is shown ------------------------------------------------------------------------------------------------


def test_on_a_terminal_notes_stand_between_the_lines_and_what_was_gathered_comes_first() -> None:
    out = Terminal(tty=True)
    view = EventTextView(out, {"NO_COLOR": "1"})
    assert view.show(pushed(text("half a line", seq=8))) == 8
    assert out.getvalue() == ""
    view.show_notice("the supervisor is back")
    view.show(pushed(text("more", seq=9)))
    view.close()
    assert [line.split()[2:] for line in out.getvalue().splitlines()] == [
        ["text", "half", "a", "line"],
        ["supervisor", "is", "back"],
        ["text", "more"],
    ]


def test_as_json_notes_do_not_mix_with_the_events() -> None:
    out, err = Terminal(), Terminal()
    view = EventJsonView(out, err)
    assert view.show(pushed(event("done", {}, seq=4), event("done", {}, seq=6))) == 6
    view.show_notice("the supervisor is back")
    view.close()
    assert [msgspec.json.decode(line)["seq"] for line in out.getvalue().splitlines()] == [4, 6]
    assert (out.flushes, err.getvalue()) == (1, "pool: the supervisor is back\n")
