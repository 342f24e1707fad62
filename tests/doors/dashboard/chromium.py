"""The browser of the tests: which program it is, and how it is started."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

_ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
_NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless one. At home the test is skipped where there is none; in CI it must be there."""
    program = _find_program()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        yield browser
        browser.close()


def _find_program() -> str:
    found = os.environ.get("POOL_TEST_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is not None:
        return found
    message = "there is no Chromium here; install the package chromium, or set POOL_TEST_CHROMIUM to its program"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
