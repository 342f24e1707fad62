"""Frames as text."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doors.websocket.frames import MalformedFrame, encode_answer, encode_error, encode_event, read_frame


def test_a_request_is_read_with_its_params_undecoded() -> None:
    frame = read_frame('{"type":"req","id":"1","method":"agent","params":{"message":"x"},"more":1}')
    assert (frame.id, frame.method, bytes(frame.params)) == ("1", "agent", b'{"message":"x"}')
    assert bytes(read_frame('{"type":"req","id":"1","method":"health"}').params) == b"{}"


@pytest.mark.parametrize(
    ("text", "request_id"),
    [
        ("", None),
        ("7", None),
        ("[]", None),
        ("null", None),
        ("{", None),
        ("[" * 100_000, None),
        ('{"id":"\\ud800","type":"req","method":"x"}', None),
        ('{"type":"req","method":"x"}', None),
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
    assert raised.value.request_id == request_id
    assert len(raised.value.message) < 500


def test_frames_are_written_as_the_protocol_has_them() -> None:
    assert encode_answer('a"b', {"x": 1}) == b'{"type":"res","id":"a\\"b","ok":true,"payload":{"x":1}}'
    assert encode_error("1", {"code": "UNAVAILABLE"}) == (
        b'{"type":"res","id":"1","ok":false,"error":{"code":"UNAVAILABLE"}}'
    )
    assert encode_event("tick", b'{"ts":1}') == b'{"type":"event","event":"tick","payload":{"ts":1}}'
    assert encode_event("tick", b'{"ts":1}', 7) == b'{"type":"event","event":"tick","payload":{"ts":1},"seq":7}'


@given(st.text(), st.recursive(st.none() | st.booleans() | st.text(), st.lists))
def test_whatever_is_said_arrives(request_id: str, payload: Any) -> None:
    try:
        frame = json.loads(encode_answer(request_id, payload))
    except UnicodeEncodeError:
        return  # half a character, which no frame can have brought
    assert (frame["id"], frame["payload"]) == (request_id, payload)


@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "replace")))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        read_frame(text)
    except MalformedFrame:
        return
    assert msgspec.json.decode(text)["type"] == "req"
