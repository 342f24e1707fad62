"""The network drops, the supervisor dies: the page says so, tries again by itself, and nothing is missing or twice."""

import os
import re
import signal
import tempfile
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.doors.dashboard.conftest import OpenPage
from tests.doors.dashboard.halting import WHOLE, HaltingModel
from tests.doors.dashboard.site import Site, Visit, running_site

pytestmark = [pytest.mark.process, pytest.mark.browser]


def seqs_of(visit: Visit, session: str) -> list[int]:
    """The seqs of the session's events in the list, in their order."""
    titles = visit.page.locator("#events .event", has_text=session).evaluate_all("rows => rows.map(row => row.title)")
    return [int(title.split()[1].strip(",")) for title in reversed(titles)]


def test_what_happens_while_the_network_is_gone_is_shown_when_it_is_back(site: Site, open_page: OpenPage) -> None:
    site.say("before", "ECHO:first words")
    visit = open_page(site)
    page = visit.page
    visit.open_session("before")
    expect(page.locator("#history .said.assistant .text")).to_have_text(["first words"])
    page.locator("#conversation-close").click()
    visit.context.set_offline(True)
    expect(page.locator("#link-text")).to_contain_text("Reconnecting in")
    expect(page.locator("#announcer")).to_contain_text("The connection is lost")
    visit.keep("reconnecting")
    for number in range(3):
        site.say("missed", f"ECHO:word {number}")
    expect(page.locator("#events .event", has_text="missed")).to_have_count(0)
    visit.context.set_offline(False)
    expect(page.locator("#link-text")).to_have_text("Live")
    expect(page.locator("#sessions .session", has_text="missed")).to_contain_text("word 2")
    expect(page.locator("#events .event", has_text="missed").filter(has_text="done")).to_have_count(3)
    seqs = seqs_of(visit, "missed")
    assert seqs == sorted(set(seqs))
    assert page.locator("#events .break").count() == 0


def test_a_turn_that_streams_through_a_drop_is_whole_in_the_end(
    site: Site, model: HaltingModel, open_page: OpenPage
) -> None:
    visit = open_page(site)
    page = visit.page
    run = site.begin("through", "tell me", agent="halting")
    visit.open_session("through")
    expect(page.locator("#history [data-live]")).to_contain_text("piece 19")
    visit.context.set_offline(True)
    expect(page.locator("#link-text")).to_contain_text("Reconnecting in")
    model.go_on.release()
    visit.context.set_offline(False)
    expect(page.locator("#link-text")).to_have_text("Live")
    expect(page.locator("#history [data-live]")).to_contain_text("piece 29")
    model.go_on.release()
    assert site.call("agent.wait", run_id=run)["text"].strip() == WHOLE
    answer = page.locator("#history .said.assistant .text")
    expect(answer).to_have_text([WHOLE])


def test_a_page_outlives_its_supervisor_and_goes_on_with_the_next_one(browser: Browser) -> None:
    with tempfile.TemporaryDirectory(prefix="pool-") as name:
        folder = Path(name)
        with running_site(folder) as first:
            first.say("lasting", "My number is 1815.")
            first.begin("cut", "PIECES=4000 DELAY=25")
            visit = Visit(browser, first, sign_in=True)
            visit.open_session("cut")
            expect(visit.page.locator("#history [data-live]")).to_contain_text("piece 9")
            os.kill(first.pid, signal.SIGKILL)
            expect(visit.page.locator("#link-text")).to_contain_text("Reconnecting in")
        with running_site(folder, first.port) as second:
            expect(visit.page.locator("#link-text")).to_have_text("Live", timeout=20_000)
            expect(visit.page.locator("#history .trouble")).to_contain_text("The turn ended: the supervisor ended")
            expect(visit.page.locator("#conversation-state")).to_have_text("failed")
            visit.open_session("lasting")
            visit.send("RECALL")
            answer = visit.page.locator("#history .said.assistant .text").last
            expect(answer).to_contain_text('"My number is 1815."')
            expect(visit.page.locator("#about")).to_contain_text(f"pid {second.pid}")
            expect(visit.page.locator("#f-events .sub")).to_have_text(re.compile(r"^\d+ since the start$"))
            assert second.pid != first.pid
            visit.close()


def test_a_token_that_holds_no_more_leads_back_to_the_sign_in(own_site: Site, open_page: OpenPage) -> None:
    page = open_page(own_site).page
    settings = own_site.supervisor.data_dir.parent / "pool.toml"
    settings.write_text(settings.read_text().replace("of-the-tests", "of-somebody-else"))
    page.wait_for_function("() => document.querySelector('#figures') === null")
    os.kill(own_site.pid, signal.SIGHUP)
    expect(page.locator("#token")).to_be_visible()
    expect(page.locator("#token-error")).to_have_text("The token does not hold any more.")


def test_a_page_that_was_left_open_follows_a_supervisor_with_other_data(browser: Browser, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with running_site(tmp_path / "first") as site:
        site.say("long-ago", "PIECES=100 DELAY=1")
        visit = Visit(browser, site, sign_in=True)
    with running_site(tmp_path / "second", site.port) as site:
        expect(visit.page.locator("#link-text")).to_have_text("Live", timeout=20_000)
        site.say("anew", "ECHO:counted from one")
        expect(visit.page.locator("#sessions .session", has_text="anew")).to_contain_text("counted from one")
        visit.close()


def test_a_defect_met_by_an_event_is_told_and_the_stream_goes_on(site: Site, open_page: OpenPage) -> None:
    visit = open_page(site)
    taken = visit.page.evaluate(
        """async () => {
            const { EventStream } = await import("/assets/stream.js");
            const taken = [];
            const answer = (seq) => `event: open\\ndata: {"head":9,"complete":true}\\n\\ndata: [{"seq":${seq}}]\\n\\n`;
            await new Promise((resolve) => {
                const stream = new EventStream({
                    open: async (since) => new Response(answer(since + 1)),
                    take: ([event]) => {
                        taken.push(event.seq);
                        if (event.seq === 2) throw new Error("a defect of the page");
                        if (event.seq === 3) resolve(stream.stop());
                    },
                    tell: () => {},
                    gap: () => {},
                });
                stream.run(0);
            });
            return taken;
        }"""
    )
    assert taken == [1, 2, 3]
    assert [text for text in visit.trouble if "a defect of the page" in text]
    visit.trouble.clear()
