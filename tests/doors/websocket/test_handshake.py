"""Frames as text, and what a frame of the peer leads to in each state of its connection."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from doors.http.access import TokenIdentity
from doors.http.tokens import Scope
from doors.websocket.frames import (
    MalformedFrame,
    SocketLimits,
    encode_answer,
    encode_error,
    encode_event,
    read_frame,
)
from doors.websocket.handshake import (
    Accept,
    Action,
    CloseSocket,
    Dispatch,
    HandshakeResult,
    SendFrame,
    SocketMachine,
    SocketPhase,
)
from wire.units import ByteCount

OWNER = TokenIdentity("http", Scope.ADMIN, approvals=True)
TOKENS = {"right": OWNER, "reader": TokenIdentity("reader", Scope.READ, approvals=False)}
LIMITS = SocketLimits(max_requests=2, max_refused=2, first_frame_bytes=ByteCount(500))
READ, WRITE, ADMIN, APPROVALS = (f"operator.{name}" for name in ("read", "write", "admin", "approvals"))

# --- frames -----------------------------------------------------------------------------------------------------------


def test_a_request_is_read_with_its_params_undecoded_and_frames_are_written_as_the_protocol_has_them() -> None:
    frame = read_frame('{"type":"req","id":"1","method":"agent","params":{"message":"x"},"more":1}')
    assert (frame.id, frame.method, bytes(frame.params)) == ("1", "agent", b'{"message":"x"}')
    assert bytes(read_frame('{"type":"req","id":"1","method":"health"}').params) == b"{}"
    assert encode_answer('a"b', {"x": 1}) == b'{"type":"res","id":"a\\"b","ok":true,"payload":{"x":1}}'
    error = encode_error("1", {"code": "UNAVAILABLE"})
    assert error == b'{"type":"res","id":"1","ok":false,"error":{"code":"UNAVAILABLE"}}'
    assert encode_event("tick", b'{"ts":1}') == b'{"type":"event","event":"tick","payload":{"ts":1}}'
    assert encode_event("tick", b'{"ts":1}', 7) == b'{"type":"event","event":"tick","payload":{"ts":1},"seq":7}'


@pytest.mark.parametrize(
    ("text", "request_id"),
    [
        *((text, None) for text in ("", "7", "[]", "null", "{", "[" * 100_000, '{"type":"req","method":"x"}')),
        ('{"id":"\\ud800","type":"req","method":"x"}', None),
        ('{"type":"req","id":7,"method":"x"}', None),
        ('{"type":"req","id":"","method":"x"}', None),
        ('{"type":"req","id":"' + "x" * 129 + '","method":"x"}', None),
        ('{"type":"res","id":"1","method":"x"}', "1"),
        ('{"type":"req","id":"1"}', "1"),
        ('{"type":"req","id":"1","method":7}', "1"),
        ('{"type":"req","id":"1","method":"' + "x" * 65 + '"}', "1"),
    ],
)
def test_what_is_no_request_says_under_which_id_it_may_be_answered(text: str, request_id: str | None) -> None:
    with pytest.raises(MalformedFrame) as raised:
        read_frame(text)
    assert (raised.value.request_id, len(raised.value.message) < 500) == (request_id, True)


@settings(max_examples=50)
@given(
    st.text(max_size=20), st.text(max_size=20) | st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "replace"))
)
def test_whatever_is_said_arrives_and_no_text_breaks_the_reader(request_id: str, text: str) -> None:
    try:
        frame = json.loads(encode_answer(request_id, [text]))
        assert (frame["id"], frame["payload"]) == (request_id, [text])
        read_frame(text)
    except (UnicodeEncodeError, MalformedFrame):
        return  # half a character, which no frame can have brought; no request
    assert msgspec.json.decode(text)["type"] == "req"


# --- the first frame --------------------------------------------------------------------------------------------------


def machine(known: TokenIdentity | None = None) -> SocketMachine:
    return SocketMachine("the-nonce", known, TOKENS.get, LIMITS)


def request(method: str, request_id: str = "1", **params: Any) -> str:
    return json.dumps({"type": "req", "id": request_id, "method": method, "params": params})


def connect(**params: Any) -> str:
    return request("connect", "c", **{"minProtocol": 3, "maxProtocol": 4, "auth": {"token": "right"}, **params})


def opened() -> SocketMachine:
    made = machine()
    assert isinstance(made.receive(connect())[0], Accept)
    return made


def said(action: Action) -> dict[str, Any]:
    assert isinstance(action, SendFrame)
    frame: dict[str, Any] = msgspec.json.decode(action.frame)
    return frame


def admitted(known: TokenIdentity | None = None, **params: Any) -> HandshakeResult:
    [action] = machine(known).receive(connect(**params))
    assert isinstance(action, Accept)
    return action.handshake


def code_of(action: Action) -> int:
    assert isinstance(action, CloseSocket)
    return action.code


def test_the_first_word_is_the_servers() -> None:
    [action] = machine().begin(1700)
    payload = {"nonce": "the-nonce", "ts": 1700}
    assert said(action) == {"type": "event", "event": "connect.challenge", "payload": payload}


@pytest.mark.parametrize(("lowest", "highest", "spoken"), [(3, 4, 4), (4, 4, 4), (3, 3, 3), (1, 3, 3), (1, 99, 4)])
def test_the_best_version_that_both_speak_is_spoken(lowest: int, highest: int, spoken: int) -> None:
    assert admitted(minProtocol=lowest, maxProtocol=highest).protocol == spoken


MISMATCH = "^protocol mismatch: 4 and 3 are spoken here, not {} to {}$"
TOO_LARGE = json.dumps(json.loads(connect(x="\u4e16" * 200)), ensure_ascii=False)
"""Fewer than 500 characters, and more bytes."""


@pytest.mark.parametrize(
    ("frame", "code", "reason"),
    [
        (connect(minProtocol=5, maxProtocol=9), 1002, MISMATCH.format(5, 9)),
        (connect(minProtocol=1, maxProtocol=2), 1002, MISMATCH.format(1, 2)),
        (connect(minProtocol=4, maxProtocol=3), 1002, MISMATCH.format(4, 3)),
        (request("agent", message="x"), 1008, "the first request must be connect"),
        (request("connect"), 1008, "bad parameters for connect: .*minProtocol"),
        (connect(auth={"token": "forged"}), 1008, "this token is not known here"),
        (connect(auth={"token": 7}), 1008, "bad parameters for connect"),
        (connect(auth=None), 1008, "no token was shown"),
        (connect(auth={}), 1008, "no token was shown"),
        (connect(auth={"password": "right"}), 1008, "no token was shown"),
        (connect(role="node"), 1008, "there is nothing here for the role 'node'"),
        (connect(device={"id": "d", "nonce": "of-another"}), 1008, "nonce is not this connection's"),
        (connect(scopes=["operator.pairing"]), 1008, "of the scopes asked for none is one of operator.read"),
        ('{"type":"event","id":"1"}', 1008, "this is no request"),
        ("GET / HTTP/1.1", 1008, None),
        ("{}", 1008, None),
        (None, 1003, None),
        (connect(x="y" * 500), 1009, None),
        (TOO_LARGE, 1009, None),
    ],
)
def test_a_first_frame_that_does_not_let_its_peer_in_ends_the_connection_with_the_reason(
    frame: str | None, code: int, reason: str | None
) -> None:
    made = machine()
    *answers, end = made.receive(frame)
    assert (code_of(end), made.phase, len(answers)) == (code, SocketPhase.ENDED, int(reason is not None))
    if reason is not None:
        shown = said(answers[0])
        assert isinstance(end, CloseSocket)
        assert (shown["ok"], shown["error"]["message"]) == (False, end.reason)
        assert re.search(reason, end.reason)


def test_the_nonce_of_this_connection_is_right_and_a_token_in_the_frame_goes_before_one_in_the_header() -> None:
    assert admitted(device={"id": "d", "nonce": "the-nonce"}).owner is OWNER
    assert admitted(OWNER, auth=None).owner is OWNER
    assert admitted(OWNER, auth={"token": "reader"}).owner is TOKENS["reader"]
    assert code_of(machine(OWNER).receive(connect(auth={"token": "forged"}))[-1]) == 1008


@pytest.mark.parametrize(
    ("token", "wanted", "granted"),
    [
        ("right", [], [READ, WRITE, ADMIN, APPROVALS]),
        ("right", [READ], [READ]),
        ("right", [WRITE], [READ, WRITE]),
        ("right", [WRITE, APPROVALS], [READ, WRITE, APPROVALS]),
        ("right", [APPROVALS], [READ, APPROVALS]),
        ("right", [ADMIN, "unknown"], [READ, WRITE, ADMIN, APPROVALS]),
        ("reader", [], [READ]),
        ("reader", [ADMIN, APPROVALS], [READ]),
    ],
)
def test_a_peer_has_the_rights_it_asked_for_that_its_token_has(
    token: str, wanted: list[str], granted: list[str]
) -> None:
    admission = admitted(auth={"token": token}, scopes=wanted)
    assert admission.scopes == granted
    assert admission.owner is TOKENS[token], "whose token was shown stays what it was"


# --- requests, and the end --------------------------------------------------------------------------------------------


def test_a_request_is_carried_out_and_its_id_may_be_used_again_once_it_has_its_last_answer() -> None:
    made = opened()
    [action] = made.receive(request("health", "7"))
    assert isinstance(action, Dispatch)
    assert (action.request.id, action.request.method) == ("7", "health")
    error = said(made.receive(request("health", "7"))[0])["error"]
    words = "a request with the id '7' is still in flight; use another"
    assert (error["code"], error["message"]) == ("INVALID_REQUEST", words)
    made.answered("7")
    assert isinstance(made.receive(request("health", "7"))[0], Dispatch)
    error = said(made.receive(connect())[0])["error"]
    assert error["message"] == "this connection is connected already"


def test_more_requests_than_may_be_in_flight_are_refused_and_may_be_made_again() -> None:
    made = opened()
    made.receive(request("health", "1"))
    made.receive(request("health", "2"))
    error = said(made.receive(request("health", "3"))[0])["error"]
    assert (error["code"], error["retryable"], error["retryAfterMs"]) == ("UNAVAILABLE", True, 1000)
    made.answered("1")
    assert isinstance(made.receive(request("health", "3"))[0], Dispatch)


def test_a_few_frames_that_are_no_request_are_forgiven_and_not_many_in_a_row() -> None:
    made = opened()
    wrong = '{"type":"req","id":"9"}'
    for _ in range(3):
        assert len(made.receive(wrong)) == len(made.receive(wrong)) == 1
        made.receive(request("health"))
        made.answered("1")
    made.receive(wrong)
    made.receive(wrong)
    answer, end = made.receive(wrong)
    assert (said(answer)["id"], code_of(end), made.phase) == ("9", 1008, SocketPhase.ENDED)
    for frame, code in (("garbage", 1008), (None, 1003)):
        [end] = opened().receive(frame)
        assert code_of(end) == code


def test_after_an_end_nothing_counts_any_more() -> None:
    late = machine()
    assert late.on_connect_timeout() == [CloseSocket(1008, "no connect in time")]
    assert late.receive(connect()) == []
    made = opened()
    word, end = made.on_shutdown()
    assert said(word)["event"] == "shutdown"
    assert end == CloseSocket(1001, "the supervisor ends") == machine().on_shutdown()[0]
    assert made.receive(request("health")) == made.on_connect_timeout() == made.on_shutdown() == []


class Sockets(RuleBasedStateMachine):
    """Any peer and any server: at most one end, which is last; each id in flight once, and not too many."""

    @initialize()
    def begin(self) -> None:
        self.machine = machine()
        self.in_flight: set[str] = set()
        self.ends = 0
        self.is_in = False

    def _take(self, actions: list[Action]) -> None:
        assert not (actions and self.ends), "after its end a connection does nothing"
        for number, action in enumerate(actions):
            if isinstance(action, CloseSocket):
                self.ends += 1
                assert number == len(actions) - 1
            if isinstance(action, Accept):
                assert not self.is_in
                self.is_in = True
            if isinstance(action, Dispatch):
                assert self.is_in
                assert action.request.id not in self.in_flight
                self.in_flight.add(action.request.id)

    @rule(
        frame=st.one_of(
            st.builds(request, st.sampled_from(["health", "connect"]), st.sampled_from("abc")),
            st.sampled_from([connect(), connect(auth=None), "", '{"id":"a"}', None]),
        )
    )
    def receive(self, frame: str | None) -> None:
        self._take(self.machine.receive(frame))

    @rule()
    def late(self) -> None:
        self._take(self.machine.on_connect_timeout())

    @rule()
    def go_away(self) -> None:
        self._take(self.machine.on_shutdown())

    @precondition(lambda self: self.in_flight)
    @rule()
    def answer(self) -> None:
        self.machine.answered(self.in_flight.pop())

    @invariant()
    def bounded(self) -> None:
        if hasattr(self, "machine"):
            assert len(self.in_flight) <= LIMITS.max_requests
            assert (self.machine.phase is SocketPhase.ENDED) == bool(self.ends)


TestSockets = Sockets.TestCase
TestSockets.settings = settings(max_examples=60, stateful_step_count=25)
