"""The picture in the README: agents at work on a real supervisor; in the dark and in a narrow window too."""

import struct
import tempfile
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.doors.dashboard.conftest import OpenPage
from tests.doors.dashboard.portrait import PICTURE, SIZE, company, pose

DARK_PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}


@pytest.mark.process
@pytest.mark.browser
def test_everything_that_is_going_on_has_its_place(open_page: OpenPage) -> None:
    with tempfile.TemporaryDirectory(prefix="pool-") as folder, company(Path(folder)) as site:
        wide = open_page(site, viewport=SIZE)
        pose(site, wide, rounds=2)
        wide.keep("portrait")
        wide.page.emulate_media(color_scheme="dark")
        wide.keep("portrait-dark")
        narrow = open_page(site, **DARK_PHONE)
        expect(narrow.page.locator("#workers .tile")).to_have_count(5)
        narrow.keep("portrait-narrow")
        narrow.page.get_by_role("button", name="Sessions", exact=True).click()
        narrow.keep("portrait-narrow-sessions")
        narrow.open_session("shop/checkout")
        expect(narrow.page.locator("#history .said.assistant .text")).to_contain_text("strftime")
        narrow.keep("portrait-narrow-conversation")
        wide.close()
        narrow.close()


def test_the_picture_is_of_the_size_that_a_page_can_show_and_is_no_burden() -> None:
    content = PICTURE.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">II", content[16:24]) == (SIZE["width"], SIZE["height"])
    assert len(content) < 300_000
