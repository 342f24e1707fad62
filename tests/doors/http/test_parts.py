"""The parts of the HTTP door that decide by themselves."""

import logging
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from doors.http.connection import ReceiveQueue
from doors.http.errors import HttpError, headers_of, render_error, status_of
from doors.http.limits import ConnectionLimiter, Rank, RateLimiter
from doors.http.services import Shutdown, ThrottledWarnings
from doors.http.settings import HttpSettings, HttpToken, host_name, is_host_allowed, is_loopback, is_origin_allowed
from doors.http.tokens import http_problems
from errors import PoolError, PoolSaturated, WorkerExited, _error_classes


def body(data: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


GONE = {"type": "http.disconnect"}


# --- the crowd --------------------------------------------------------------------------------------------------------


def test_strangers_give_way_before_those_who_rest_and_the_busy_never() -> None:
    crowd: ConnectionLimiter[str] = ConnectionLimiter()
    for name, rank in (("a", Rank.BUSY), ("b", Rank.IDLE), ("c", Rank.ANONYMOUS), ("d", Rank.ANONYMOUS)):
        crowd.set_rank(name, rank)
    crowd.set_rank("c", Rank.ANONYMOUS)
    left = []
    while (victim := crowd.eviction_candidate()) is not None:
        left.append(victim)
        crowd.remove(victim)
    assert left == ["c", "d", "b"]
    assert crowd.members() == ["a"]


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([*Rank, None]))))
def test_the_crowd_is_as_large_as_those_who_came_and_have_not_gone(steps: list[tuple[int, Rank | None]]) -> None:
    crowd: ConnectionLimiter[int] = ConnectionLimiter()
    model: dict[int, Rank] = {}
    for member, rank in steps:
        if rank is None:
            crowd.remove(member)
            model.pop(member, None)
        else:
            crowd.set_rank(member, rank)
            model[member] = rank
        assert (len(crowd), set(crowd.members())) == (len(model), set(model))
        victim = crowd.eviction_candidate()
        assert (victim is None) == (set(model.values()) <= {Rank.BUSY})
        assert victim is None or Rank.ANONYMOUS not in model.values() or model[victim] is Rank.ANONYMOUS


# --- the inbox --------------------------------------------------------------------------------------------------------


async def test_pieces_of_a_body_that_wait_are_joined() -> None:
    inbox = ReceiveQueue(10)
    for piece in (b"a", b"b", b"c"):
        await inbox.put(body(piece))
    await inbox.put(body(b"", more=False))
    assert await inbox.receive() == body(b"abc", more=False)


async def test_more_than_has_room_waits_until_it_is_taken(nursery: trio.Nursery) -> None:
    inbox = ReceiveQueue(3)
    await inbox.put(body(b"abc"))
    nursery.start_soon(inbox.put, body(b"d"))
    await wait_all_tasks_blocked()
    assert await inbox.receive() == body(b"abc")
    assert await inbox.receive() == body(b"d")


async def test_messages_of_a_socket_stay_apart_and_are_bounded_too(nursery: trio.Nursery) -> None:
    inbox = ReceiveQueue(3)
    first, second = ({"type": "websocket.receive", "text": text, "bytes": None} for text in ("abcd", "e"))
    await inbox.put(first)
    nursery.start_soon(inbox.put, second)
    await wait_all_tasks_blocked()
    assert inbox._size == 4
    assert [await inbox.receive(), await inbox.receive()] == [first, second]
    assert inbox._size == 0


@pytest.mark.parametrize("end", ["disconnect", "end"])
async def test_whoever_waits_for_room_is_let_go_when_there_is_no_more_need(nursery: trio.Nursery, end: str) -> None:
    inbox = ReceiveQueue(1)
    await inbox.put(body(b"a"))
    async with trio.open_nursery() as waiting:
        waiting.start_soon(inbox.put, body(b"b"))
        await wait_all_tasks_blocked()
        with trio.fail_after(20):
            if end == "end":
                inbox.close()
            else:
                await inbox.put(GONE)
    with trio.fail_after(20):
        await inbox.put(GONE)


async def test_a_peer_that_has_gone_is_told_of_after_what_it_has_sent_and_each_time() -> None:
    inbox = ReceiveQueue(10)
    await inbox.put(body(b"a"))
    await inbox.put(GONE)
    assert [await inbox.receive() for _ in range(3)] == [body(b"a"), GONE, GONE]


# --- rates ------------------------------------------------------------------------------------------------------------


def test_a_burst_has_twice_the_rate_and_then_the_rate_holds() -> None:
    rates = RateLimiter(10)
    assert [rates.acquire("a", 100.0) for _ in range(20)] == [0.0] * 20
    assert rates.acquire("a", 100.0) == pytest.approx(0.1)
    assert rates.acquire("b", 100.0) == 0.0
    assert rates.acquire("a", 100.11) == 0.0
    assert rates.acquire("a", 100.11) > 0


def test_without_a_rate_everything_may_be_done() -> None:
    rates = RateLimiter(0)
    assert {rates.acquire("a", 0.0) for _ in range(1000)} == {0.0}


@given(st.lists(st.floats(0, 0.5), max_size=200), st.integers(1, 20))
def test_no_second_has_more_than_the_burst_and_the_rate(pauses: list[float], rate: int) -> None:
    rates, now, taken = RateLimiter(rate), 0.0, []
    for pause in pauses:
        now += pause
        if not rates.acquire("a", now):
            taken.append(now)
    for begin in taken:
        assert sum(begin <= at < begin + 1 for at in taken) <= 3 * rate + 1


def test_keys_are_forgotten_when_there_are_too_many() -> None:
    rates = RateLimiter(1)
    for number in range(10_000):
        rates.acquire(f"address {number}", 0.0)
    assert len(rates._full_at) <= 4096


# --- names ------------------------------------------------------------------------------------------------------------


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_text_is_a_name_or_none(header: str, other: str) -> None:
    name = host_name(header)
    assert name is None or name == name.lower()
    assert not is_host_allowed(header, "", []) or host_name(header) == "localhost"
    assert not is_origin_allowed(header, other, []) or header.lower().rstrip("/").partition("://")[2] != ""


def test_an_address_is_itself_however_it_is_written() -> None:
    assert is_host_allowed("[::1]:8765", "::1", [])
    assert is_host_allowed("[0:0:0:0:0:0:0:1]", "::1", [])
    assert is_host_allowed("[fe80::1]", "fe80::1%eth0", [])
    assert not is_host_allowed("[::2]", "::1", [])
    assert (is_loopback("127.9.9.9"), is_loopback("::1"), is_loopback("localhost")) == (True, True, True)
    assert (is_loopback("0.0.0.0"), is_loopback("::"), is_loopback("name")) == (False, False, False)


def test_a_page_is_of_the_server_itself_where_name_and_port_are_the_same() -> None:
    assert is_origin_allowed("http://localhost:8765", "localhost:8765", [])
    assert is_origin_allowed("https://pool.example", "pool.example", [])
    assert is_origin_allowed("http://[::1]:8765", "[::1]:8765", [])
    assert not is_origin_allowed("http://localhost:9999", "localhost:8765", [])


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        (HttpSettings(bind="8765"), ("http", "bind")),
        (HttpSettings(token="brief!"), ("http", "token")),
        (HttpSettings(token="0123456789abcdef", token_file="x"), ("http", "token_file")),
        (HttpSettings(tokens={"x": HttpToken()}), ("http", "tokens", "x")),
        (HttpSettings(tokens={"x": HttpToken(token="a" * 20, token_file="b")}), ("http", "tokens", "x")),
        (HttpSettings(tokens={"x": HttpToken(token="a b" * 20)}), ("http", "tokens", "x", "token")),
        (HttpSettings(tokens={"http": HttpToken(token_file="a")}), ("http", "tokens", "http")),
        (HttpSettings(token="a" * 20, tokens={"x": HttpToken(token="a" * 20)}), ("http", "tokens", "x", "token")),
        (HttpSettings(allowed_hosts=["a:1"]), ("http", "allowed_hosts", 0)),
        (HttpSettings(allowed_hosts=["a", "http://b"]), ("http", "allowed_hosts", 1)),
        (HttpSettings(allowed_origins=["ops.example"]), ("http", "allowed_origins", 0)),
    ],
)
def test_what_cannot_be_meant_is_found_at_its_place(settings: HttpSettings, place: tuple[str, ...]) -> None:
    ((path, text),) = http_problems(settings)
    assert path == place
    assert text
    assert not settings.token or settings.token not in text


def test_settings_that_are_meant_have_no_problem() -> None:
    tokens = {"a": HttpToken(token="a" * 20), "b": HttpToken(token="b" * 20), "c": HttpToken(token_file="x")}
    names: dict[str, Any] = {"allowed_hosts": ["a.example", "[::1]"], "allowed_origins": ["https://a.example:1"]}
    assert list(http_problems(HttpSettings(bind="[::1]:0", token="t" * 20, tokens=tokens, **names))) == []
    assert list(http_problems(HttpSettings())) == []


# --- errors, the log, the end -----------------------------------------------------------------------------------------


def test_every_error_has_a_status_of_its_own_kind() -> None:
    statuses = {
        kind: status_of(kind("x")) for kind in _error_classes(PoolError) if kind is not HttpError and _is_plain(kind)
    }
    assert all(400 <= status < 600 for status in statuses.values())
    assert statuses[WorkerExited] == 502
    assert statuses[PoolError] == 500


def _is_plain(kind: type[PoolError]) -> bool:
    """Made of its message alone."""
    return kind.__init__ is PoolError.__init__


def test_an_error_with_details_that_json_cannot_hold_is_told_without_them() -> None:
    answer = render_error(PoolSaturated("busy", retry_after=0.2, figures=object()))
    assert bytes(answer.body) == b'{"error":{"code":"saturated","message":"busy"}}'
    assert headers_of(PoolSaturated("busy", retry_after=0.2)) == {"retry-after": "1"}


def test_the_first_refusal_of_a_kind_is_told_and_then_how_many_there_were(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    complaints = ThrottledWarnings(logging.getLogger("pool.http"), lambda: now[0])
    for _ in range(5):
        complaints.warn("Unauthorized", path="/status", peer=None)
    complaints.warn("Forbidden", path="/x", peer="::1")
    now[0] = 11.0
    complaints.warn("Unauthorized", path="/events", peer=None)
    assert [record.getMessage() for record in caplog.records] == [
        "refused: unauthorized, path /status",
        "refused: forbidden, path /x, peer ::1",
        "refused: unauthorized, path /events (and 4 more before)",
    ]


async def test_what_begins_after_the_end_has_begun_ends_at_once() -> None:
    closing = Shutdown()
    told: list[str] = []
    with closing.on_begin(lambda: told.append("early")):
        closing.begin()
    with closing.on_begin(lambda: told.append("late")), closing.scope() as scope:
        await trio.sleep(60)
    assert told == ["early", "late"]
    assert scope.cancelled_caught
    assert closing.has_begun
    await closing.wait()
