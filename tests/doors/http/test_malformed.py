"""Bytes that are no request, or more than one: refused, and nothing behind them is read."""

from http import HTTPStatus

import pytest

from tests.doors.http.conftest import Connect, Door
from tests.doors.http.peer import GET, answer_to


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100, 400),
        (GET + b"X: " + b"x" * 5000 + b"\r\n\r\n", 431),
        (GET + b"".join(b"X%d: y\r\n" % number for number in range(1000)) + b"\r\n", 431),
        (b"GET /" + b"x" * 5000, 431),
        (GET + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
        (GET + b"Content-Length: -1\r\n\r\n", 400),
        (GET + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (GET + b"transfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n0\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\nHost: localhost\r\n\r\nSM\r\n\r\n", 505),
        (GET.replace(b"/health", b"http://evil.example/health") + b"Connection: close\r\n\r\n", 404),
    ],
)
async def test_bytes_that_are_no_request_are_answered_and_end_the_connection(
    door: Door, connect: Connect, data: bytes, status: int
) -> None:
    answer = await answer_to(await connect(door), data)
    assert answer.startswith(b"HTTP/1.1 %d" % status)
    assert b'"error":{"code":"%b"' % HTTPStatus(status).name.lower().encode() in answer
    assert (await (await connect(door)).call("GET", "/health")).status == 200


async def test_a_body_that_makes_no_sense_is_not_taken_for_the_next_request(door: Door, connect: Connect) -> None:
    smuggled = GET + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + GET + b"\r\n"
    answer = await answer_to(await connect(door), smuggled)
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_a_request_with_two_lengths_is_refused_with_why_and_what_comes_behind_it_is_not_read(
    door: Door, connect: Connect
) -> None:
    """A proxy that goes by the other length would take the rest for a request of somebody else's."""
    both = b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    answer = await answer_to(await connect(door), GET + both + GET + b"\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"both Content-Length and Transfer-Encoding" in answer
    assert b"connection: close" in answer.lower()


async def test_an_offer_to_speak_http_2_is_passed_over(door: Door, connect: Connect) -> None:
    answer = await (await connect(door)).call("GET", "/health", connection="upgrade, http2-settings", upgrade="h2c")
    assert answer.status == 200


async def test_requests_that_come_at_once_are_answered_in_order(door: Door, connect: Connect) -> None:
    peer = await connect(door)
    await peer.send_raw((GET + b"\r\n") * 3)
    answer = b""
    while answer.count(b'{"status":"ok"}') < 3:
        answer += await peer.stream.receive_some(65536)
    assert answer.count(b"HTTP/1.1 200") == 3
