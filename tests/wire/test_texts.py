"""Small texts for people."""

from hypothesis import given
from hypothesis import strategies as st

from doors.locations import AlreadyRunning
from errors import (
    AcquireTimeout,
    NestedSaturated,
    NoSupervisor,
    PoolError,
    PoolSaturated,
    RequestTimeout,
    RunCutShort,
    UsageError,
    WorkerExited,
    WorkerStartFailed,
)
from settings.problems import SettingsError
from wire.terminal import clean, clean_stream, error_line, exit_code, format_duration, format_percent, format_size

SPANS = [(None, "-"), (0, "0.0 ms"), (0.00042, "0.4 ms"), (0.5, "500 ms"), (4.25, "4.2 s"), (59.4, "59 s")]
SPANS += [(130, "2m10s"), (3900, "1h05m"), (273_600, "3d04h")]
SIZES = [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (96 * 1024**2, "96 MiB")]


def test_spans_sizes_and_shares_read_as_people_write_them() -> None:
    assert [format_duration(seconds) for seconds, _ in SPANS] == [shown for _, shown in SPANS]
    assert [format_size(count) for count, _ in SIZES] == [shown for _, shown in SIZES]
    assert (format_percent(None), format_percent(12.6)) == ("-", "13%")


@given(st.text())
def test_clean_text_never_controls_a_terminal(text: str) -> None:
    assert clean(text).isprintable()
    streamed = clean_stream(text)
    assert all(ch.isprintable() or ch in "\n\t" or ord(ch) > 159 for ch in streamed)
    assert not set(streamed) & set("\x1b\r\x07\x9b\x7f\x00")


def test_clean_text_shows_what_it_replaced() -> None:
    assert clean("a\x1b[31mb\nc") == "a\\x1b[31mb c"
    assert clean(None) == "-"
    assert clean(7) == "7"
    assert clean("schön") == "schön"


CODES: dict[int, list[type[PoolError]]] = {
    1: [PoolError, WorkerExited, AlreadyRunning],
    2: [UsageError, SettingsError],
    3: [NoSupervisor],
    4: [PoolSaturated, NestedSaturated, AcquireTimeout, RequestTimeout],
    5: [RunCutShort],
}


def test_every_kind_of_error_has_its_exit_code() -> None:
    assert {code: [kind for kind in kinds if exit_code(kind("x")) == code] for code, kinds in CODES.items()} == CODES


def test_an_error_line_has_the_workers_last_word_and_when_to_come_back() -> None:
    error = WorkerStartFailed("worker w1 did not start", stderr_tail="Traceback\nModuleNotFoundError: x\n")
    assert error_line(error) == "worker w1 did not start (it last said: ModuleNotFoundError: x)"
    error = WorkerStartFailed("worker w1 did not start", stderr_tail="Warning: w\nError: no such file\nHint: look\n")
    assert error_line(error) == "worker w1 did not start (it last said: Error: no such file Hint: look)"
    assert error_line(PoolSaturated("full", retry_after=2.5)) == "full (try again in 2.5 s)"


def test_an_error_line_does_not_say_a_thing_twice_and_carries_no_control_codes() -> None:
    assert error_line(WorkerExited("it said boom", stderr_tail="boom")) == "it said boom"
    assert error_line(WorkerExited("a\x1bb", stderr_tail=" \n")) == "a\\x1bb"
