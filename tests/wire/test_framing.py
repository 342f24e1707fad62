import json
import tracemalloc
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from errors import ProtocolViolation
from wire.framing import DECODE_ERRORS, DecodedBlock, LineFramer, decode_block, decode_each_line
from wire.messages import Message

DECODER = msgspec.json.Decoder(Message)


def decode(block: bytes) -> DecodedBlock[Message]:
    return decode_block(block, DECODER)


def names(decoded: DecodedBlock[Message]) -> list[str | None]:
    return [message.event for message in decoded.messages]


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    bounds = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[start:end] for start, end in pairwise(bounds)]


# --- the framer -----------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"xyz", b"\xe2\x80\xa8", b"\xff"])), st.lists(st.integers(0)))
def test_the_lines_do_not_depend_on_how_the_stream_was_cut(pieces: list[bytes], places: list[int]) -> None:
    stream = b"".join(pieces)
    framer = LineFramer()
    lines = [line for chunk in cut(stream, places) for line in framer.feed(chunk)]

    *whole, rest = stream.split(b"\n")
    assert lines == [line.removesuffix(b"\r") for line in whole]
    assert framer.pending_bytes == len(rest)
    assert framer.rest() == rest
    assert framer.pending_bytes == 0


@given(st.binary(), st.lists(st.integers(0)))
def test_blocks_put_together_are_the_stream_up_to_its_last_line_end(stream: bytes, places: list[int]) -> None:
    framer = LineFramer()
    blocks = [framer.feed_block(chunk) for chunk in cut(stream, places)]

    assert all(block == b"" or block.endswith(b"\n") for block in blocks)
    assert b"".join(blocks) + framer.rest() == stream


def test_a_line_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    framer = LineFramer(max_line_bytes=8)
    assert framer.feed(b"12345678\n") == [b"12345678"]
    assert framer.feed(b"1234567") == []
    assert framer.feed(b"8\n") == [b"12345678"]
    with pytest.raises(ProtocolViolation, match="limit of 8"):
        framer.feed(b"123456789\n")


def test_an_endless_line_is_refused_before_its_end_and_its_bytes_are_let_go() -> None:
    framer = LineFramer(max_line_bytes=8)
    framer.feed(b"12345")
    with pytest.raises(ProtocolViolation, match="at least 10 bytes"):
        framer.feed(b"67890")
    assert framer.pending_bytes == 0
    with pytest.raises(ProtocolViolation):
        framer.feed(b"\nfine\n")


@pytest.mark.parametrize("bad", [b"123456789\nlost\n", b"123456789"])
def test_the_lines_before_a_too_long_one_are_handed_out_and_then_it_is_refused(bad: bytes) -> None:
    framer = LineFramer(max_line_bytes=8)
    assert framer.feed_block(b"one\ntwo\n" + bad) == b"one\ntwo\n"
    assert isinstance(framer.violation, ProtocolViolation)
    with pytest.raises(ProtocolViolation):
        framer.feed_block(b"three\n")


@given(st.lists(st.binary(max_size=12)), st.lists(st.integers(0)))
def test_what_comes_before_a_violation_does_not_depend_on_how_the_stream_was_cut(
    lines: list[bytes], places: list[int]
) -> None:
    stream = b"\n".join(lines)

    def frame(chunks: list[bytes]) -> tuple[bytes, bool]:
        framer, out = LineFramer(max_line_bytes=8), b""
        for chunk in chunks:
            try:
                out += framer.feed_block(chunk)
            except ProtocolViolation:
                break
        return out, framer.violation is not None

    assert frame(cut(stream, places)) == frame([stream])


@pytest.mark.parametrize("chunk", [1, 7, 65536])
def test_a_long_line_costs_two_copies_at_most_however_small_its_pieces(chunk: int) -> None:
    size = 4 * 1024 * 1024 if chunk == 65536 else 128 * 1024
    line = b'{"event":"x","data":"' + "ä".encode() * (size // 2) + b'"}\n'
    chunks = [line[start : start + chunk] for start in range(0, len(line), chunk)]
    framer = LineFramer()
    tracemalloc.start()
    try:
        block = b""
        for piece in chunks:
            block = framer.feed_block(piece)
        decoded = decode(block)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(decoded.messages) == 1
    assert peak < 2 * len(line) + 400_000


# --- traps of the hot path --------------------------------------------------------------------------------------------


def test_one_object_a_line_is_the_hot_path_and_keeps_order() -> None:
    decoded = decode(b'{"event":"a"}\n{"event":"b","data":{"x":1}}\n{"id":"1","result":null}\n')
    assert names(decoded) == ["a", "b", None]
    assert decoded.invalid_lines == []


@pytest.mark.parametrize("end", [b"\n", b"\n\n", b"\n \n"])
def test_two_objects_on_a_line_are_contamination_even_when_a_blank_line_makes_the_counts_agree(end: bytes) -> None:
    decoded = decode(b'{"event":"a"}{"event":"b"}' + end)
    assert decoded.messages == []
    assert decoded.invalid_lines == [b'{"event":"a"}{"event":"b"}']


def test_two_objects_on_a_line_and_an_object_over_two_lines_do_not_even_out() -> None:
    decoded = decode(b'{"event":"a"}{"event":"b"}\n{"event":\n"c"}\n{"event":"d"}\n')
    assert names(decoded) == ["d"]
    assert decoded.invalid_lines == [b'{"event":"a"}{"event":"b"}', b'{"event":', b'"c"}']


def test_an_object_spanning_lines_is_contamination_line_by_line() -> None:
    decoded = decode(b'{"event":"a","data":{}\n,"x":{}}\n{"event":"b"}\n')
    assert names(decoded) == ["b"]
    assert len(decoded.invalid_lines) == 2


def test_a_line_end_between_braces_inside_a_string_does_not_count_as_one() -> None:
    decoded = decode(b'{"event":"a","data":"}\n{"}\n')
    assert decoded.messages == []
    assert decoded.invalid_lines == [b'{"event":"a","data":"}', b'{"}']


@pytest.mark.parametrize("bad", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80"])
def test_bad_utf8_in_what_stays_raw_is_contamination(bad: bytes) -> None:
    line = b'{"event":"a","data":"' + bad + b'"}'
    decoded = decode(b'{"event":"before"}\n' + line + b'\n{"event":"after"}\n')
    assert names(decoded) == ["before", "after"]
    assert decoded.invalid_lines == [line]


def test_utf8_is_checked_across_the_steps_in_which_a_long_line_is_looked_at() -> None:
    for shift in range(4):
        text = "x" * shift + "\N{GRINNING FACE}" * 200_000
        block = b'{"event":"a","data":"' + text.encode() + b'"}\n'
        assert names(decode(block)) == ["a"]
        assert decode(block[:-4] + b'"}\n').messages == []


def test_unicode_line_separators_stay_inside_a_line() -> None:
    text = "a\u2028b\u2029c\u0085d\x7f\ufeff"
    framer = LineFramer()
    [line] = framer.feed(b'{"event":"a","data":"' + text.encode() + b'"}\n')
    [message] = decode(line + b"\n").messages
    assert msgspec.json.decode(message.data) == text


def test_crlf_and_blank_lines_are_passed_over() -> None:
    decoded = decode(b'\n{"event":"a"}\r\n\r\n  \t\n{"event":"b"}\r\n')
    assert names(decoded) == ["a", "b"]
    assert decoded.invalid_lines == []


def test_a_block_of_nothing_but_blank_lines_is_nothing() -> None:
    assert decode(b"\n\r\n \n") == DecodedBlock([], [])


@pytest.mark.parametrize(
    "line",
    [
        b'\xef\xbb\xbf{"event":"a"}',  # a byte order mark
        b'{"event":"a\x00"}',
        b'\x00{"event":"a"}',
        b'{"event":"a","data":"tab\there"}',
        b"null",
        b"[]",
        b'"text"',
        b"42",
        b"{",
        b"}",
        b'{"event":"a",}',
        b'{"event":"a"},',
        b'{"event":"a"} trailing',
        b'{"event":7}',
        b'{"id":1.5}',
        b'{"id":true}',
        b'{"event":"a","data":NaN}',
        b'{"event":"a","data":01}',
        b'{"event":"a","unknown":tru}',
        b'{"id":' + b"9" * 5000 + b"}",
        b'{"id":"1","error":"text"}',
        b'{"id":"1","error":{"code":"x","data":{"n":1e999}}}',
        b"{'event':'a'}",
        b"Traceback (most recent call last):",
    ],
)
def test_what_is_no_message_is_contamination_and_hurts_nobody_else(line: bytes) -> None:
    decoded = decode(b'{"event":"before"}\n' + line + b'\n{"event":"after"}\n')
    assert names(decoded) == ["before", "after"]
    assert decoded.invalid_lines == [line]


@pytest.mark.parametrize("member", [b'"data":', b'"unknown":', b'"error":{"code":"x","data":{"a":'])
def test_nesting_deeper_than_the_stack_is_contamination_not_a_crash(member: bytes) -> None:
    depth = 200_000
    line = b'{"event":"deep",' + member + b"[" * depth + b"]" * depth + b"}" * (1 + 2 * member.count(b"{")) + b"\n"
    decoded = decode(line + b'{"event":"after"}\n')
    assert names(decoded) == ["after"]
    assert decoded.invalid_lines == [line[:-1]]


def test_an_integer_of_any_size_is_an_id_like_another() -> None:
    [message] = decode(b'{"id":' + b"9" * 40 + b',"result":1}\n').messages
    assert message.id == int("9" * 40)


def test_the_last_of_repeated_members_counts() -> None:
    [message] = decode(b'{"event":"a","event":"b","data":1,"data":2}\n').messages
    assert (message.event, bytes(message.data)) == ("b", b"2")


def test_half_a_surrogate_pair_is_mended_and_a_whole_one_is_kept() -> None:
    line = rb'{"event":"a","data":"\ud83d half \udE00 \\ud800 \ud83d\ude00 \"\uD83D"}'
    decoded = decode(line + b"\n")
    assert decoded.invalid_lines == []
    text = '\ufffd half \ufffd \\ud800 \N{GRINNING FACE} "\ufffd'
    assert msgspec.json.decode(decoded.messages[0].data) == text


def test_runs_of_bad_lines_are_told_at_the_start_at_the_end_and_the_longest() -> None:
    good, bad = b'{"event":"a"}\n', b"garbage\n"
    decoded = decode(bad * 2 + good + bad * 5 + b"\n" + bad + good * 2 + bad * 3)
    assert (decoded.leading_run, decoded.longest_run, decoded.trailing_run) == (2, 6, 3)
    assert len(decoded.invalid_lines) == 11
    assert decode(good + bad).leading_run == 0
    assert decode(good + bad).trailing_run == 1


def test_a_message_that_is_refused_is_a_bad_line() -> None:
    decoded = decode_each_line(b'{"event":"a"}\n{"event":"b"}\n', DECODER, accept=lambda message: message.event != "a")
    assert names(decoded) == ["b"]
    assert decoded.invalid_lines == [b'{"event":"a"}']


# --- fuzz -------------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
EVENT_LINES = st.builds(
    lambda name, data, ascii_only: json.dumps({"event": name, "data": data}, ensure_ascii=ascii_only).encode(
        "utf-8", "surrogatepass"
    ),
    st.sampled_from(["a", "b"]),
    JSON,
    st.booleans(),
)
PIECES = [
    b'{"event":"a"}',
    b"{",
    b"}",
    b'"',
    b"\\",
    b",",
    b":",
    b"[]",
    b" ",
    b"\r",
    b"\xff",
    b"\xc3",
    b"\xa4",
    b"\\ud800",
]
SNIPPETS = st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join)
LINES = st.lists(EVENT_LINES | SNIPPETS | st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")))


def line_by_line(block: bytes) -> tuple[list[bytes], int]:
    """What a reader with no hot path and no mending makes of it: messages, again as JSON, and a count of bad lines."""
    messages, bad = [], 0
    for line in block.split(b"\n"):
        if not line.strip():
            continue
        try:
            line.decode()
            messages.append(msgspec.json.encode(msgspec.json.decode(line, type=Message)))
        except (ValueError, *DECODE_ERRORS):
            bad += 1
    return messages, bad


@given(LINES)
@example([b'{"event":"a","data":"}', b'{"}'])
@example([b'{"event":"a"}{"event":"a"}', b""])
def test_the_hot_path_agrees_with_a_reader_that_looks_at_each_line(lines: list[bytes]) -> None:
    block = b"".join(line + b"\n" for line in lines)
    decoded = decode(block)
    slow = decode_each_line(block, DECODER)

    def plain(found: DecodedBlock[Message]) -> tuple[list[bytes], list[bytes]]:
        return [msgspec.json.encode(message) for message in found.messages], found.invalid_lines

    assert plain(decoded) == plain(slow)
    if b"\\ud" not in block.lower():
        messages, bad = line_by_line(block)
        assert plain(decoded)[0] == messages
        assert len(decoded.invalid_lines) == bad


@given(st.binary())
def test_no_bytes_whatever_make_it_raise(stream: bytes) -> None:
    decoded: DecodedBlock[Any] = decode(stream + b"\n")
    assert len(decoded.messages) + len(decoded.invalid_lines) <= stream.count(b"\n") + 1
