"""Following events over lost connections, restarts and slow reading, with connections that do what the test says."""

import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from commands.event_lines import EventJsonView, EventTextView
from commands.following import EventFollower, backoff
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
    """Ctrl-C."""


GONE = NoSupervisor("gone")
WENT, CAME = "the supervisor went away; waiting for it to come back (Ctrl-C ends)", "the supervisor is back"
DROPPED = "events after 4 are missing: they were older than what is kept"


@pytest.mark.parametrize(
    ("since", "answers", "seqs", "sinces", "notes", "pauses", "bookmark"),
    [
        pytest.param(
            None, [[Feed(5, 7, head=3, error=GONE)], GONE, GONE, [Feed(9, head=8, error=GONE)]],
            [5, 7, 9], [None, 7], [WENT, CAME, WENT], [0.2, 0.4, 0.8, 0.2], 9,
            id="it begins now and goes on from its bookmark after a restart",
        ),
        pytest.param(
            None, [[Feed(head=3, error=GONE)], [Feed(error=GONE, head=3)]], [], [None, 3], None, None, 3,
            id="where nothing has come yet the bookmark is where it began",
        ),
        pytest.param(0, [[Feed(5, error=GONE)]], [5], [0], None, None, 5, id="a bookmark that is given"),
        pytest.param(
            4, [[Feed(5, 6), Feed(7, error=GONE)]], [5, 6, 7], [4, 6], [WENT], [0.2], 7,
            id="who was too slow goes on without a pause or a word",
        ),
        pytest.param(
            None, [[Feed(5), PoolClosed("stopping")], [Feed(6, error=GONE)]], [5, 6], None, None, None, 6,
            id="a supervisor that stops or is full is waited for",
        ),
        pytest.param(
            4, [[Feed(50, complete=False, error=GONE)]], [50], [4], [DROPPED, WENT], None, 50,
            id="what retention has dropped is reported",
        ),
        pytest.param(
            None, [[Feed(900, error=GONE)], [Feed(head=2), Feed(1, 2, error=GONE)]], [900, 1, 2], [None, 900, 0],
            None, None, 2, id="a supervisor without its past is followed from its beginning",
        ),
    ],
)  # fmt: skip
def test_events_are_followed_over_whatever_happens_to_the_connection(  # noqa: PLR0917  # columns of the table
    since: int | None,
    answers: list[Any],
    seqs: list[int],
    sinces: list[int | None] | None,
    notes: list[str] | None,
    pauses: list[float] | None,
    bookmark: int,
) -> None:
    view, paused = Seen(), list[float]()
    follower = EventFollower({"session": "ada"}, view, since=since, pause=paused.append)
    sources = [Source(*answer) if isinstance(answer, list) else answer for answer in answers]
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
    wishes = [wish for source in sources if isinstance(source, Source) for wish in source.wishes]
    assert {wish["session"] for wish in wishes} == {"ada"}
    assert (view.seqs, follower.bookmark) == (seqs, bookmark)
    assert sinces in (None, [wish.get("since") for wish in wishes])
    assert notes in (None, view.notes)
    assert pauses in (None, paused)


def test_a_subscription_to_a_supervisor_without_its_past_is_ended() -> None:
    other = Feed(head=2)
    follower = EventFollower({}, Seen(), since=900, pause=lambda _: None)
    with pytest.raises(UsageError):
        follower.follow_with_reconnect(Source(other, UsageError("enough")), lambda: nullcontext(Source()))
    assert other.is_ended


@pytest.mark.parametrize("error", [GONE, PoolClosed("stopping"), UsageError("no such channel")])
def test_what_fails_at_once_is_an_error_not_a_reason_to_wait(error: PoolError) -> None:
    follower = EventFollower({}, Seen(), since=None)
    with pytest.raises(type(error)):
        follower.follow_with_reconnect(Source(error), lambda: nullcontext(Source()))


@pytest.mark.parametrize("error", [GONE, PoolClosed("stopping")])
def test_a_supervisor_that_was_there_a_moment_ago_is_waited_for_and_what_a_new_connection_does_not_mend_ends_it(
    error: PoolError,
) -> None:
    view = Seen()
    follower = EventFollower({}, view, since=0, was_there=True, pause=lambda _: None)
    again = Source(Feed(5), UsageError("another user's"))
    with pytest.raises(UsageError):
        follower.follow_with_reconnect(Source(error), lambda: nullcontext(again))
    assert (view.seqs, view.notes) == ([5], [WENT, CAME])


def test_pauses_grow_and_are_bounded() -> None:
    assert list(itertools.islice(backoff(), 8)) == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def test_on_a_terminal_notes_stand_between_the_lines_and_what_was_gathered_comes_first() -> None:
    out = Terminal(tty=True)
    view = EventTextView(out, {"NO_COLOR": "1"})
    assert view.show(pushed(text("half a line", seq=8))) == 8
    assert out.getvalue() == ""
    view.show_notice("the supervisor is back")
    view.show(pushed(text("more", seq=9)))
    view.close()
    lines = [" ".join(line.split()[2:]) for line in out.getvalue().splitlines()]
    assert lines == ["text half a line", "supervisor is back", "text more"]


def test_as_json_notes_do_not_mix_with_the_events() -> None:
    out, err = Terminal(), Terminal()
    view = EventJsonView(out, err)
    assert view.show(pushed(event("done", {}, seq=4), event("done", {}, seq=6))) == 6
    view.show_notice("the supervisor is back")
    view.close()
    assert [msgspec.json.decode(line)["seq"] for line in out.getvalue().splitlines()] == [4, 6]
    assert (out.flushes, err.getvalue()) == (1, "pool: the supervisor is back\n")
