"""How the page looks: widths, dark and light, forced colours, less motion, and what axe-core has to say."""

from collections.abc import Iterator
from typing import Any

import pytest
from axe_core_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it has no types
from playwright.sync_api import Page, expect

from tests.doors.dashboard.conftest import OpenPage
from tests.doors.dashboard.site import TOKEN, Site

pytestmark = [pytest.mark.process, pytest.mark.browser]


def violations(page: Page) -> list[str]:
    """What axe-core finds, and where; all of its rules but the experimental ones."""
    page.evaluate("document.getAnimations().forEach((each) => each.finish?.call ? each.cancel() : null)")
    found: list[dict[str, Any]] = Axe().run(page, options={"resultTypes": ["violations"]})["violations"]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]


@pytest.fixture(scope="module")
def full_site(site: Site) -> Iterator[Site]:
    """With something to see in every part."""
    command = '{"command": "sleep 300", "background": true}'
    site.say("behind", f"TOOL:exec {command} TELL")
    site.begin("asks", 'TOOL:exec {"command": "true"} TELL', agent="careful")
    site.say("told", 'THINK TOOL:exec {"command": "echo hello"} TELL')
    yield site
    site.call("abort", session="asks")
    for session in ("asks", "behind"):
        site.call("sessions.reset", session=session, force=True)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 360)])
def test_axe_finds_nothing(full_site: Site, open_page: OpenPage, scheme: str, width: int) -> None:
    visit = open_page(full_site, color_scheme=scheme, viewport={"width": width, "height": 900})
    page = visit.page
    expect(page.locator(".approval")).to_have_count(1)
    expect(page.locator("#background li")).to_have_count(1)
    assert violations(page) == []
    if scheme == "light":
        for opens in ("#help", "#workers .tile", "#new-session", "#health", "#logs"):
            page.locator(opens).first.click()
            expect(page.locator("#dialog-title")).to_be_visible()
            assert violations(page) == []
            page.keyboard.press("Escape")
    else:
        page.get_by_role("button", name="Sessions", exact=True).click()
        assert violations(page) == []
    visit.open_session("told")
    expect(page.locator("#history details")).not_to_have_count(0)
    visit.send("ERROR")
    expect(page.locator("#history .trouble").last).to_be_visible()
    assert violations(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_wrong_token_is_refused_in_words_and_the_right_one_opens_the_page(
    site: Site, open_page: OpenPage, scheme: str
) -> None:
    page = open_page(site, sign_in=False, color_scheme=scheme).page
    expect(page.locator("#token")).to_be_focused()
    page.keyboard.type("not-the-token-at-all")
    page.keyboard.press("Enter")
    expect(page.locator("#token-error")).to_have_text("This token is not known here.")
    expect(page.locator("#console")).to_be_hidden()
    assert violations(page) == []
    page.locator("#token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("#link-text")).to_have_text("Live")
    page.locator("#new-session").click()  # nothing of the refused attempt is left in the page
    page.locator("#begin-key").fill(f"after-a-refusal-{scheme}")
    page.keyboard.press("Enter")
    expect(page.locator("#conversation-title")).to_have_text(f"after-a-refusal-{scheme}")
    page.reload()
    expect(page.locator("#link-text")).to_have_text("Live")


@pytest.mark.parametrize("width", [320, 900, 2560])
def test_nothing_sticks_out_at_any_width(site: Site, open_page: OpenPage, width: int) -> None:
    site.say("a-session-with-quite-a-long-name/" + "x" * 60, "ECHO:" + "long" * 100)
    job = {"id": "a-job-with-quite-a-long-name-" + "x" * 30}
    site.call("cron.add", **job, cron="0 7 1 1 *", text="ECHO:x", mode="isolated")
    page = open_page(site, viewport={"width": width, "height": 800}).page
    expect(page.locator("#jobs li")).to_have_count(1)
    for rows in page.locator(".rows:visible").all():
        assert rows.evaluate("rows => rows.scrollWidth <= rows.clientWidth"), rows.get_attribute("id")
    site.call("cron.delete", **job)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width < 1000:
        page.get_by_role("button", name="Sessions", exact=True).click()
        expect(page.locator("#workers")).to_be_hidden()
    page.locator("#sessions .session", has_text="a-session-with").click()
    expect(page.locator("#history .said.assistant").last).to_contain_text("long")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    expect(page.locator("#composer button[type=submit]")).to_be_in_viewport()
    expect(page.locator("#events")).to_be_visible(visible=width >= 1900)


def background_of(page: Page) -> int:
    """How light the page is, 0 to 255."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return max(map(int, colour.removeprefix("rgb(").removesuffix(")").split(",")))


def test_the_page_is_dark_where_the_system_is_until_somebody_chooses(site: Site, open_page: OpenPage) -> None:
    page = open_page(site, color_scheme="dark").page
    assert background_of(page) < 40
    page.locator("#theme").click()
    assert background_of(page) > 220
    page.reload()
    expect(page.locator("#link-text")).to_have_text("Live")
    assert background_of(page) > 220
    page.keyboard.press("t")
    page.keyboard.press("t")
    assert background_of(page) < 40
    page.emulate_media(color_scheme="light")
    assert background_of(page) > 220


def test_forced_colours_leave_what_is_chosen_to_be_seen(site: Site, open_page: OpenPage) -> None:
    site.say("forced", "hello")
    visit = open_page(site, forced_colors="active", viewport={"width": 400, "height": 800})
    page = visit.page
    page.get_by_role("button", name="Sessions", exact=True).click()
    grounds = page.locator(".tab").evaluate_all("tabs => tabs.map(tab => getComputedStyle(tab).backgroundColor)")
    assert grounds[1] not in (grounds[0], page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] == grounds[2]
    page.set_viewport_size({"width": 1440, "height": 900})
    visit.open_session("forced")
    page.locator("#prompt").focus()
    assert page.locator(".session[aria-current]").evaluate("row => getComputedStyle(row).outlineStyle") == "solid"


def test_nothing_moves_where_less_motion_is_wanted(site: Site, open_page: OpenPage) -> None:
    site.begin("moving", "PIECES=200 DELAY=50")
    visit = open_page(site, reduced_motion="reduce")
    page = visit.page
    visit.open_session("moving")
    expect(page.locator("#history [data-live]")).to_be_visible()
    assert page.evaluate("document.getAnimations().length") == 0
    page.emulate_media(reduced_motion="no-preference")
    page.wait_for_function("document.getAnimations().length > 0")
    site.call("abort", session="moving")
