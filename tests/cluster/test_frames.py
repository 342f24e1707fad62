"""Frames: whatever the cuts, the same frames; whatever breaks the rules ends the link."""

import itertools
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.frames import (
    CHUNK_BYTES,
    FROM_HOME,
    FROM_NODE,
    FROM_STRANGER,
    MAX_HELLO_BYTES,
    Frame,
    FrameDecoder,
    FrameKind,
    Limits,
    LinkViolation,
    encode_frame,
)
from cluster.messages import PROTOCOL, Hello, Welcome, decode_hello, decode_message, message_frame

EVERY_KIND: Limits = dict.fromkeys(FrameKind, 300)
HELLO = Hello(version="1", name="gpu-1", boot="b", instance="i", secret="canary")

frames_of_all_kinds = st.builds(Frame, st.sampled_from(FrameKind), st.integers(0, 2**32 - 1), st.binary(max_size=300))


@given(sent=st.lists(frames_of_all_kinds), cuts=st.lists(st.integers(0, 2000)))
def test_any_cut_of_the_bytes_gives_the_same_frames(sent: list[Frame], cuts: list[int]) -> None:
    data = b"".join(encode_frame(*frame) for frame in sent)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    decoder = FrameDecoder(EVERY_KIND)
    found = [frame for at, end in itertools.pairwise(edges) for frame in decoder.feed(data[at:end])]
    assert found == sent


@pytest.mark.parametrize("limits", [FROM_NODE, FROM_HOME, FROM_STRANGER])
def test_a_head_that_is_not_allowed_ends_the_link_before_its_payload_is_there(limits: Limits) -> None:
    refused = set(range(256)) - set(limits)
    assert refused
    for kind in refused:
        with pytest.raises(LinkViolation, match="not allowed"):
            list(FrameDecoder(limits).feed(struct.pack("!IBI", 0, kind, 0)))
    for kind, limit in limits.items():
        assert list(FrameDecoder(limits).feed(struct.pack("!IBI", limit, kind, 0))) == []
        with pytest.raises(LinkViolation, match="over its limit"):
            list(FrameDecoder(limits).feed(struct.pack("!IBI", limit + 1, kind, 0)))


def test_frames_before_a_broken_one_are_read() -> None:
    frames = FrameDecoder(FROM_NODE).feed(encode_frame(FrameKind.OUT, 7, b"x") + bytes(9))
    assert next(frames) == Frame(FrameKind.OUT, 7, b"x")
    with pytest.raises(LinkViolation):
        next(frames)


def test_what_a_peer_may_say_changes_between_two_frames_of_one_read() -> None:
    decoder = FrameDecoder(FROM_STRANGER)
    data = message_frame(FrameKind.HELLO, 0, HELLO) + encode_frame(FrameKind.OUT, 1, b"x" * CHUNK_BYTES)
    kinds = []
    for frame in decoder.feed(data):
        kinds.append(frame.kind)
        decoder.accepts = FROM_NODE
    assert kinds == [FrameKind.HELLO, FrameKind.OUT]


def test_a_stranger_may_say_nothing_but_a_small_hello() -> None:
    assert FROM_STRANGER == {FrameKind.HELLO: MAX_HELLO_BYTES}


@pytest.mark.parametrize(
    "said",
    [
        {"protocol": PROTOCOL + 1, "of": "another shape"},
        {},
        {"protocol": PROTOCOL, "version": "1", "boot": "b", "instance": "i", "name": "../up"},
        {"protocol": PROTOCOL, "version": "1", "boot": "b", "instance": "i", "name": "n" * 65},
        {"protocol": PROTOCOL, "name": "gpu-1"},
    ],
)
def test_another_version_an_unsafe_name_or_a_missing_field_is_refused(said: dict[str, object]) -> None:
    with pytest.raises(LinkViolation):
        decode_hello(msgspec.msgpack.encode(said))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_a_violation_and_nothing_else(payload: bytes) -> None:
    for kind in (Hello, Welcome):
        try:
            decode_message(payload, kind)
        except LinkViolation:
            continue


def test_a_hello_arrives_as_it_was_sent_and_hides_its_secret() -> None:
    (frame,) = FrameDecoder(FROM_STRANGER).feed(message_frame(FrameKind.HELLO, 0, HELLO))
    assert decode_hello(frame.payload) == HELLO
    assert "canary" not in repr(HELLO)
