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


@pytest.mark.parametrize(
    ("state", "scheme", "width"),
    [("GREEN", "light", 1000), ("RED", "light", 320), ("RED", "dark", 1440)],
    ids=["green", "red, narrow", "red, wide and dark"],
)
def test_it_says_how_things_stand_without_scrolling_and_axe_finds_nothing(
    browser: Browser, tmp_path: Path, state: str, scheme: str, width: int
) -> None:
    result = a_result() if state == "GREEN" else RED
    with opened(browser, tmp_path, result, viewport={"width": width, "height": 600}, color_scheme=scheme) as page:
        expect(page).to_have_title(f"{state}: pool stress L1 + F1, seed 4711")
        says = page.locator(".state")
        expect(says).to_contain_text(state)
        expect(says).to_be_in_viewport()
        red, green, _ = page.evaluate(
            "getComputedStyle(document.querySelector('.state')).backgroundColor.match(/[\\d.]+/g).map(Number)"
        )
        assert (green > red) == (state == "GREEN")
        if width > 320:
            expect(page.locator(".command")).to_be_in_viewport()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for details in page.locator("details > summary").all():
            details.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page, options={"resultTypes": ["violations"]})["violations"]
        assert [f"{one['id']}: {node['target']}" for one in found for node in one["nodes"]] == []
        plots = page.locator(".plot")
        assert plots.count() == 6
        assert all((plots.nth(n).bounding_box() or {"width": 0})["width"] > 0.2 * width for n in range(6))


def test_colours_follow_those_of_the_system(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path, RED, color_scheme="dark") as page:
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.emulate_media(color_scheme="light")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
