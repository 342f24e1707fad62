"""What reaches a terminal: clean texts, in its width, as people write them, over streams that may be closed."""

import os
import subprocess
import sys

import msgspec
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
from wire.terminal import (
    clean,
    clean_stream,
    display_width,
    error_line,
    exit_code,
    fit,
    format_count,
    format_duration,
    format_percent,
    format_size,
    wants_styles,
)


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("ab cd", 4, "ab…"),
        ("日本", 4, "日本"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("日", 1, "…"),
        ("abc", 0, ""),
        ("abc", -5, ""),
        ("", 0, ""),
    ],
)
def test_a_text_is_cut_to_the_columns_that_there_are(text: str, columns: int, shown: str) -> None:
    assert fit(text, columns) == shown


@given(st.text(), st.integers(-3, 40))
def test_no_text_is_wider_than_it_may_be_and_one_that_fits_stays(text: str, columns: int) -> None:
    shown = fit(text, columns)
    assert display_width(shown) <= max(columns, 0)
    assert shown == text or display_width(text) > max(columns, 0)


@given(st.text())
def test_nothing_controls_a_terminal(text: str) -> None:
    assert clean(text).isprintable()
    kept = clean_stream(text)
    assert not [ch for ch in kept if ch not in "\n\t" and (ord(ch) < 32 or 127 <= ord(ch) < 160)]


def test_no_running_text_hides_a_character_or_turns_the_order_of_others() -> None:
    assert clean_stream("a\u202eb\u2066c\u200bd\ufeffe\U000e0041") == r"a\u202eb\u2066c\u200bd\ufeffe\U000e0041"
    whole = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645, \U0001f469\u200d\U0001f4bb, \u2764\ufe0f, e\u0301\n\t"
    assert clean_stream(whole) == whole


@pytest.mark.parametrize(
    ("env", "wanted"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)]
)
def test_styles_are_for_those_who_want_them_and_can_show_them(env: dict[str, str], *, wanted: bool) -> None:
    assert wants_styles(env) is wanted


SPANS = [(None, "-"), (0, "0.0 ms"), (0.00042, "0.4 ms"), (0.5, "500 ms"), (4.25, "4.2 s"), (59.4, "59 s")]
SPANS += [(130, "2m10s"), (3900, "1h05m"), (273_600, "3d04h")]
COUNTS = [(0, "0"), (9_999, "9999"), (12_345, "12.3k"), (200_000, "200k"), (999_949, "999.9k"), (999_950, "1M")]
COUNTS += [(-999_950, "-1M"), (4_500_000, "4.5M")]
SIZES = [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (96 * 1024**2, "96 MiB")]


def test_spans_sizes_and_shares_read_as_people_write_them() -> None:
    assert [format_duration(seconds) for seconds, _ in SPANS] == [shown for _, shown in SPANS]
    assert [format_count(count) for count, _ in COUNTS] == [shown for _, shown in COUNTS]
    assert [format_size(count) for count, _ in SIZES] == [shown for _, shown in SIZES]
    assert (format_percent(None), format_percent(12.6)) == ("-", "13%")


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


PROGRAM = """
import json, os, sys
from wire.terminal import fill_standard_streams
fill_standard_streams()
names = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)]
kept = [os.get_inheritable(fd) for fd in range(3)]
sys.stdout.write("out"); sys.stdout.flush()
sys.stderr.write("err"); sys.stderr.flush()
assert sys.stdin.read() == ""
os.write(int(sys.argv[1]), json.dumps([names, kept]).encode())
"""


@pytest.mark.process
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_closed_standard_stream_becomes_the_null_device(closed: tuple[int, ...]) -> None:
    read, write = os.pipe()
    command = [sys.executable, "-c", PROGRAM, str(write)]
    closing = " ".join(f"{fd}>&-" for fd in closed)
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closing}', "sh", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        pass_fds=[write],
        timeout=20,
        check=False,
    )
    os.close(write)
    with os.fdopen(read, "rb") as report:
        names, kept = msgspec.json.decode(report.read())
    assert done.returncode == 0
    assert [names[fd] for fd in closed] == ["/dev/null"] * len(closed)
    assert kept == [True] * 3
    assert (done.stdout, done.stderr) == (b"" if 1 in closed else b"out", b"" if 2 in closed else b"err")
