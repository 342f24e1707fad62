"""What can be done to the pool from the browser: pause, drain, stop a worker, look at and kill what runs behind."""

import re

import pytest
from playwright.sync_api import expect

from tests.doors.dashboard.conftest import OpenPage
from tests.doors.dashboard.site import Site

pytestmark = [pytest.mark.process, pytest.mark.browser]


def test_the_pool_is_paused_only_when_that_was_confirmed_and_goes_on_when_resumed(
    own_site: Site, open_page: OpenPage
) -> None:
    page = open_page(own_site).page
    page.locator("#pause").click()
    expect(page.locator("#dialog").get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#mode")).to_have_text("running")
    page.locator("#pause").click()
    page.locator("#dialog").get_by_role("button", name="Pause").click()
    expect(page.locator("#mode")).to_have_text("paused")
    own_site.begin("patient", "ECHO:at last")
    expect(page.locator("#waiting li")).to_contain_text("the pool is paused")
    row = page.locator("#sessions .session", has_text="patient")
    expect(row).to_have_attribute("data-state", "WAITING")
    expect(row.locator(".when")).to_have_text("waiting")
    expect(row.locator(".last")).to_have_text("the pool is paused")
    row.click()
    expect(page.locator("#conversation-state")).to_have_text("waiting")
    expect(page.locator("#conversation-facts")).to_contain_text("waits: the pool is paused")
    expect(page.locator("#history .said.user .text")).to_have_text("ECHO:at last")
    expect(page.locator("#pause")).to_have_text("Resume")
    page.locator("#pause").click()
    expect(page.locator("#mode")).to_have_text("running")
    expect(page.locator("#waiting li")).to_have_count(0)
    expect(page.locator("#sessions .session", has_text="patient")).to_contain_text("at last")


def test_a_drained_pool_has_no_workers_and_can_be_resumed(own_site: Site, open_page: OpenPage) -> None:
    page = open_page(own_site).page
    expect(page.locator("#workers li")).not_to_have_count(0)
    page.locator("#drain").click()
    page.locator("#dialog").get_by_role("button", name="Drain").click()
    expect(page.locator("#workers-none")).to_be_visible()
    expect(page.locator("#mode")).not_to_have_text("running")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#mode")).to_have_text("running")
    expect(page.locator("#workers li")).not_to_have_count(0)


@pytest.mark.parametrize(("order", "told"), [("Recycle", "will be replaced"), ("Stop now", "is being stopped")])
def test_a_worker_is_ended_from_its_tile_when_that_was_confirmed(
    site: Site, open_page: OpenPage, order: str, told: str
) -> None:
    site.say("owner", "hello")
    page = open_page(site).page
    worker = site.worker_of("owner")
    tile = page.get_by_role("button", name=f"Worker {worker['id']},")
    tile.click()
    dialog = page.locator("#dialog")
    expect(dialog).to_contain_text(f"pid {worker['pid']}")
    dialog.get_by_role("button", name=order).click()
    expect(dialog.locator("h2")).to_contain_text(f"worker {worker['id']}?")
    dialog.get_by_role("button", name=order).click()
    expect(page.locator(".toast")).to_contain_text(f"{worker['id']} {told}")
    expect(tile).to_have_count(0)


def test_a_command_in_the_background_is_listed_its_output_followed_and_killed(site: Site, open_page: OpenPage) -> None:
    visit = open_page(site)
    page = visit.page
    command = "for i in $(seq 1 500); do echo tick $i; sleep 0.2; done"
    site.say("busy", f'TOOL:exec {{"command": "{command}", "background": true}} TELL')
    row = page.locator("#background li")
    expect(row.locator(".command")).to_have_text(command)
    row.get_by_role("button", name=re.compile("Output of")).click()
    expect(page.locator(".output")).to_contain_text("tick 1\ntick 2")
    expect(page.locator(".output")).to_contain_text("tick 12")
    visit.keep("background")
    page.keyboard.press("Escape")
    row.get_by_role("button", name=re.compile("Kill")).click()
    page.locator("#dialog").get_by_role("button", name="Kill").click()
    expect(row.locator(".end")).not_to_have_text(re.compile(r"^(now|\d+ \w)$"))
    expect(row.get_by_role("button", name=re.compile("Kill"))).to_be_hidden()
    expect(page.locator("#background-count")).to_have_text("")


def test_events_are_filtered_by_channel_and_text_and_can_be_held(site: Site, open_page: OpenPage) -> None:
    page = open_page(site).page
    site.say("noisy", "ECHO:one")
    expect(page.locator("#events .event", has_text="noisy").filter(has_text="done")).to_have_count(1)
    page.get_by_label("progress").uncheck()
    expect(page.locator("#events [data-channel=progress]")).to_have_count(0)
    expect(page.locator("#events [data-channel=monitor]")).not_to_have_count(0)
    page.get_by_label("progress").check()
    page.locator("#events-filter").fill("noisy")
    expect(page.locator("#events .event:not(:has-text('noisy'))")).to_have_count(0)
    page.locator("#events-hold").click()
    site.say("noisy", "ECHO:two")
    page.locator("#events-hold").click()
    expect(page.locator("#events .event", has_text="two")).to_have_count(1)


def test_a_worker_that_is_given_up_is_no_activity_of_its_session(site: Site, open_page: OpenPage) -> None:
    ages = open_page(site).page.evaluate(
        """async () => {
            const { Model } = await import("/assets/model.js");
            const model = new Model();
            model.takeSessions([{ key: "s", agent: "a", role: "r", state: "READY", updated_at: 5, last_run: null }], 0);
            const event = (ts, type, more) => ({ seq: ts, ts, session: "s", type, data: {}, ...more });
            const after = (...given) => (model.takeEvents([event(...given)]), model.sessions.get("s").updatedAt);
            return [after(10, "done", { run_id: "r" }), after(20, "session_parked"), after(30, "worker_exited")];
        }"""
    )
    assert ages == [10, 10, 10]
