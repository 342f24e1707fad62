"""Small texts for people."""

import pytest
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


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (0, "0.0 ms"),
        (0.00042, "0.4 ms"),
        (0.5, "500 ms"),
        (4.25, "4.2 s"),
        (59.4, "59 s"),
        (130, "2m10s"),
        (3900, "1h05m"),
        (273_600, "3d04h"),
    ],
)
def test_a_span_reads_like_a_person_says_it(seconds: float | None, shown: str) -> None:
    assert format_duration(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (96 * 1024**2, "96 MiB")]
)
def test_a_size_is_shown_in_the_unit_that_fits(count: float | None, shown: str) -> None:
    assert format_size(count) == shown


def test_a_share_of_a_processor() -> None:
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


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PoolError("x"), 1),
        (WorkerExited("x"), 1),
        (AlreadyRunning("x"), 1),
        (UsageError("x"), 2),
        (SettingsError("x"), 2),
        (NoSupervisor("x"), 3),
        (PoolSaturated("x"), 4),
        (NestedSaturated("x"), 4),
        (AcquireTimeout("x"), 4),
        (RequestTimeout("x"), 4),
        (RunCutShort("x"), 5),
    ],
)
def test_every_kind_of_error_has_its_exit_code(error: PoolError, code: int) -> None:
    assert exit_code(error) == code


def test_an_error_line_has_the_workers_last_word_and_when_to_come_back() -> None:
    error = WorkerStartFailed("worker w1 did not start", stderr_tail="Traceback\nModuleNotFoundError: x\n")
    assert error_line(error) == "worker w1 did not start (it last said: ModuleNotFoundError: x)"
    error = WorkerStartFailed("worker w1 did not start", stderr_tail="Warning: w\nError: no such file\nHint: look\n")
    assert error_line(error) == "worker w1 did not start (it last said: Error: no such file Hint: look)"
    assert error_line(PoolSaturated("full", retry_after=2.5)) == "full (try again in 2.5 s)"


def test_an_error_line_does_not_say_a_thing_twice_and_carries_no_control_codes() -> None:
    assert error_line(WorkerExited("it said boom", stderr_tail="boom")) == "it said boom"
    assert error_line(WorkerExited("a\x1bb", stderr_tail=" \n")) == "a\\x1bb"
