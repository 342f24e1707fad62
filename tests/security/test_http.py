"""The HTTP port as a hostile page, a stranger and a token with few rights find it."""

import hmac
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from doors.http.access import TokenRegistry
from doors.http.routes import route_specs
from doors.http.services import HttpServices
from doors.http.settings import HttpSettings, HttpToken
from doors.http.tokens import METHOD_SCOPES, Scope, TokenGrant, scope_of
from tests.doors.dashboard.crowd import Crowd, serving
from tests.doors.methods import FakeMethods

TOKEN = "the-token-of-an-operator-0123456789"
LOOKER = "the-token-of-a-looker-0123456789"

ROUTES = {
    **dict.fromkeys([("/", "GET"), ("/assets/{name}", "GET"), ("/health", "GET"), ("/ready", "GET")]),
    **dict.fromkeys(
        [("/status", "GET"), ("/metrics", "GET"), ("/events", "GET"), ("/api/{method}", "POST")], Scope.READ
    ),
    **dict.fromkeys([("/v1/models", "GET"), ("/v1/models/{model}", "GET")], Scope.READ),
    **dict.fromkeys([("/v1/chat/completions", "POST"), ("/v1/responses", "POST")], Scope.WRITE),
    ("/v1/responses/{response}", "GET"): Scope.READ,
    ("/v1/responses/{response}", "DELETE"): Scope.WRITE,
    ("/v1/{rest:path}", "GET POST PUT PATCH DELETE"): Scope.READ,
    ("/{path:path}", "socket"): None,
}
"""Every way in and what it asks for; ``None``: it is open to all and tells nothing of anybody (or asks by itself)."""
PLAIN = [route for route in ROUTES if route[1] != "socket"]

READ_METHODS = {
    *("ping", "status", "metrics", "agents.list", "agent.wait", "explain", "route", "events.peek"),
    *("subscribe", "unsubscribe", "sessions.list", "sessions.get", "sessions.options", "sessions.history"),
    *("workers.list", "nodes.list", "waiting.list", "heartbeat.status", "cron.list", "cron.get"),
    *("approvals.list", "approvals.show"),
}
WRITE_METHODS = {
    *("agent", "prompt", "steer", "abort", "delegate", "process", "sessions.reset", "sessions.patch", "events.inject"),
    *("acquire", "release", "decide", "ui.respond", "heartbeat.run"),
}


def test_s30_every_route_asks_for_what_the_table_says() -> None:
    services = HttpServices(FakeMethods(), HttpSettings(token=TOKEN), TokenRegistry([]))
    specs = route_specs(services)
    assert {(each.path, "socket" if each.is_socket else " ".join(each.methods)): each.scope for each in specs} == ROUTES


def test_s31_every_method_that_is_not_named_is_the_operators_alone() -> None:
    assert {name for name, scope in METHOD_SCOPES.items() if scope is Scope.READ} == READ_METHODS
    assert {name for name, scope in METHOD_SCOPES.items() if scope is Scope.WRITE} == WRITE_METHODS
    others = ("attach.open", "shutdown", "config.get", "cron.add", "of.tomorrow")
    assert {scope_of(name) for name in others} == {Scope.ADMIN}


def test_s32_a_wrong_token_is_compared_as_long_as_a_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def compare(first: bytes, second: bytes) -> bool:
        compared.append((len(first), len(second)))
        return real(first, second)

    tokens = [f"token-number-{number}-of-five" for number in range(5)]
    access = TokenRegistry([TokenGrant(token, token, Scope.READ, approvals=False) for token in tokens])
    monkeypatch.setattr(hmac, "compare_digest", compare)
    for token in (tokens[0], tokens[4], "x", "x" * 100_000, "\udcff\u20ac"):
        compared.clear()
        assert (access.authenticate(token) is not None) == (token in tokens)
        assert compared == [(32, 32)] * 5


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tokens = {"looker": HttpToken(token=LOOKER)}
    with serving(Crowd(50), tmp_path_factory.mktemp("http"), token=TOKEN, tokens=tokens) as address:
        yield address


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=20) as opened_client:
        yield opened_client


def asked(client: httpx.Client, route: tuple[str, str], **headers: str) -> list[httpx.Response]:
    path, methods = route
    for name, value in {"{name}": "main.js", "{method}": "status", "{model}": "main", "{rest:path}": "files"}.items():
        path = path.replace(name, value)
    return [client.request(method, path, headers=headers) for method in methods.split()]


@pytest.mark.parametrize("route", [route for route in PLAIN if ROUTES[route] is not None], ids=" ".join)
def test_s30_without_a_token_nothing_that_is_guarded_is_told(client: httpx.Client, route: tuple[str, str]) -> None:
    for headers in ({}, {"authorization": f"Bearer {TOKEN}x"}, {"cookie": f"token={TOKEN}"}, {"x-token": TOKEN}):
        assert {answer.status_code for answer in asked(client, route, **headers)} == {401}
    for answer in asked(client, (f"{route[0]}?token={TOKEN}&access_token={TOKEN}", route[1])):
        assert answer.status_code == 401


@pytest.mark.parametrize("route", PLAIN, ids=" ".join)
def test_s33_no_answer_sets_a_cookie_or_is_kept_guessed_at_or_lent_to_another_site(
    client: httpx.Client, route: tuple[str, str]
) -> None:
    answers = asked(client, route)
    if route[0] != "/events":  # with a token it has no end; its headers are those of all others
        answers += asked(client, route, authorization=f"Bearer {LOOKER}")
    for answer in answers:
        assert not {"server", "set-cookie", "access-control-allow-origin", "access-control-allow-credentials"} & set(
            answer.headers
        )
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cache-control"] in ("no-store", "no-cache")
        assert answer.headers["referrer-policy"] == "no-referrer"
        if answer.headers.get("content-type", "").startswith("text/html"):
            assert "script-src 'self'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("route", PLAIN, ids=" ".join)
def test_s34_a_foreign_page_and_a_foreign_name_reach_nothing_even_with_the_token(
    client: httpx.Client, route: tuple[str, str]
) -> None:
    token = {"authorization": f"Bearer {TOKEN}"}
    for origin in ("https://evil.example", "null", "http://localhost.evil.example", "http://127.0.0.1:1"):
        assert {answer.status_code for answer in asked(client, route, origin=origin, **token)} == {403}
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.2"):
        assert {answer.status_code for answer in asked(client, route, host=host, **token)} == {421}


def test_s34_a_foreign_page_opens_no_websocket(url: str) -> None:
    for origin in ("https://evil.example", "null"):
        with pytest.raises(InvalidStatus, match="403"), opened(url, origin=origin):
            pass
    with opened(url, origin=url) as socket:
        assert json.loads(socket.recv(20))["event"] == "connect.challenge"


def opened(url: str, **headers: str) -> ClientConnection:
    return connect(url.replace("http", "ws") + "/ws", additional_headers=headers, open_timeout=20)


def ask(socket: ClientConnection, method: str, **params: Any) -> dict[str, Any]:
    """The answer to one request; events in between are passed over."""
    socket.send(json.dumps({"type": "req", "id": method, "method": method, "params": params}))
    while True:
        frame: dict[str, Any] = json.loads(socket.recv(20))
        if frame["type"] == "res":
            return frame


HELLO = {"minProtocol": 4, "maxProtocol": 4}
KNOWN = {**HELLO, "auth": {"token": TOKEN}}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        *(("status", {}), ("agent", {"message": "hello"}), ("config.get", {}), ("connect", HELLO)),
        ("connect", {**HELLO, "auth": {"token": f"{TOKEN}x"}}),
        *(("connect", {**HELLO, "auth": {"password": TOKEN}}), ("connect", {**KNOWN, "role": "node"})),
        *(("connect", {**KNOWN, "scopes": ["everything"]}), ("connect", {**KNOWN, "device": {"nonce": "another"}})),
    ],
)
def test_s35_a_websocket_without_a_token_gets_one_refusal_and_is_closed(
    url: str, method: str, params: dict[str, Any]
) -> None:
    with opened(url) as socket:
        assert json.loads(socket.recv(20))["event"] == "connect.challenge"
        answer = ask(socket, method, **params)
        assert answer["ok"] is False
        assert TOKEN not in json.dumps(answer)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


def test_s31_a_websocket_may_do_what_its_token_may_whatever_it_asks_for(url: str) -> None:
    wish = {**HELLO, "auth": {"token": LOOKER}, "scopes": ["operator.admin", "operator.approvals"]}
    with opened(url) as socket:
        assert ask(socket, "connect", **wish)["payload"]["auth"]["scopes"] == ["operator.read"]
        assert ask(socket, "sessions.list")["ok"] is True
        for method, params in (
            ("agent", {"message": "hello", "idempotencyKey": "k"}),
            ("sessions.delete", {"key": "a"}),
            ("config.get", {}),
            ("exec.approval.resolve", {"id": "c", "decision": "allow-once"}),
        ):
            assert "missing scope" in json.dumps(ask(socket, method, **params)), method
