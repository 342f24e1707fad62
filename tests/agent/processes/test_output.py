"""What is kept of a command's output: its end, and per stream what nobody has heard yet; laziness changes nothing."""

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
    for _ in range(1000):
        output.feed(0, b"the same line over and over\n" * 2000)
        assert output._waiting_cost <= 1024 * 1024
    assert len(output.text()) == 200_000
    assert output.truncated


def test_single_bytes_cost_what_they_really_take() -> None:
    output = CommandOutput()
    for _ in range(50_000):
        output.feed(0, b"x")
    assert len(output._waiting) < 11_000
    assert output.text() == "x" * 50_000
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
