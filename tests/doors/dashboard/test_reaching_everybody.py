"""The page for everybody: keyboard only, a narrow window, dark and light, less motion, what axe-core has to say."""

from collections.abc import Iterator
from typing import Any

import pytest
from axe_core_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it has no types
from playwright.sync_api import Page, expect

from tests.doors.dashboard.conftest import OpenPage
from tests.doors.dashboard.site import Site, Visit

pytestmark = [pytest.mark.process, pytest.mark.browser]

WIDTHS = [360, 768, 1024, 1440, 1920, 2560]


def violations(page: Page) -> list[str]:
    """What axe-core finds, and where; all of its rules but the experimental ones."""
    page.evaluate("document.getAnimations().forEach((each) => each.finish?.call ? each.cancel() : null)")
    found: dict[str, Any] = Axe().run(page, options={"resultTypes": ["violations"]})
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.id || document.activeElement.className"))


def tab_to(page: Page, wanted: str, most: int = 40) -> None:
    for _ in range(most):
        page.keyboard.press("Tab")
        if wanted in focused(page).split():
            return
    raise AssertionError(f"{wanted} was not reached by the tab key; the focus is on {focused(page)}")


# --- keyboard ---------------------------------------------------------------------------------------------------------


def test_all_that_matters_is_done_with_the_keyboard_alone(site: Site, open_page: OpenPage) -> None:
    site.say("keys/one", "hello")
    visit = open_page(site)
    page = visit.page
    page.keyboard.press("Tab")
    assert focused(page) == "skip"
    page.keyboard.press("Enter")
    assert focused(page) == "workers-title"
    page.keyboard.press("n")
    page.keyboard.press("Control+a")
    page.keyboard.type("keys/two")
    page.keyboard.press("Enter")
    expect(page.locator("#prompt")).to_be_focused()
    page.keyboard.type("ECHO:typed n ? and a as letters")
    page.keyboard.press("Enter")
    expect(page.locator("#history .said.assistant .text")).to_have_text(["typed n ? and a as letters"])
    page.keyboard.press("Escape")
    expect(page.locator("#conversation")).to_be_hidden()
    assert focused(page) == "workers-title"
    page.keyboard.press("/")
    page.keyboard.type("keys/")
    expect(page.locator("#sessions .session")).to_have_count(2)
    tab_to(page, "session", most=2)
    page.keyboard.press("ArrowDown")
    expect(page.locator("#sessions .session").nth(1)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#sessions .session").nth(1)).to_be_focused()
    page.keyboard.press("Home")
    expect(page.locator("#sessions .session").nth(0)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#conversation")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#sessions .session").nth(0)).to_be_focused()


def test_a_call_is_approved_and_the_pool_paused_with_the_keyboard_alone(own_site: Site, open_page: OpenPage) -> None:
    run = own_site.begin("asking", 'TOOL:exec {"command": "echo done-by-key"} TELL', agent="careful")
    page = open_page(own_site).page
    expect(page.locator(".approval")).to_have_count(1)
    page.keyboard.press("a")
    page.keyboard.type("fine")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Approve exec in asking")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#approvals")).to_be_hidden()
    assert own_site.call("agent.wait", run_id=run)["text"].strip() == "done-by-key"
    page.locator("#pause").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#mode")).to_have_text("paused")
    expect(page.locator("#pause")).to_be_focused()


def test_letters_are_no_shortcuts_where_that_was_switched_off(site: Site, open_page: OpenPage) -> None:
    page = open_page(site).page
    page.keyboard.press("?")
    expect(page.locator("#dialog")).to_contain_text("Keyboard")
    page.get_by_label("Single letters are shortcuts").uncheck()
    page.keyboard.press("Escape")
    expect(page.locator("#dialog")).to_be_hidden()
    page.keyboard.press("?")
    expect(page.locator("#dialog")).to_be_hidden()
    page.locator("#help").click()
    expect(page.locator("#dialog")).to_be_visible()


def test_whatever_has_the_focus_can_be_seen_to_have_it(site: Site, open_page: OpenPage) -> None:
    page = open_page(site).page
    unseen = []
    for _ in range(25):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break  # once around
        style = page.evaluate(
            "(() => { const own = document.activeElement; const shown = own.closest('.chip')?.lastElementChild ?? own;"
            " const style = getComputedStyle(shown); return [own.id || own.className, style.outlineStyle,"
            " parseFloat(style.outlineWidth)]; })()"
        )
        if style[1] == "none" or style[2] < 2:
            unseen.append(style)
    assert unseen == []


# --- sizes, colours, motion -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_sticks_out_at_any_width(site: Site, open_page: OpenPage, width: int) -> None:
    site.say("a-session-with-quite-a-long-name/" + "x" * 60, "ECHO:" + "long" * 100)
    visit = open_page(site, viewport={"width": width, "height": 800})
    page = visit.page
    visit.keep(f"width-{width}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width < 1000:
        page.get_by_role("button", name="Sessions", exact=True).click()
        expect(page.locator("#workers")).to_be_hidden()
    page.locator("#sessions .session", has_text="a-session-with").click()
    expect(page.locator("#history .said.assistant").last).to_contain_text("long")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    expect(page.locator("#composer button[type=submit]")).to_be_in_viewport()
    expect(page.locator("#events")).to_be_visible() if width >= 1900 else expect(page.locator("#events")).to_be_hidden()
    visit.keep(f"width-{width}-conversation")


def background_of(page: Page) -> int:
    """How light the page is, 0 to 255."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return max(map(int, colour.removeprefix("rgb(").removesuffix(")").split(",")))


def test_the_page_is_dark_where_the_system_is_until_somebody_chooses(site: Site, open_page: OpenPage) -> None:
    visit = open_page(site, color_scheme="dark")
    page = visit.page
    assert background_of(page) < 40
    visit.keep("dark")
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
    visit.keep("forced-colours")
    grounds = page.locator(".tab").evaluate_all("tabs => tabs.map(tab => getComputedStyle(tab).backgroundColor)")
    assert grounds[1] not in (grounds[0], page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] == grounds[2]
    page.set_viewport_size({"width": 1440, "height": 900})
    visit.open_session("forced")
    page.locator("#prompt").focus()
    assert page.locator(".session[aria-current]").evaluate("row => getComputedStyle(row).outlineStyle") == "solid"


def test_nothing_moves_for_whoever_wants_less_motion(site: Site, open_page: OpenPage) -> None:
    site.begin("moving", "PIECES=200 DELAY=50")
    visit = open_page(site, reduced_motion="reduce")
    page = visit.page
    visit.open_session("moving")
    expect(page.locator("#history [data-live]")).to_be_visible()
    assert page.evaluate("document.getAnimations().length") == 0
    page.emulate_media(reduced_motion="no-preference")
    page.wait_for_function("document.getAnimations().length > 0")
    site.call("abort", session="moving")


# --- axe-core ---------------------------------------------------------------------------------------------------------


def check_everything(visit: Visit, site: Site) -> None:
    """The page with something of everything in it, the conversation, and each dialog."""
    page = visit.page
    expect(page.locator(".approval")).to_have_count(1)
    expect(page.locator("#background li")).to_have_count(1)
    assert violations(page) == []
    page.locator("#help").click()
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.locator("#workers .tile").first.click()
    assert violations(page) == []
    page.keyboard.press("Escape")
    if page.locator(".tab").first.is_visible():
        page.get_by_role("button", name="Events", exact=True).click()
        assert violations(page) == []
        page.get_by_role("button", name="Sessions", exact=True).click()
        assert violations(page) == []
    visit.open_session("told")
    expect(page.locator("#history details")).not_to_have_count(0)
    assert violations(page) == []
    visit.send("ERROR")
    expect(page.locator("#history .trouble")).to_be_visible()
    assert violations(page) == []
    site.call("sessions.reset", session="told")


@pytest.fixture(scope="module")
def full_site(site: Site) -> Iterator[Site]:
    """With something to see in every part."""
    command = '{"command": "sleep 300", "background": true}'
    site.say("behind", f"TOOL:exec {command} TELL")
    site.begin("asks", 'TOOL:exec {"command": "true"} TELL', agent="careful")
    yield site
    site.call("abort", session="asks")
    for session in ("asks", "behind"):
        site.call("sessions.reset", session=session, force=True)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 360)])
def test_axe_finds_nothing(full_site: Site, open_page: OpenPage, scheme: str, width: int) -> None:
    full_site.say("told", 'THINK TOOL:exec {"command": "echo hello"} TELL')
    visit = open_page(full_site, color_scheme=scheme, viewport={"width": width, "height": 900})
    check_everything(visit, full_site)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_where_one_signs_in(site: Site, open_page: OpenPage, scheme: str) -> None:
    page = open_page(site, sign_in=False, color_scheme=scheme).page
    page.locator("#token").fill("wrong-token-wrong-token")
    page.keyboard.press("Enter")
    expect(page.locator("#token-error")).not_to_be_empty()
    assert violations(page) == []
