"""What is kept of a command's output: its end, and per stream what is new; whole characters, no ANSI, no controls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.processes.output import CommandOutput, OutputLimits, Sanitiser

SMALL = OutputLimits(kept=40, pending=10, chunk=7, waiting=700)
CHUNKS = st.tuples(
    st.integers(0, 1),
    st.one_of(
        st.sampled_from([b"\x1b[31m", b"\x1b", b"\xe2\x82", b"\xac", b"\n", b"a line\n", b"\x00", b"x" * 30]),
        st.integers(0, 30).map(lambda count: b"lines\nof a flood\n" * count),
    ),
)


class Eager:
    """The same promise, kept in the plain way."""

    def __init__(self) -> None:
        self.sanitisers = (Sanitiser(), Sanitiser())
        self.said: list[tuple[int, str]] = []
        self.unheard: list[tuple[int, str]] = []

    def feed(self, stream: int, data: bytes) -> None:
        self.take(stream, self.sanitisers[stream].feed(data))

    def finish(self) -> None:
        for stream, sanitiser in enumerate(self.sanitisers):
            self.take(stream, sanitiser.feed(b"", final=True))

    def take(self, stream: int, text: str) -> None:
        self.said += [(stream, char) for char in text]
        self.unheard += [(stream, char) for char in text]

    def text(self) -> str:
        return "".join(char for _, char in self.said)[-SMALL.kept :]

    def take_pending(self) -> tuple[str, bool]:
        kept: list[str] = []
        left = [SMALL.pending, SMALL.pending]
        for stream, char in reversed(self.unheard):
            if left[stream]:
                left[stream] -= 1
                kept.append(char)
        lost = len(kept) < len(self.unheard)
        self.unheard.clear()
        return "".join(reversed(kept)), lost


@given(st.lists(st.one_of(CHUNKS, st.just("poll"), st.just("look")), max_size=40))
def test_it_shows_exactly_what_reading_everything_at_once_would_show(steps: list[tuple[int, bytes] | str]) -> None:
    output, eager = CommandOutput(SMALL), Eager()
    for step in steps:
        if step == "poll":
            assert output.read_pending() == eager.take_pending()
        elif isinstance(step, str):
            assert (output.text(), output.tail(9)) == (eager.text(), eager.text()[-9:])
        else:
            output.feed(*step)
            eager.feed(*step)
    output.finish()
    eager.finish()
    assert output.text() == eager.text()
    assert output.size == len(eager.text())
    assert output.truncated == (len(eager.said) > SMALL.kept)
    assert output.read_pending() == eager.take_pending()


def test_a_flood_that_nobody_looks_at_is_not_kept() -> None:
    output = CommandOutput()
    for _ in range(200):
        output.feed(0, b"the same line over and over\n" * 2000)
        assert output._waiting_cost <= 1024 * 1024
    assert len(output.text()) == 200_000
    assert output.truncated


def test_single_bytes_cost_what_they_really_take() -> None:
    output = CommandOutput()
    for _ in range(20_000):
        output.feed(0, b"x")
    assert len(output._waiting) < 11_000
    assert output.text() == "x" * 20_000
    assert len(output._chunks) < 10


def test_a_word_on_one_stream_outlasts_the_flood_on_the_other() -> None:
    output = CommandOutput()
    output.feed(1, b"error!\n")
    for _ in range(200):
        output.feed(0, b"noise\n" * 10_000)
    said, lost = output.read_pending()
    assert said.startswith("error!\n")
    assert len(said) == 30_000 + len("error!\n")
    assert lost
    assert output.read_pending() == ("", False)


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
