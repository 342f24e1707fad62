"""What the tests of the dashboard share: a supervisor with the HTTP port open, a browser, pages that are watched."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.doors.dashboard.chromium import chromium
from tests.doors.dashboard.halting import HaltingModel, running_model
from tests.doors.dashboard.site import SETTINGS, TOKEN, Site, Visit, running_site

OpenPage = Callable[..., Visit]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="package")
def model() -> Iterator[HaltingModel]:
    """What the agent ``halting`` asks."""
    with running_model() as running:
        yield running


@pytest.fixture(scope="package")
def site(model: HaltingModel) -> Iterator[Site]:
    """A supervisor that the tests of this folder share; each has sessions of its own."""
    with tempfile.TemporaryDirectory(prefix="pool-") as folder:
        settings = SETTINGS.format(port=0, token=TOKEN, folder=folder) + model.agent(folder)
        with running_site(Path(folder), settings=settings) as running:
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


@pytest.fixture(scope="module")
def visit(browser: Browser, site: Site) -> Iterator[Visit]:
    """A page that the tests of a file share; each has sessions of its own, and leaves nothing open but those."""
    opened = Visit(browser, site, sign_in=True)
    yield opened
    opened.close()


@pytest.fixture
def page(visit: Visit) -> Iterator[Page]:
    yield visit.page
    assert visit.trouble == []
