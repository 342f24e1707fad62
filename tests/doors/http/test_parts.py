"""Parts of the HTTP port that decide by themselves: names, settings, errors, warnings, the end."""

import logging
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from doors.http.errors import HttpError, headers_of, render_error, status_of
from doors.http.services import Shutdown, ThrottledWarnings
from doors.http.settings import HttpSettings, HttpToken, host_name, is_host_allowed, is_loopback, is_origin_allowed
from doors.http.tokens import http_problems
from errors import PoolError, PoolSaturated, WorkerExited, _error_classes

NAMES = st.text(st.sampled_from("aZ09.:-[]@/% \u00e4\udcff"), max_size=30) | st.sampled_from(["localhost", "[::1]:1"])


@given(NAMES, NAMES)
def test_any_text_is_a_name_or_none(header: str, other: str) -> None:
    name = host_name(header)
    assert name is None or name == name.lower()
    assert not is_host_allowed(header, "", []) or name == "localhost"
    assert not is_origin_allowed(header, other, []) or header.lower().rstrip("/").partition("://")[2] != ""


def test_an_address_is_itself_however_it_is_written() -> None:
    for header, address in (*(("[::1]:8765", "::1"), ("[0:0:0:0:0:0:0:1]", "::1"), ("[fe80::1]", "fe80::1%eth0")),):
        assert is_host_allowed(header, address, [])
    assert not is_host_allowed("[::2]", "::1", [])
    for address in ("127.9.9.9", "::1", "localhost", "0.0.0.0", "::", "name"):
        assert is_loopback(address) == (address in ("127.9.9.9", "::1", "localhost"))


ALLOWED_HOSTS = ("localhost", "LOCALHOST:1", "127.0.0.1", "pool.example", "POOL.example:80")
FOREIGN_HOSTS = (
    *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.2", "user@localhost"),
    *("[::1]", "0", "local host", "localhost:port"),
)
OWN = "127.0.0.1:8765"
ALLOWED_ORIGINS = (f"http://{OWN}", f"https://{OWN}", "https://ops.example", "https://OPS.example:443")
FOREIGN_ORIGINS = (
    *("http://evil.example", "null", "http://ops.example", "https://ops.example.evil", "http://127.0.0.1"),
    *("https://ops.example:444", "file://", f"http://{OWN}@evil", "http://127.0.0.1:9999"),
)


def test_a_name_that_somebody_else_has_pointed_here_is_not_answered() -> None:
    for host in (*ALLOWED_HOSTS, *FOREIGN_HOSTS):
        assert is_host_allowed(host, "127.0.0.1", ["pool.example"]) == (host in ALLOWED_HOSTS), host


def test_a_page_of_another_site_may_not_call() -> None:
    for origin in (*ALLOWED_ORIGINS, *FOREIGN_ORIGINS):
        assert is_origin_allowed(origin, OWN, ["https://ops.example"]) == (origin in ALLOWED_ORIGINS), origin
    assert is_origin_allowed("http://[::1]:8765", "[::1]:8765", [])


T = "a" * 20


@pytest.mark.parametrize(
    ("place", "settings"),
    [
        ("bind", {"bind": "8765"}),
        ("token", {"token": "brief!"}),
        ("token_file", {"token": T, "token_file": "x"}),
        ("tokens.x", {"tokens": {"x": HttpToken()}}),
        ("tokens.x", {"tokens": {"x": HttpToken(token=T, token_file="b")}}),
        ("tokens.x.token", {"tokens": {"x": HttpToken(token="a b" * 20)}}),
        ("tokens.http", {"tokens": {"http": HttpToken(token_file="a")}}),
        ("tokens.x.token", {"token": T, "tokens": {"x": HttpToken(token=T)}}),
        ("allowed_hosts.0", {"allowed_hosts": ["a:1"]}),
        ("allowed_hosts.1", {"allowed_hosts": ["a", "http://b"]}),
        ("allowed_origins.0", {"allowed_origins": ["ops.example"]}),
    ],
)
def test_what_cannot_be_meant_is_found_at_its_place(settings: dict[str, Any], place: str) -> None:
    ((path, text),) = http_problems(HttpSettings(**settings))
    assert ".".join(map(str, path)) == f"http.{place}"
    assert text
    assert settings.get("token", "-" * 99) not in text


def test_settings_that_are_meant_have_no_problem() -> None:
    tokens = {"a": HttpToken(token=T), "b": HttpToken(token="b" * 20), "c": HttpToken(token_file="x")}
    names: dict[str, Any] = {"allowed_hosts": ["a.example", "[::1]"], "allowed_origins": ["https://a.example:1"]}
    assert list(http_problems(HttpSettings(bind="[::1]:0", token="t" * 20, tokens=tokens, **names))) == []
    assert list(http_problems(HttpSettings())) == []


def test_every_error_has_a_status_of_its_own_kind() -> None:
    plain = (
        kind for kind in _error_classes(PoolError) if kind.__init__ is PoolError.__init__ and kind is not HttpError
    )
    statuses = {kind: status_of(kind("x")) for kind in plain}
    assert all(400 <= status < 600 for status in statuses.values())
    assert (statuses[WorkerExited], statuses[PoolError]) == (502, 500)


def test_an_error_with_details_that_json_cannot_hold_is_told_without_them() -> None:
    answer = render_error(PoolSaturated("busy", retry_after=0.2, figures=object()))
    assert bytes(answer.body) == b'{"error":{"code":"saturated","message":"busy"}}'
    assert headers_of(PoolSaturated("busy", retry_after=0.2)) == {"retry-after": "1"}


def test_the_first_refusal_of_a_kind_is_told_and_then_how_many_there_were(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    warnings = ThrottledWarnings(logging.getLogger("pool.http"), lambda: now[0])
    for _ in range(5):
        warnings.warn("Unauthorized", path="/status", peer=None)
    warnings.warn("Forbidden", path="/x", peer="::1")
    now[0] = 11.0
    warnings.warn("Unauthorized", path="/events", peer=None)
    assert [record.getMessage() for record in caplog.records] == [
        "refused: unauthorized, path /status",
        "refused: forbidden, path /x, peer ::1",
        "refused: unauthorized, path /events (and 4 more before)",
    ]


async def test_what_begins_after_the_end_has_begun_ends_at_once() -> None:
    closing, told = Shutdown(), []
    with closing.on_begin(lambda: told.append("early")):
        closing.begin()
    with closing.on_begin(lambda: told.append("late")), closing.scope() as scope:
        await trio.sleep(60)
    assert (told, scope.cancelled_caught, closing.has_begun) == (["early", "late"], True, True)
    await closing.wait()
