import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpc.settings import RpcSettings
from wire.units import ByteCount, Seconds, decode_unit


class Limits(msgspec.Struct):
    wait: Seconds
    size: ByteCount = ByteCount(0)


def read(text: str) -> Limits:
    return msgspec.json.Decoder(Limits, dec_hook=decode_unit).decode(text)


TIMES: list[tuple[str | float, float]] = [("500ms", 0.5), ("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86400)]
TIMES += [("1.5 s", 1.5), (" 7 ", 7), (3, 3), (0, 0)]
SIZES: list[tuple[str | int, int]] = [("64MiB", 2**26), ("10MB", 10**7), ("1KiB", 1024), ("1.5KiB", 1536)]
SIZES += [("7B", 7), ("12", 12), ("1GiB", 2**30), (9, 9)]


@pytest.mark.parametrize(("text", "seconds"), TIMES)
def test_times_are_written_with_their_unit_or_as_seconds(text: str | float, seconds: float) -> None:
    assert Seconds.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "size"), SIZES)
def test_sizes_are_written_with_their_unit_or_as_bytes(text: str | int, size: int) -> None:
    assert ByteCount.parse(text) == size


@pytest.mark.parametrize("text", ["", "s", "5 parsecs", "-1s", "1e3s", "1,5s", "5mib", "NaN", "101000d", "5s5s", "५x"])
def test_what_is_no_time_is_refused_with_the_text_itself(text: str) -> None:
    with pytest.raises(ValueError, match=text or "''"):
        Seconds.parse(text)


@pytest.mark.parametrize("number", [-0.001, math.nan, math.inf, -math.inf])
def test_a_number_that_is_no_time_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="no time span"):
        Seconds.parse(number)


@pytest.mark.parametrize("text", ["", "MiB", "64 mib", "-1", "1TB", "99999999999999999999GiB", "0x10"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write for example|no size in bytes"):
        ByteCount.parse(text)


@given(st.text(max_size=12))
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    try:
        assert Seconds.parse(text) >= 0
    except ValueError as exc:
        assert repr(text) in str(exc)  # noqa: PT017 - either outcome is right, each in its own way


def test_a_settings_struct_reads_both_and_keeps_plain_numbers() -> None:
    limits = read('{"wait":"5m","size":"1KiB"}')
    assert (limits.wait, limits.size) == (300.0, 1024)
    assert limits.wait + 1 == 301.0
    assert (repr(limits.wait), repr(limits.size)) == ("300s", "1024B")


@pytest.mark.parametrize("text", ['{"wait":true}', '{"wait":null}', '{"wait":[5]}', '{"wait":1,"size":1.5}'])
def test_other_kinds_of_values_are_refused_where_they_stand(text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"expected a (time|size) such as .*\$\.(wait|size)"):
        read(text)


def test_the_settings_of_the_wire_are_read_from_what_people_write() -> None:
    settings = msgspec.convert(
        {"request_timeout": "5s", "max_line_bytes": "1MiB"}, RpcSettings, strict=True, dec_hook=decode_unit
    )
    assert (settings.request_timeout, settings.max_line_bytes) == (5.0, 2**20)
    assert settings.abort_grace == RpcSettings().abort_grace
