"""What a frame of the peer leads to, in each state of its connection."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from doors.http.access import TokenIdentity
from doors.http.tokens import Scope
from doors.websocket.frames import SocketLimits
from doors.websocket.handshake import (
    Accept,
    Action,
    CloseSocket,
    Dispatch,
    HandshakeResult,
    SendFrame,
    SocketMachine,
    SocketPhase,
    SocketStimulus,
)
from wire.states import IllegalTransition
from wire.units import ByteCount

OWNER = TokenIdentity("http", Scope.ADMIN, approvals=True)
TOKENS = {"right": OWNER, "reader": TokenIdentity("reader", Scope.READ, approvals=False)}
LIMITS = SocketLimits(max_requests=2, max_refused=2, first_frame_bytes=ByteCount(500))


def machine(known: TokenIdentity | None = None) -> SocketMachine:
    return SocketMachine("the-nonce", known, TOKENS.get, LIMITS)


def request(method: str, request_id: str = "1", **params: Any) -> str:
    return json.dumps({"type": "req", "id": request_id, "method": method, "params": params})


def connect(**params: Any) -> str:
    usual = {"minProtocol": 3, "maxProtocol": 4, "auth": {"token": "right"}}
    return request("connect", "c", **{**usual, **params})


def opened(**params: Any) -> SocketMachine:
    made = machine()
    assert isinstance(made.receive(connect(**params))[0], Accept)
    return made


def said(action: Action) -> dict[str, Any]:
    assert isinstance(action, SendFrame)
    frame: dict[str, Any] = msgspec.json.decode(action.frame)
    return frame


def admitted(known: TokenIdentity | None = None, **params: Any) -> HandshakeResult:
    [action] = machine(known).receive(connect(**params))
    assert isinstance(action, Accept)
    return action.handshake


def refused(frame: str, known: TokenIdentity | None = None) -> tuple[str, int]:
    """Why a first frame is refused, and with which code the connection is closed."""
    made = machine(known)
    answer, end = made.receive(frame)
    shown = said(answer)
    assert (shown["ok"], made.phase) == (False, SocketPhase.ENDED)
    assert isinstance(end, CloseSocket)
    assert end.reason == shown["error"]["message"]
    return end.reason, end.code


# --- the first frame --------------------------------------------------------------------------------------------------


def test_the_first_word_is_the_servers() -> None:
    [action] = machine().begin(1700)
    payload = {"nonce": "the-nonce", "ts": 1700}
    assert said(action) == {"type": "event", "event": "connect.challenge", "payload": payload}


@pytest.mark.parametrize(
    ("lowest", "highest", "spoken"), [(3, 4, 4), (4, 4, 4), (3, 3, 3), (1, 3, 3), (4, 99, 4), (1, 99, 4)]
)
def test_the_best_version_that_both_speak_is_spoken(lowest: int, highest: int, spoken: int) -> None:
    assert admitted(minProtocol=lowest, maxProtocol=highest).protocol == spoken


@pytest.mark.parametrize(("lowest", "highest"), [(5, 9), (1, 2), (4, 3)])
def test_no_version_in_common_is_a_protocol_error(lowest: int, highest: int) -> None:
    reason, code = refused(connect(minProtocol=lowest, maxProtocol=highest))
    assert (reason, code) == (f"protocol mismatch: 4 and 3 are spoken here, not {lowest} to {highest}", 1002)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (request("agent", message="x"), "the first request must be connect"),
        (request("connect"), "bad parameters for connect: .*minProtocol"),
        (connect(auth={"token": "forged"}), "this token is not known here"),
        (connect(auth={"token": 7}), "bad parameters for connect"),
        (connect(auth=None), "no token was shown"),
        (connect(auth={}), "no token was shown"),
        (connect(auth={"password": "right"}), "no token was shown"),
        (connect(role="node"), "there is nothing here for the role 'node'"),
        (connect(device={"id": "d", "nonce": "of-another-connection"}), "nonce is not this connection's"),
        (connect(scopes=["operator.pairing"]), "of the scopes asked for none is one of operator.read"),
        ('{"type":"event","id":"1"}', "this is no request"),
    ],
)
def test_a_peer_that_may_not_come_in_is_told_why_and_the_connection_ends(frame: str, reason: str) -> None:
    told, code = refused(frame)
    assert code == 1008
    assert re.search(reason, told)


@pytest.mark.parametrize(
    ("frame", "code"), [("GET / HTTP/1.1", 1008), ("{}", 1008), (None, 1003), (connect(x="y" * 500), 1009)]
)
def test_a_first_frame_that_cannot_be_answered_ends_the_connection(frame: str | None, code: int) -> None:
    [end] = machine().receive(frame)
    assert isinstance(end, CloseSocket)
    assert end.code == code


def test_the_first_frame_is_measured_in_bytes() -> None:
    frame = json.dumps(json.loads(connect(x="\u4e16" * 200)), ensure_ascii=False)
    assert len(frame) < 500 < len(frame.encode())
    assert machine().receive(frame) == [CloseSocket(1009, "the first frame is too large")]


def test_the_nonce_of_this_connection_is_right() -> None:
    assert admitted(device={"id": "d", "nonce": "the-nonce"}).owner is OWNER


def test_a_token_in_the_handshakes_header_is_enough_and_one_in_the_frame_goes_before_it() -> None:
    assert admitted(OWNER, auth=None).owner is OWNER
    assert admitted(OWNER, auth={"token": "reader"}).owner is TOKENS["reader"]
    assert refused(connect(auth={"token": "forged"}), OWNER)[1] == 1008


@pytest.mark.parametrize(
    ("token", "wanted", "granted"),
    [
        ("right", [], ["operator.read", "operator.write", "operator.admin", "operator.approvals"]),
        ("right", ["operator.read"], ["operator.read"]),
        ("right", ["operator.write"], ["operator.read", "operator.write"]),
        ("right", ["operator.write", "operator.approvals"], ["operator.read", "operator.write", "operator.approvals"]),
        ("right", ["operator.approvals"], ["operator.read", "operator.approvals"]),
        (
            "right",
            ["operator.admin", "unknown"],
            ["operator.read", "operator.write", "operator.admin", "operator.approvals"],
        ),
        ("reader", [], ["operator.read"]),
        ("reader", ["operator.admin", "operator.approvals"], ["operator.read"]),
    ],
)
def test_a_peer_has_the_rights_it_asked_for_that_its_token_has(
    token: str, wanted: list[str], granted: list[str]
) -> None:
    admission = admitted(auth={"token": token}, scopes=wanted)
    assert (admission.role, admission.scopes) == ("operator", granted)
    assert admission.owner is TOKENS[token], "whose token was shown stays what it was"


def test_who_does_not_say_connect_in_time_is_not_waited_for() -> None:
    made = machine()
    assert made.on_connect_timeout() == [CloseSocket(1008, "no connect in time")]
    assert made.receive(connect()) == []


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_request_is_carried_out() -> None:
    [action] = opened().receive(request("health", "7"))
    assert isinstance(action, Dispatch)
    assert (action.request.id, action.request.method) == ("7", "health")


def test_an_id_may_be_used_again_once_it_has_its_last_answer() -> None:
    made = opened()
    made.receive(request("health", "7"))
    error = said(made.receive(request("health", "7"))[0])["error"]
    assert (error["code"], error["message"]) == (
        "INVALID_REQUEST",
        "a request with the id '7' is still in flight; use another",
    )
    made.answered("7")
    assert isinstance(made.receive(request("health", "7"))[0], Dispatch)


def test_more_requests_than_may_be_in_flight_are_refused_and_may_be_made_again() -> None:
    made = opened()
    made.receive(request("health", "1"))
    made.receive(request("health", "2"))
    error = said(made.receive(request("health", "3"))[0])["error"]
    assert (error["code"], error["retryable"], error["retryAfterMs"]) == ("UNAVAILABLE", True, 1000)
    made.answered("1")
    assert isinstance(made.receive(request("health", "3"))[0], Dispatch)


def test_connect_comes_once() -> None:
    error = said(opened().receive(connect())[0])["error"]
    assert error["message"] == "this connection is connected already"


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
    assert said(answer)["id"] == "9"
    assert isinstance(end, CloseSocket)
    assert (end.code, made.phase) == (1008, SocketPhase.ENDED)


@pytest.mark.parametrize(("frame", "code"), [("garbage", 1008), (None, 1003)])
def test_what_cannot_be_answered_ends_an_open_connection(frame: str | None, code: int) -> None:
    [end] = opened().receive(frame)
    assert isinstance(end, CloseSocket)
    assert end.code == code


# --- the end ----------------------------------------------------------------------------------------------------------


def test_the_end_of_the_server_is_told_to_whoever_is_in() -> None:
    word, end = opened().on_shutdown()
    assert said(word)["event"] == "shutdown"
    assert end == CloseSocket(1001, "the supervisor ends") == machine().on_shutdown()[0]


def test_after_the_end_nothing_counts_any_more() -> None:
    made = opened()
    made.on_shutdown()
    assert made.receive(request("health")) == made.on_connect_timeout() == made.on_shutdown() == []


def test_a_move_that_there_is_not_is_a_defect_of_ours() -> None:
    made = opened()
    with pytest.raises(IllegalTransition, match="ACCEPTED in OPEN"):
        made._transition(SocketStimulus.ACCEPTED)


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
