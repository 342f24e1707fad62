"""A page that is loaded again, opened in the middle of a turn or looked at on a phone shows where things stand."""

import pytest
from playwright.sync_api import expect

from tests.doors.dashboard.conftest import OpenPage
from tests.doors.dashboard.site import Site

pytestmark = [pytest.mark.process, pytest.mark.browser]


def test_a_page_loaded_again_in_mid_turn_comes_back_and_says_that_the_beginning_is_missing(
    site: Site, open_page: OpenPage
) -> None:
    run = site.begin("reloaded", "PIECES=9000 DELAY=1")
    visit = open_page(site)
    page = visit.page
    visit.open_session("reloaded")
    live = page.locator("#history [data-live]")
    expect(live).to_contain_text("piece 1300 ", timeout=25_000)
    expect(live.locator(".by")).to_have_text("Agent")
    page.reload()
    expect(page.locator("#conversation-title")).to_have_text("reloaded")
    expect(live.locator(".by")).to_have_text("Agent; the beginning follows when the answer is complete")
    visit.keep("reloaded")
    page.locator("#abort").click()
    assert site.call("agent.wait", run_id=run)["reason"] == "interrupted"
    expect(page.locator("#history .said.assistant .by")).to_have_text("Agent")
    expect(page.locator("#history .said.assistant .text")).to_contain_text("piece 0 piece 1 ")
    page.locator("#conversation-close").click()
    page.reload()
    expect(page.locator("#link-text")).to_have_text("Live")
    expect(page.locator("#conversation")).to_be_hidden()


def test_a_long_answer_is_shown_to_its_end_on_demand(site: Site, open_page: OpenPage) -> None:
    site.say("lengthy-answer", "PIECES=4000")
    visit = open_page(site)
    visit.open_session("lengthy-answer")
    answer = visit.page.locator("#history .said.assistant .text")
    expect(answer).not_to_contain_text("piece 3999")
    answer.get_by_role("button", name="more characters").click()
    expect(answer).to_contain_text("piece 3999")


def test_in_a_narrow_window_the_conversation_leads_to_the_question_it_waits_with(
    site: Site, open_page: OpenPage
) -> None:
    visit = open_page(site, viewport={"width": 400, "height": 800})
    page = visit.page
    run = site.begin("phone", 'TOOL:exec {"command": "echo from-a-phone"} TELL', agent="careful")
    expect(page.locator(".approval")).to_have_count(1)
    page.get_by_role("button", name="Sessions", exact=True).click()
    visit.open_session("phone")
    expect(page.locator("#asks-note")).to_contain_text("Waits for your approval: exec")
    visit.keep("narrow-question")
    page.locator("#asks-note button").click()
    expect(page.get_by_label("Note about exec in phone")).to_be_focused()
    page.get_by_role("button", name="Approve exec in phone").click()
    assert site.call("agent.wait", run_id=run)["text"].strip() == "from-a-phone"
    visit.open_session("phone")
    expect(page.locator("#asks-note")).to_be_hidden()


def test_a_session_that_is_deleted_elsewhere_says_so_where_it_is_open(site: Site, open_page: OpenPage) -> None:
    site.say("doomed", "hello")
    visit = open_page(site)
    page = visit.page
    visit.open_session("doomed")
    expect(page.locator("#history .said")).to_have_count(2)
    site.call("sessions.delete", session="doomed")
    expect(page.locator("#conversation-facts")).to_have_text("This session was deleted; a prompt begins a new one")
    expect(page.locator("#history .said")).to_have_count(0)
    visit.send("ECHO:born again")
    expect(page.locator("#history .said.assistant .text")).to_have_text(["born again"])
    expect(page.locator("#conversation-facts")).to_contain_text("main/default")
