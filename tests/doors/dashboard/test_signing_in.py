"""The token: asked for, kept in the tab only, never part of an address; and what the page's policy forbids."""

import pytest
from playwright.sync_api import expect

from tests.doors.dashboard.conftest import OpenPage
from tests.doors.dashboard.site import TOKEN, Site

pytestmark = [pytest.mark.process, pytest.mark.browser]


def test_a_wrong_token_is_refused_in_words_and_the_right_one_opens_the_page(site: Site, open_page: OpenPage) -> None:
    visit = open_page(site, sign_in=False)
    page = visit.page
    expect(page.locator("#token")).to_be_focused()
    visit.keep("sign-in")
    page.keyboard.type("not-the-token-at-all")
    page.keyboard.press("Enter")
    expect(page.locator("#token-error")).to_have_text("This token is not known here.")
    expect(page.locator("#console")).to_be_hidden()
    page.locator("#token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("#link-text")).to_have_text("Live")
    page.reload()
    expect(page.locator("#link-text")).to_have_text("Live")


def test_nothing_of_a_refused_attempt_to_sign_in_is_left_in_the_page(site: Site, open_page: OpenPage) -> None:
    page = open_page(site, sign_in=False).page
    page.locator("#token").fill("not-the-token-at-all")
    page.keyboard.press("Enter")
    expect(page.locator("#token-error")).to_have_text("This token is not known here.")
    page.locator("#token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("#link-text")).to_have_text("Live")
    page.locator("#new-session").click()
    page.locator("#begin-key").fill("after-a-refusal")
    page.keyboard.press("Enter")
    expect(page.locator("#conversation-title")).to_have_text("after-a-refusal")


def test_a_token_in_the_fragment_is_taken_out_of_the_address_and_kept_for_this_tab_only(
    site: Site, open_page: OpenPage
) -> None:
    visit = open_page(site)
    page = visit.page
    assert page.url == f"{site.url}/"
    assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
    assert page.evaluate("history.length") <= 2
    beside = visit.context.new_page()
    beside.goto(site.url)
    expect(beside.locator("#token")).to_be_visible()


def test_signing_out_forgets_the_token(site: Site, open_page: OpenPage) -> None:
    page = open_page(site).page
    page.locator("#sign-out").click()
    expect(page.locator("#token")).to_be_visible()
    assert page.evaluate("sessionStorage.getItem('pool-token')") is None
    page.reload()
    expect(page.locator("#token")).to_be_visible()


def test_the_policy_stops_inline_code_and_markup_made_of_text(site: Site, open_page: OpenPage) -> None:
    visit = open_page(site)
    page = visit.page
    broken = page.evaluate(
        """() => new Promise((resolve) => {
            const broken = [];
            addEventListener("securitypolicyviolation", (event) => broken.push(event.effectiveDirective));
            const script = document.createElement("script");
            try { script.text = "window.taken = 1"; document.body.append(script); } catch { broken.push("trusted") }
            try { document.body.innerHTML = "<p>"; } catch { broken.push("trusted") }
            const image = document.createElement("p");
            image.setAttribute("style", "color: red");
            document.body.append(image);
            fetch("http://elsewhere.example/").catch(() => {});
            setTimeout(() => resolve(broken), 200);
        })"""
    )
    assert page.evaluate("window.taken") is None
    assert {"trusted", "require-trusted-types-for", "style-src-attr", "connect-src"} <= set(broken)
    visit.trouble.clear()  # the browser has told of each
    visit.requested[:] = [url for url in visit.requested if "elsewhere.example" not in url]


def test_the_page_loads_nothing_but_its_own_files(site: Site, open_page: OpenPage) -> None:
    visit = open_page(site)
    paths = {url.removeprefix(site.url).partition("?")[0] for url in visit.requested}
    assert {path for path in paths if not path.startswith(("/assets/", "/api/"))} == {"/", "/events"} | {
        path for path in paths if path.startswith("/#")
    }
