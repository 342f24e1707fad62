"""The picture of the figures."""

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.chart import draw
from benchmarks.harness import Result, result
from benchmarks.promises import Promise
from tests.benchmarks.reports import report_of

SVG = "{http://www.w3.org/2000/svg}"


def of_share(share: float, name: str = "p50", promise: Promise | None = Promise.PING) -> Result:
    return result(name, share * 10, "us", promise=promise, at_most=10)


def picture(*results: Result) -> ET.Element:
    return ET.fromstring(draw(report_of(*results)))


def bars(drawn: ET.Element) -> list[tuple[str, float]]:
    return [(bar.attrib["class"], float(bar.attrib["width"])) for bar in drawn.iter(f"{SVG}rect")]


def words(drawn: ET.Element) -> str:
    return " | ".join(text.text or "" for text in drawn.iter(f"{SVG}text"))


def test_a_bar_is_as_long_as_its_share_and_the_line_stands_where_all_is_taken() -> None:
    drawn = picture(of_share(0.25), of_share(0.5), of_share(1.0))
    (first, second, whole) = (width for _, width in bars(drawn))
    assert second == 2 * first
    (limit,) = drawn.iter(f"{SVG}line")
    start = float(next(drawn.iter(f"{SVG}rect")).attrib["x"])
    assert float(limit.attrib["x1"]) == start + whole


def test_a_missed_bar_looks_and_reads_like_one() -> None:
    drawn = picture(of_share(0.5, "good"), of_share(3.0, "bad"))
    assert [kind for kind, _ in bars(drawn)] == ["met", "missed"]
    assert words(drawn).count("missed") == 1
    assert "30 us (<= 10 us), missed" in words(drawn)
    assert "1 of 2 bars met" in words(drawn)


def test_a_ratio_is_told_where_it_is_what_is_judged() -> None:
    drawn = picture(
        result("one", 3, "us", promise=Promise.PING, beside=(2, "us bare"), ratio_at_most=2),
        result("two", 3, "us", promise=Promise.PING, beside=(2, "us bare"), at_most=4),
    )
    assert "3 us, 1.5 x (<= 2 x)" in words(drawn)
    assert "3 us (<= 4 us)" in words(drawn)


def test_figures_stand_under_what_they_hold_in_the_order_of_the_promises() -> None:
    said = words(picture(of_share(0.5, "one", Promise.START), of_share(0.5, "two", Promise.PING)))
    places = [said.index(word) for word in (Promise.PING, "two", Promise.START, "one")]
    assert places == sorted(places)


def test_what_has_no_bar_or_holds_no_promise_is_not_in_it() -> None:
    drawn = picture(of_share(0.5, "beside", None), result("free", 1, "us", promise=Promise.PING))
    assert bars(drawn) == []
    assert "beside" not in words(drawn)
    assert "free" not in words(drawn)


def test_it_says_of_which_machine_it_is_whatever_that_is_called() -> None:
    assert "Some & Sons <64>, 2 cores, Linux 6.1, Python 3.11.7" in words(picture(of_share(0.5)))


@given(st.lists(st.floats(-10, 1e12), max_size=40), st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=9))
def test_nothing_leaves_the_picture(shares: list[float], name: str) -> None:
    drawn = picture(*(of_share(share, f"<{name}>") for share in shares))
    _, _, width, height = map(float, drawn.attrib["viewBox"].split())
    assert len(bars(drawn)) == len(shares)
    for bar in drawn.iter(f"{SVG}rect"):
        length = float(bar.attrib["width"])
        assert length > 0
        assert float(bar.attrib["x"]) + length < 712 < width
    assert all(float(text.attrib["y"]) < height for text in drawn.iter(f"{SVG}text"))
