"""What of a command's bytes reaches the model: whole characters, no ANSI, no controls, however the reads fell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.processes.output import Sanitiser

FRAGMENTS = [
    *(b"\x1b", b"[", b"]", b"0;31", b"m", b"\\", b"\x07", b"P", b"(", b"B", b"\n", b"\r", b"\t", b"\x00", b"\x7f"),
    *(b"\xc2\x9b", b"\xe2\x82\xac", b"\xe2", b"\x82", b"\xff", b"text", b"x" * 4090),
]
OUTPUTS = st.lists(st.sampled_from(FRAGMENTS), max_size=20).map(b"".join)


def sanitised(*chunks: bytes) -> str:
    sanitiser = Sanitiser()
    return "".join([*(sanitiser.feed(chunk) for chunk in chunks), sanitiser.feed(b"", final=True)])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain\tand\r\nsimple\n", "plain\tand\r\nsimple\n"),
        ("zü € 😀".encode(), "zü € 😀"),
        (b"\x1b[1;31mred\x1b[0m \x1b[2K\x1b[?25lx", "red x"),
        (b"\x1b]0;a title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
        (b"\x1bPdevice\x1b\\\x1b(B\x1b=\x1bMend", "end"),
        (b"bell\x07 null\x00 del\x7f c1\xc2\x85", r"bell\x07 null\x00 del\x7f c1\x85"),
        (b"\xff\xfe latin \xe9t\xe9", "\ufffd\ufffd latin \ufffdt\ufffd"),
        (b"a lone \x1b\nand an open \x1b]title\nnext", "a lone \\x1b\nand an open \\x1b]title\nnext"),
        (b"cut off \x1b[3", r"cut off \x1b[3"),
    ],
)
def test_ansi_goes_controls_are_shown_and_text_stays(data: bytes, text: str) -> None:
    assert sanitised(data) == text


@given(OUTPUTS, st.integers(1, 9))
def test_where_the_reads_fall_makes_no_difference(data: bytes, size: int) -> None:
    assert sanitised(*(data[at : at + size] for at in range(0, len(data), size))) == sanitised(data)


@given(OUTPUTS, OUTPUTS)
def test_what_is_skipped_leaves_the_same_state_as_what_is_read(skipped: bytes, rest: bytes) -> None:
    one, other = Sanitiser(), Sanitiser()
    one.feed(skipped)
    other.skip(skipped)
    assert [one.feed(rest), one.feed(b"", final=True)] == [other.feed(rest), other.feed(b"", final=True)]


@given(st.binary(max_size=200))
def test_nothing_that_a_terminal_would_obey_is_ever_shown(data: bytes) -> None:
    shown = sanitised(data)
    assert not {char for char in shown if (ord(char) < 32 or 127 <= ord(char) < 160) and char not in "\t\n\r"}


def test_a_string_without_an_end_is_not_waited_for_for_ever() -> None:
    assert sanitised(b"\x1b]0;", *[b"x" * 1000] * 10) == "\\x1b]0;" + "x" * 10_000
