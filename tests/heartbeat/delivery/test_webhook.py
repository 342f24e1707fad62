"""Webhooks against receivers: on real loopback sockets, and in a network in memory where the clock can be moved."""

import json
import logging
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from heartbeat.delivery.channel import DeliveryFailed
from heartbeat.delivery.http_sender import HttpSender
from heartbeat.delivery.settings import DeliverySettings, SigningKey, WebhookSettings, signature_headers, signing_key
from heartbeat.delivery.webhook import WebhookChannel, open_webhooks
from tests.heartbeat.delivery.fakes import WALL, an_alert
from tests.heartbeat.delivery.receivers import CERTIFICATE, Names, Net, Receiver, reply
from tests.house import ROOT
from wire.units import decode_unit

SECRET = "correct horse battery staple"
HIDDEN_PATH = "/services/T0/very-hidden?key=also-hidden"


@pytest.fixture
async def names() -> Names:
    """The only name service of the test."""
    names = Names()
    trio.socket.set_custom_hostname_resolver(names)
    return names


def hook_at(url: str, **fields: Any) -> WebhookSettings:
    return msgspec.convert({"url": url, "secret": SECRET, **fields}, WebhookSettings, dec_hook=decode_unit)


def a_webhook(url: str, tls: ssl.SSLContext | None = None, **fields: Any) -> WebhookChannel:
    hook = hook_at(url, **fields)
    sender = HttpSender(tls or ssl.create_default_context())
    return WebhookChannel({"ops": (hook, signing_key("ops", hook, {}))}, sender.send, lambda: WALL)


async def failure_of(channel: WebhookChannel, peer: str = "ops") -> DeliveryFailed:
    with pytest.raises(DeliveryFailed) as caught:
        await channel.deliver(an_alert(), peer, 1)
    return caught.value


async def test_an_alert_arrives_signed_and_with_its_id() -> None:
    receiver = Receiver()
    async with receiver.listening() as port:
        channel = a_webhook(f"http://127.0.0.1:{port}{HIDDEN_PATH}", allow_private=True)
        await channel.deliver(an_alert(media=("/w/a.png",)), "ops", 3)
    (request,) = receiver.requests
    assert request.line == f"POST {HIDDEN_PATH} HTTP/1.1"
    assert json.loads(request.body) == {
        "type": "alert",
        "timestamp": WALL,
        "id": "a1",
        "agent": "main",
        "session": "alice",
        "reason": "interval",
        "text": "the build is red",
        "media": ["/w/a.png"],
    }
    assert request.headers == {
        "host": f"127.0.0.1:{port}",
        "content-type": "application/json",
        "content-length": str(len(request.body)),
        "user-agent": "pool",
        "pool-attempt": "3",
        **signature_headers(SigningKey(SECRET), "a1", int(WALL), request.body),
    }


async def test_the_environments_proxy_and_password_file_are_not_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password hidden")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    receiver = Receiver()
    async with receiver.listening() as port:
        await a_webhook(f"http://127.0.0.1:{port}/", allow_private=True).deliver(an_alert(), "ops", 1)
    assert "authorization" not in receiver.requests[0].headers


FOR_GOOD, FOR_NOW = (400, 401, 404, 410), (408, 425, 429, 500, 502, 503, 599)


async def test_the_status_says_whether_an_alert_was_taken_is_refused_for_good_or_for_now() -> None:
    taken, refused = (200, 201, 202, 204), (*FOR_GOOD, *FOR_NOW)
    async with Receiver(*map(reply, (*taken, *refused))).listening() as port:
        channel = a_webhook(f"http://127.0.0.1:{port}{HIDDEN_PATH}", allow_private=True)
        for _ in taken:
            await channel.deliver(an_alert(), "ops", 1)
        for status in refused:
            failure = await failure_of(channel)
            assert failure.message == f"http://127.0.0.1:{port} answered {status}"
            assert failure.permanent is (status in FOR_GOOD)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_a_failure_and_not_followed(status: int) -> None:
    async with (inner := Receiver()).listening() as inside:
        redirect = reply(status, f"Location: http://127.0.0.1:{inside}/admin")
        async with Receiver(redirect).listening() as port:
            failure = await failure_of(a_webhook(f"http://127.0.0.1:{port}/", allow_private=True))
    assert "redirect" in failure.message
    assert failure.permanent
    assert inner.requests == []


@pytest.mark.parametrize(
    ("wish", "seconds"),
    [
        *(("120", 120.0), (" 7 ", 7.0), ("", None), ("soon", None), ("-1", None), ("1e5", None), ("\u00b2", None)),
        *(("9" * 400, None), ("Wed, 21 Oct 2026 07:28:00 GMT", None)),
    ],
)
async def test_a_wish_to_be_left_alone_is_heard_where_it_is_a_number(wish: str, seconds: float | None) -> None:
    answer = reply(503, "X: y").replace(b"X: y", b"Retry-After: " + wish.encode("latin-1"))
    async with Receiver(answer).listening() as port:
        failure = await failure_of(a_webhook(f"http://127.0.0.1:{port}/", allow_private=True))
    assert failure.retry_after == seconds


@pytest.mark.parametrize(
    "nonsense", [b"", b"\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200\r\nA" + b"a" * 200_000, b"\x00" * 70_000]
)
async def test_an_answer_that_is_not_http_is_a_failure_for_now(nonsense: bytes) -> None:
    async with Receiver(nonsense).listening() as port:
        failure = await failure_of(a_webhook(f"http://127.0.0.1:{port}{HIDDEN_PATH}", allow_private=True))
    assert "broke off" in failure.message
    assert not failure.permanent
    assert "hidden" not in failure.message
    assert len(failure.message) < 300


async def test_an_answer_without_end_is_not_read() -> None:
    sent = 0

    async def pour(stream: trio.abc.Stream) -> None:
        nonlocal sent
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
        while True:
            await stream.send_all(b"x" * 65536)
            sent += 65536

    async with Receiver(pour).listening() as port:
        await a_webhook(f"http://127.0.0.1:{port}/", allow_private=True).deliver(an_alert(), "ops", 1)
    assert sent < 20_000_000


async def test_a_host_where_nobody_listens_is_a_failure_for_now() -> None:
    async with Receiver().listening() as port:
        pass
    failure = await failure_of(a_webhook(f"http://127.0.0.1:{port}{HIDDEN_PATH}", allow_private=True))
    assert "cannot be reached" in failure.message
    assert not failure.permanent


async def test_a_webhook_that_is_not_there_is_told_by_its_name() -> None:
    failure = await failure_of(a_webhook("http://127.0.0.1/"), "opps")
    assert (failure.permanent, "'opps'" in failure.message) == (True, True)
    assert a_webhook("http://127.0.0.1/", max_attempts=3).max_attempts("ops") == 3
    assert a_webhook("http://127.0.0.1/").max_attempts("opps") == 1


async def silence(stream: trio.abc.Stream) -> None:
    await trio.sleep_forever()


async def trickle(stream: trio.abc.Stream) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\n")
    while True:
        await trio.sleep(1)
        await stream.send_all(b"X: y\r\n")


async def promises(stream: trio.abc.Stream) -> None:
    while True:
        await stream.send_all(b"HTTP/1.1 102 Processing\r\n\r\n")
        await trio.sleep(0.1)


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize("answer", [silence, trickle, promises])
async def test_a_receiver_that_does_not_come_to_an_end_costs_the_timeout(
    answer: Any, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net(nursery, {"93.184.216.34": Receiver(answer)})
    monkeypatch.setattr(trio, "open_tcp_stream", net.open_tcp_stream)
    failure = await failure_of(a_webhook("http://93.184.216.34/", timeout="20s"))
    assert failure.message == "http://93.184.216.34 did not answer within 20 s"
    assert trio.current_time() == 20
    assert not failure.permanent


@pytest.mark.usefixtures("virtual_time")
async def test_a_name_that_takes_for_ever_costs_the_timeout() -> None:
    class Forever(Names):
        async def getaddrinfo(self, *_question: Any, **_more: Any) -> Any:
            await trio.sleep_forever()

    trio.socket.set_custom_hostname_resolver(Forever())
    failure = await failure_of(a_webhook("https://hooks.example/", timeout="20s"))
    assert "did not answer within 20 s" in failure.message


async def test_a_stop_interrupts_an_attempt_at_once() -> None:
    asked = trio.Event()

    async def listen_for_ever(stream: trio.abc.Stream) -> None:
        asked.set()
        await silence(stream)

    async with Receiver(listen_for_ever).listening() as port, trio.open_nursery() as life:
        life.start_soon(a_webhook(f"http://127.0.0.1:{port}/", allow_private=True).deliver, an_alert(), "ops", 1)
        await asked.wait()
        life.cancel_scope.cancel()


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "[::1]", "0.0.0.0", "169.254.169.254", "10.0.0.1", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]"),
        *("2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[fe80::1]"),
    ],
)
async def test_an_inward_address_is_refused_however_it_is_written(
    host: str, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    net = Net(nursery, {})
    monkeypatch.setattr(trio, "open_tcp_stream", net.open_tcp_stream)
    failure = await failure_of(a_webhook(f"http://{host}/"))
    assert "is refused" in failure.message
    assert failure.permanent
    assert net.connected == []


@pytest.mark.parametrize("found", [["127.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["2606:2800::1", "::1"]])
async def test_a_name_that_leads_inwards_is_refused(
    found: list[str], names: Names, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    names.answers["hooks.example"] = [found]
    net = Net(nursery, {})
    monkeypatch.setattr(trio, "open_tcp_stream", net.open_tcp_stream)
    failure = await failure_of(a_webhook("https://hooks.example/"))
    assert "the host hooks.example leads to" in failure.message
    assert (failure.permanent, net.connected) == (True, [])


async def test_a_name_that_nobody_knows_is_a_failure_for_now(names: Names) -> None:
    failure = await failure_of(a_webhook("https://hooks.example/"))
    assert "cannot be resolved: Name or service not known" in failure.message
    assert not failure.permanent


async def test_a_name_that_is_answered_otherwise_the_second_time_still_leads_where_it_was_checked(
    names: Names, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    names.answers["rebind.example"] = [["93.184.216.34"], ["127.0.0.1"]]
    outer, inner = Receiver(), Receiver()
    net = Net(nursery, {"93.184.216.34": outer, "127.0.0.1": inner, "rebind.example": inner})
    monkeypatch.setattr(trio, "open_tcp_stream", net.open_tcp_stream)
    channel = a_webhook("http://rebind.example:8080/x")
    await channel.deliver(an_alert(), "ops", 1)
    assert names.asked == ["rebind.example"]
    assert net.connected == ["93.184.216.34"]
    assert [request.headers["host"] for request in outer.requests] == ["rebind.example:8080"]
    failure = await failure_of(channel)  # the next attempt asks anew, and is refused
    assert "leads to 127.0.0.1" in failure.message
    assert (len(names.asked), net.connected, inner.requests) == (2, ["93.184.216.34"], [])


async def test_an_address_that_cannot_be_reached_gives_way_to_the_next(names: Names) -> None:
    names.answers["hooks.example"] = [["127.0.0.2", "127.0.0.1"]]
    async with (receiver := Receiver()).listening() as port:
        await a_webhook(f"http://hooks.example:{port}/", allow_private=True).deliver(an_alert(), "ops", 1)
    assert len(receiver.requests) == 1


async def test_an_alert_that_may_have_arrived_is_not_sent_to_the_next_address(names: Names) -> None:
    names.answers["hooks.example"] = [["127.0.0.1", "127.0.0.1", "127.0.0.3"]]
    async with (receiver := Receiver(b"")).listening() as port:
        await failure_of(a_webhook(f"http://hooks.example:{port}/", allow_private=True))
    assert len(receiver.requests) == 1


async def test_the_certificate_is_the_hosts_and_the_connection_the_checked_addresses(names: Names) -> None:
    names.answers["hooks.example"] = [["127.0.0.1"], ["127.0.0.2"]]
    async with (receiver := Receiver()).listening_encrypted() as port:
        trusting = ssl.create_default_context(cafile=CERTIFICATE)
        await a_webhook(f"https://hooks.example:{port}/", trusting, allow_private=True).deliver(an_alert(), "ops", 1)
    assert receiver.server_names == ["hooks.example"]
    assert receiver.requests[0].headers["host"] == f"hooks.example:{port}"
    assert names.asked == ["hooks.example"]


@pytest.mark.parametrize(("host", "trusted"), [("other.example", CERTIFICATE), ("hooks.example", None)])
async def test_a_certificate_of_somebody_else_is_not_taken(host: str, trusted: Path | None, names: Names) -> None:
    names.answers[host] = [["127.0.0.1"]]
    trusting = ssl.create_default_context(cafile=trusted)
    async with (receiver := Receiver()).listening_encrypted() as port:
        failure = await failure_of(a_webhook(f"https://{host}:{port}/", trusting, allow_private=True))
    assert "certificate" in failure.message
    assert receiver.requests == []


async def test_neither_secret_nor_path_is_logged_or_shown(caplog: pytest.LogCaptureFixture, names: Names) -> None:
    caplog.set_level(logging.DEBUG)
    plan = [reply(204), reply(500), reply(302), b"nonsense\r\n"]
    shown = []
    async with Receiver(*plan).listening() as port:
        settings = DeliverySettings(
            webhooks={"ops": hook_at(f"http://127.0.0.1:{port}{HIDDEN_PATH}", allow_private=True)}
        )
        channel = open_webhooks(settings, {})["webhook"]
        await channel.deliver(an_alert(), "ops", 1)
        for _ in plan[1:]:
            failure = await failure_of(channel)
            shown += [str(failure), repr(failure), repr(failure.details)]
    shown += [repr(settings), repr(channel), repr(vars(channel)), caplog.text]
    assert SECRET not in "".join(shown)
    assert "hidden" not in "".join(shown)
    assert "connect_tcp" in caplog.text  # so much is told


@pytest.mark.process
def test_nothing_is_loaded_before_it_is_needed() -> None:
    program = (
        "import sys\n"
        "from heartbeat.delivery.settings import DeliverySettings, WebhookSettings\n"
        "assert 'trio' not in sys.modules\n"  # the settings are read by every command
        "from heartbeat.delivery.webhook import open_webhooks\n"
        "open_webhooks(DeliverySettings(), {})\n"
        "assert 'httpx' not in sys.modules\n"
        f"hook = WebhookSettings(url='https://hooks.example/', secret={SECRET!r})\n"
        "open_webhooks(DeliverySettings(webhooks={'ops': hook}), {})\n"
        "assert 'httpx' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=20)
