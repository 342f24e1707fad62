"""What the tests of the dashboard share: a supervisor with the HTTP door open, a browser, pages that are watched."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.doors.dashboard.site import Site, Visit, running_site

ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

OpenPage = Callable[..., Visit]


def find_chromium() -> str:
    """The browser's program. At home the tests are skipped where there is none; in CI it must be there."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("POOL_TEST_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is not None:
        return found
    message = "there is no Chromium here; install the package chromium, or set POOL_TEST_CHROMIUM to its program"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    program = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def site() -> Iterator[Site]:
    """A supervisor that the tests of this folder share; each has sessions of its own."""
    with tempfile.TemporaryDirectory(prefix="pool-") as folder, running_site(Path(folder)) as running:
        yield running


@pytest.fixture
def own_site() -> Iterator[Site]:
    """A supervisor of the test's own, to stop and kill."""
    with tempfile.TemporaryDirectory(prefix="pool-") as folder, running_site(Path(folder)) as running:
        yield running


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens a page that is signed in; at the end each one is held to have loaded nothing foreign and met no defect."""
    visits: list[Visit] = []

    def open_it(site: Site, *, sign_in: bool = True, **options: object) -> Visit:
        visits.append(Visit(browser, site, sign_in=sign_in, **options))
        return visits[-1]

    yield open_it
    for visit in visits:
        visit.close()
