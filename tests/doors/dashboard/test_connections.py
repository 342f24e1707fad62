"""The token, and the connection: the network drops, the supervisor dies; nothing is missing or twice afterwards."""

import os
import re
import signal
import tempfile
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.doors.dashboard.conftest import OpenPage
from tests.doors.dashboard.halting import WHOLE, HaltingModel
from tests.doors.dashboard.site import Site, Visit, running_site

pytestmark = [pytest.mark.process, pytest.mark.browser]

TRY_NOW = "dispatchEvent(new Event('online'))"
"""Ends the back-off of the stream, which by now is some seconds long."""


def test_what_happens_while_the_network_is_gone_is_shown_when_it_is_back(
    site: Site, model: HaltingModel, visit: Visit, page: Page
) -> None:
    site.begin("through", "tell me", agent="halting")
    visit.open_session("through")
    expect(page.locator("#history [data-live]")).to_contain_text("piece 19")
    visit.context.set_offline(True)
    expect(page.locator("#link-text")).to_contain_text("Reconnecting in")
    expect(page.locator("#announcer")).to_contain_text("The connection is lost")
    model.go_on.release()
    for number in range(3):
        site.say("missed", f"ECHO:word {number}")
    expect(page.locator("#events .event", has_text="missed")).to_have_count(0)
    visit.context.set_offline(False)
    expect(page.locator("#link-text")).to_have_text("Live")
    expect(page.locator("#sessions .session", has_text="missed")).to_contain_text("word 2")
    missed = page.locator("#events .event", has_text="missed")
    expect(missed.filter(has_text="done")).to_have_count(3)
    titles = missed.evaluate_all("rows => rows.map(row => row.title)")
    seqs = [int(title.split()[1].strip(",")) for title in reversed(titles)]
    assert seqs == sorted(set(seqs))
    assert page.locator("#events .break").count() == 0
    expect(page.locator("#history [data-live]")).to_contain_text("piece 29")
    model.go_on.release()
    expect(page.locator("#history .said.assistant .text")).to_have_text([WHOLE])


def test_a_page_outlives_its_supervisor_and_goes_on_with_the_next_one_until_its_token_holds_no_more(
    browser: Browser,
) -> None:
    with tempfile.TemporaryDirectory(prefix="pool-") as one, tempfile.TemporaryDirectory(prefix="pool-") as other:
        with running_site(Path(one)) as first:
            first.say("lasting", "My number is 1815.")
            first.begin("cut", "PIECES=4000 DELAY=25")
            visit = Visit(browser, first, sign_in=True)
            page = visit.page
            visit.open_session("cut")
            expect(page.locator("#history [data-live]")).to_contain_text("piece 9")
            os.kill(first.pid, signal.SIGKILL)
            expect(page.locator("#link-text")).to_contain_text("Reconnecting in")
        with running_site(Path(one), first.port) as second:
            page.evaluate(TRY_NOW)
            expect(page.locator("#link-text")).to_have_text("Live", timeout=20_000)
            expect(page.locator("#history .trouble")).to_contain_text("The turn ended: the supervisor ended")
            expect(page.locator("#conversation-state")).to_have_text("failed")
            visit.open_session("lasting")
            visit.send("RECALL")
            expect(page.locator("#history .said.assistant .text").last).to_contain_text('["My number is 1815."')
            expect(page.locator("#about")).to_contain_text(f"pid {second.pid}")
            expect(page.locator("#f-events .sub")).to_have_text(re.compile(r"^\d+ since the start$"))
            assert second.pid != first.pid
        with running_site(Path(other), first.port) as third:  # with other data, whose events begin at one again
            page.evaluate(TRY_NOW)
            expect(page.locator("#link-text")).to_have_text("Live", timeout=20_000)
            third.say("anew", "ECHO:counted from one")
            expect(page.locator("#sessions .session", has_text="anew")).to_contain_text("counted from one")
            settings = Path(other, "pool.toml")
            settings.write_text(settings.read_text().replace("of-the-tests", "of-somebody-else"))
            page.wait_for_function("() => document.querySelector('#figures') === null")
            os.kill(third.pid, signal.SIGHUP)
            expect(page.locator("#token")).to_be_visible()
            expect(page.locator("#token-error")).to_have_text("The token does not hold any more.")
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


def test_a_status_that_the_page_cannot_read_is_told_and_the_next_one_is_asked_for(
    site: Site, open_page: OpenPage
) -> None:
    visit = open_page(site)
    visit.page.route("**/api/status", lambda route: route.fulfill(json={}))
    for _ in range(4):
        visit.page.wait_for_event("pageerror")
    visit.trouble.clear()


def test_a_body_that_comes_too_late_is_no_garbled_answer(site: Site, open_page: OpenPage) -> None:
    visit = open_page(site)
    told = visit.page.evaluate(
        """async () => {
            const { Api } = await import("/assets/api.js");
            const told = [];
            for (const error of [new DOMException("", "TimeoutError"), new TypeError(), new SyntaxError()]) {
                const answer = { ok: true, status: 200, headers: new Headers(), json: () => Promise.reject(error) };
                window.fetch = async () => answer;
                await new Api("x").call("status").catch(({ message }) => told.push(message));
            }
            return told;
        }"""
    )
    late, lost, garbled = "did not answer in time", "cannot be reached", "answered 200 with something that is no JSON"
    assert told == [f"the supervisor {words}" for words in (late, lost, garbled)]


def test_a_token_in_the_fragment_is_kept_for_this_tab_only_and_forgotten_at_the_sign_out(
    site: Site, open_page: OpenPage
) -> None:
    visit = open_page(site)
    page = visit.page
    paths = {url.removeprefix(site.url).partition("?")[0].partition("#")[0] for url in visit.requested}
    assert {path for path in paths if not path.startswith(("/assets/", "/api/"))} == {"/", "/events"}
    assert page.url == f"{site.url}/"
    assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
    assert page.evaluate("history.length") <= 2
    beside = visit.context.new_page()
    beside.goto(site.url)
    expect(beside.locator("#token")).to_be_visible()
    page.locator("#sign-out").click()
    expect(page.locator("#token")).to_be_visible()
    assert page.evaluate("sessionStorage.getItem('pool-token')") is None
    page.reload()
    expect(page.locator("#token")).to_be_visible()


def test_the_policy_stops_inline_code_and_markup_made_of_text(site: Site, open_page: OpenPage) -> None:
    visit = open_page(site, sign_in=False)
    broken = visit.page.evaluate(
        """() => new Promise((resolve) => {
            const broken = [];
            const note = (what) => { broken.push(what); if (new Set(broken).size === 4) resolve(broken); };
            addEventListener("securitypolicyviolation", (event) => note(event.effectiveDirective));
            const script = document.createElement("script");
            try { script.text = "window.taken = 1"; document.body.append(script); } catch { note("trusted") }
            try { document.body.innerHTML = "<p>"; } catch { note("trusted") }
            const image = document.createElement("p");
            image.setAttribute("style", "color: red");
            document.body.append(image);
            fetch("http://elsewhere.example/").catch(() => {});
            setTimeout(() => resolve(broken), 5000);
        })"""
    )
    assert visit.page.evaluate("window.taken") is None
    assert set(broken) == {"trusted", "require-trusted-types-for", "style-src-attr", "connect-src"}
    visit.trouble.clear()  # the browser has told of each
    visit.requested[:] = [url for url in visit.requested if "elsewhere.example" not in url]
