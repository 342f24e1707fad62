"""The report as it is opened: it says at a glance how things stand, the browser has nothing to complain of."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_core_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it has no types
from playwright.sync_api import Browser, Page, expect

from stress.outcome import StressResult
from stress.report import render_report
from tests.doors.dashboard.chromium import chromium
from tests.stress.report.made_up import a_result, a_violation, verdicts

pytestmark = [pytest.mark.process, pytest.mark.browser]

RED = a_result(verdicts=verdicts(I1=1), violations=(a_violation(),), harms={"lost": 1}, log="x" * 200)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@contextmanager
def opened(browser: Browser, folder: Path, result: StressResult, **options: Any) -> Iterator[Page]:
    """The report as a file, in a window of its own; the browser must have nothing to say, and nothing to fetch."""
    file = folder / "stress.html"
    file.write_text(render_report(result), encoding="utf-8")
    complaints: list[str] = []
    with browser.new_context(**options) as context:
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url))
        page.goto(file.as_uri())
        yield page
    assert [each for each in complaints if not each.startswith((file.as_uri(), "data:"))] == []


@pytest.mark.parametrize(("result", "state"), [(a_result(), "GREEN"), (RED, "RED")], ids=["green", "red"])
def test_it_says_how_things_stand_without_scrolling_and_in_that_colour(
    browser: Browser, tmp_path: Path, result: StressResult, state: str
) -> None:
    with opened(browser, tmp_path, result, viewport={"width": 1000, "height": 600}) as page:
        expect(page).to_have_title(f"{state}: pool stress L1 + F1, seed 4711")
        says = page.locator(".state")
        expect(says).to_contain_text(state)
        expect(says).to_be_in_viewport()
        red, green, _ = page.evaluate(
            "getComputedStyle(document.querySelector('.state')).backgroundColor.match(/[\\d.]+/g).map(Number)"
        )
        assert (green > red) == (state == "GREEN")
        expect(page.locator(".command")).to_be_in_viewport()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 768, 1440])
def test_axe_finds_nothing_and_nothing_sticks_out(browser: Browser, tmp_path: Path, scheme: str, width: int) -> None:
    with opened(browser, tmp_path, RED, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for details in page.locator("details > summary").all():
            details.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page, options={"resultTypes": ["violations"]})["violations"]
        assert [
            f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]
        ] == []


def test_charts_are_as_wide_as_there_is_room_and_follow_the_colours_of_the_system(
    browser: Browser, tmp_path: Path
) -> None:
    with opened(browser, tmp_path, RED, viewport={"width": 400, "height": 800}, color_scheme="dark") as page:
        plots = page.locator(".plot")
        assert plots.count() == 6
        assert all((plots.nth(n).bounding_box() or {"width": 0})["width"] > 250 for n in range(6))
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.emulate_media(color_scheme="light")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
