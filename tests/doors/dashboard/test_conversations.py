"""Conversations in the browser: an answer that streams, a worker that dies, approved calls, texts that bite."""

import json
import os
import re
import signal

import pytest
from playwright.sync_api import expect

from tests.doors.dashboard.conftest import OpenPage
from tests.doors.dashboard.halting import WHOLE, HaltingModel
from tests.doors.dashboard.site import Site

pytestmark = [pytest.mark.process, pytest.mark.browser]

HOSTILE = "<script>window.taken = 1</script><img src=x onerror='window.taken = 2'><b>bold</b> &amp; &lt;"


def test_an_answer_is_shown_as_it_comes_and_stays_when_it_is_whole(
    site: Site, model: HaltingModel, open_page: OpenPage
) -> None:
    visit = open_page(site)
    page = visit.page
    page.locator("#new-session").click()
    page.locator("#begin-key").fill("streaming")
    expect(page.locator("#begin-agents option[value=halting]")).to_have_count(1)
    page.locator("#begin-agent").fill("halting")
    page.locator("#begin-agent").press("Enter")
    expect(page.locator("#prompt")).to_be_focused()
    visit.send("tell me")
    live = page.locator("#history [data-live] .text")
    expect(live).to_contain_text("piece 19")
    assert "piece 20" not in live.inner_text()
    expect(page.locator("#conversation-state")).to_have_text("working")
    expect(page.locator("#sessions .session[aria-current]")).to_contain_text("piece")
    visit.keep("streaming")
    model.go_on.release(2)
    answer = page.locator("#history .said.assistant .text")
    expect(answer).to_have_text(WHOLE)
    expect(page.locator("#conversation-state")).to_have_text("ready")
    expect(page.locator("#history [data-live]")).to_have_count(0)
    expect(answer).to_have_count(1)
    expect(page.locator("#history .said.user .text")).to_have_text(["tell me"])
    expect(page.locator("#history [data-pending]")).to_have_count(0)


def test_an_answer_that_another_front_end_asked_for_is_shown_too(site: Site, open_page: OpenPage) -> None:
    site.say("shared", "ECHO:from before")
    visit = open_page(site)
    page = visit.page
    visit.open_session("shared")
    expect(page.locator("#history .said.assistant .text")).to_have_text(["from before"])
    site.say("shared", "ECHO:from elsewhere")
    expect(page.locator("#history .said.assistant .text")).to_have_text(["from before", "from elsewhere"])
    expect(page.locator("#history .said.user .text")).to_have_text(["ECHO:from before", "ECHO:from elsewhere"])


def test_a_message_into_a_running_turn_hides_nothing_and_reads_as_it_was_written(
    site: Site, model: HaltingModel, open_page: OpenPage
) -> None:
    visit, other = open_page(site), open_page(site)
    page = visit.page
    run = site.begin("steered", "tell me", agent="halting")
    for each in (visit, other):
        each.open_session("steered")
        expect(each.page.locator("#history [data-live]")).to_contain_text("piece 0 piece 1")
    visit.send("turn left")
    for each in (visit, other):
        said = each.page.locator("#history .said")
        expect(said.locator(".by")).to_have_text(["You", "Agent", "You, into the running turn"])
        expect(said.locator(".text").nth(1)).to_contain_text("piece 0 piece 1")
        expect(said.locator(".text").last).to_have_text("turn left")
    visit.keep("steered")
    model.go_on.release(4)
    site.call("agent.wait", run_id=run)
    expect(page.locator("#history .said .text")).to_have_text(["tell me", WHOLE, "turn left", WHOLE])
    expect(page.locator("#history .by").nth(2)).to_have_text("You, into the running turn")
    expect(page.locator("#history [data-pending]")).to_have_count(0)


def test_a_turn_can_be_aborted(site: Site, open_page: OpenPage) -> None:
    site.begin("long", "PIECES=500 DELAY=50")
    visit = open_page(site)
    visit.open_session("long")
    expect(visit.page.locator("#history [data-live]")).to_contain_text("piece")
    visit.page.locator("#abort").click()
    expect(visit.page.locator("#conversation-state")).to_have_text("ready")
    expect(visit.page.locator("#abort")).to_be_hidden()
    expect(visit.page.locator("#history .trouble")).to_contain_text("The turn ended: ")


def test_a_worker_that_is_killed_is_replaced_before_the_eyes_and_its_conversation_goes_on(
    site: Site, open_page: OpenPage
) -> None:
    site.say("mortal", "My number is 1815.")
    visit = open_page(site)
    page = visit.page
    visit.open_session("mortal")
    visit.send("PIECES=400 DELAY=25")
    expect(page.locator("#history [data-live]")).to_contain_text("piece")
    victim = site.worker_of("mortal")
    tile = page.get_by_role("button", name=f"Worker {victim['id']},")
    expect(tile).to_contain_text("mortal")
    os.kill(victim["pid"], signal.SIGKILL)
    expect(tile).to_have_count(0)
    expect(page.locator("#history .trouble")).to_contain_text(victim["id"])
    expect(page.locator("#events .event[data-tone=bad] .type").first).to_have_text("done")
    visit.send("RECALL")
    expect(page.locator("#history .said.assistant .text").last).to_contain_text("My number is 1815.")
    heir = site.worker_of("mortal")
    assert heir["id"] != victim["id"]
    expect(page.get_by_role("button", name=f"Worker {heir['id']},")).to_contain_text("mortal")
    visit.keep("worker-replaced")


def test_of_a_killed_worker_the_half_answer_stays_and_why_it_ended_is_told_also_later(
    site: Site, open_page: OpenPage
) -> None:
    site.begin("halved", "PIECES=400 DELAY=25")
    visit = open_page(site)
    page = visit.page
    visit.open_session("halved")
    expect(page.locator("#history [data-live]")).to_contain_text("piece 9")
    os.kill(site.worker_of("halved")["pid"], signal.SIGKILL)
    for by in (["You", "Agent, cut off"], ["You"]):
        expect(page.locator("#history .trouble")).to_have_text(re.compile(r"^The turn ended: worker \w+ killed by sig"))
        expect(page.locator("#conversation-state")).to_have_text("failed")
        expect(page.locator("#sessions .session[aria-current]")).to_have_attribute("data-state", "FAILED")
        expect(page.locator("#history .by")).to_have_text(by)
        if len(by) == 2:
            expect(page.locator("#history .said.assistant .text")).to_contain_text("piece 9")
        page.reload()
        expect(page.locator("#conversation-title")).to_have_text("halved")
    visit.send("RECALL")
    expect(page.locator("#history .said").last).to_contain_text("Earlier you said")
    order = page.locator("#history .said").evaluate_all("all => all.map(each => each.className)")
    assert order == ["said user", "said trouble", "said user", "said assistant"]


def test_the_question_of_a_killed_worker_goes_and_the_page_says_so(site: Site, open_page: OpenPage) -> None:
    visit = open_page(site)
    page = visit.page
    site.begin("orphaned", 'TOOL:exec {"command": "echo never"} TELL', agent="careful")
    expect(page.locator(".approval")).to_contain_text("exec in orphaned: every call needs approval")
    visit.open_session("orphaned")
    os.kill(site.worker_of("orphaned")["pid"], signal.SIGKILL)
    expect(page.locator("#approvals")).to_be_hidden()
    expect(page.locator(".toast")).to_contain_text("exec in orphaned was not run; its turn ended: worker")
    expect(page.locator("#history .trouble")).to_contain_text("What waited for approval was not run: exec.")
    expect(page.locator("#conversation-state")).to_have_text("failed")
    visit.keep("question-gone")


def test_a_page_opened_later_shows_why_a_call_needs_approval_and_who_decided_elsewhere(
    site: Site, open_page: OpenPage
) -> None:
    site.begin("reasoned", 'TOOL:exec {"command": "echo why"} TELL', agent="careful")
    pages = []
    for _ in range(2):
        pages.append(open_page(site).page)
        expect(pages[-1].locator(".approval")).to_contain_text("exec in reasoned: every call needs approval")
    pages[0].get_by_role("button", name="Deny exec in reasoned").click()
    expect(pages[1].locator(".toast")).to_have_text("exec in reasoned was denied by http")
    expect(pages[0].locator(".toast")).to_have_text("Denied: exec in reasoned")


def test_a_call_is_approved_and_another_denied_with_a_note_that_reaches_the_model(
    site: Site, open_page: OpenPage
) -> None:
    visit = open_page(site)
    page = visit.page
    ask = 'TOOL:exec {"command": "echo it-was-done"} TELL'
    first = site.begin("asking", ask, agent="careful")
    card = page.locator(".approval")
    expect(card).to_contain_text("echo it-was-done")
    expect(page).to_have_title("(1) pool")
    expect(page.locator("#announcer")).to_contain_text("Approval needed: exec in session asking")
    expect(page.locator("#sessions .session", has_text="asking")).to_have_attribute("data-state", "PAUSED")
    visit.keep("approval")
    card.get_by_role("button", name="Approve exec in asking").click()
    expect(page.locator("#approvals")).to_be_hidden()
    assert site.call("agent.wait", run_id=first)["text"].strip() == "it-was-done"
    second = site.begin("asking", ask)
    card.get_by_label("Note about exec in asking").fill("not on a Friday")
    card.get_by_role("button", name="Deny exec in asking").click()
    expect(page.locator("#approvals")).to_be_hidden()
    site.call("agent.wait", run_id=second)
    [denied] = site.call("sessions.history", session="asking")["messages"][-2]["content"]
    assert denied["content"]["note"] == "not on a Friday"
    visit.open_session("asking")
    page.locator("#history .failed summary").click()
    expect(page.locator("#history .failed pre")).to_contain_text("not on a Friday")
    expect(page).to_have_title("pool")


def test_all_of_a_call_is_shown_before_it_can_be_approved(site: Site, open_page: OpenPage) -> None:
    visit = open_page(site)
    page = visit.page
    hidden = json.dumps({"command": f"true{' ' * 300}\necho evil\t\u200b", "env": {"CC": "other"}})
    site.begin("blind", f"TOOL:exec {hidden} TELL", agent="careful")
    card = page.locator(".approval")
    expect(card.locator(".part", has_text="command").locator("pre")).to_have_text(
        "true⟨300 spaces⟩\necho evil⇥   \\u{200b}"
    )
    expect(card.locator(".part", has_text="env").locator("pre")).to_have_text("CC=other")
    expect(card.get_by_role("button", name="Approve")).to_be_enabled()
    visit.keep("approval-whole")
    card.get_by_role("button", name="Deny").click()
    expect(page.locator("#approvals")).to_be_hidden()


def test_a_long_call_can_be_approved_when_its_end_was_shown(site: Site, open_page: OpenPage) -> None:
    visit = open_page(site)
    page = visit.page
    content = "".join(f"line {number} \U0001f600\n" for number in range(10_000)) + "the end\n"
    run = site.begin(
        "lengthy", f"TOOL:write {json.dumps({'path': 'long.txt', 'content': content})} ECHO:ok", agent="careful"
    )
    card = page.locator(".approval")
    expect(card.locator(".hidden-part")).to_contain_text("more characters in")
    expect(card.get_by_role("button", name="Approve")).to_be_disabled()
    visit.keep("approval-cut")
    card.get_by_role("button", name="Show all of it").click()
    expect(card.locator("pre").last).to_contain_text("the end")
    card.get_by_role("button", name="Approve").click()
    expect(page.locator("#approvals")).to_be_hidden()
    assert site.call("agent.wait", run_id=run)["text"].strip() == "ok"


def test_a_message_with_scripts_in_it_is_text_wherever_it_is_shown(site: Site, open_page: OpenPage) -> None:
    visit = open_page(site)
    page = visit.page
    site.begin(f"key{HOSTILE}", f"ECHO:{HOSTILE}")
    row = page.locator("#sessions .session", has_text="window.taken = 1")
    expect(row.locator(".key")).to_have_text(f"key{HOSTILE}")
    expect(row.locator(".last")).to_have_text(HOSTILE)
    row.click()
    expect(page.locator("#history .said.assistant .text")).to_have_text(HOSTILE)
    expect(page.locator("#history .said.user .text")).to_have_text(f"ECHO:{HOSTILE}")
    expect(page.locator("#conversation-title")).to_have_text(f"key{HOSTILE}")
    expect(page.locator("#events .event", has_text="window.taken").first).to_be_attached()
    site.begin("asks", f'TOOL:exec {{"command": "echo {HOSTILE.replace(chr(34), "")}"}} TELL', agent="careful")
    expect(page.locator(".approval .call")).to_contain_text("<img src=x")
    assert page.evaluate("[window.taken, document.querySelectorAll('img, b').length]") == [None, 0]
    visit.keep("escaped")
    page.locator(".approval").get_by_role("button", name="Deny").click()
    expect(page.locator("#approvals")).to_be_hidden()


def test_a_refused_prompt_is_told_and_not_lost(site: Site, open_page: OpenPage) -> None:
    visit = open_page(site)
    page = visit.page
    page.locator("#new-session").click()
    page.locator("#begin-key").fill("nobody")
    page.locator("#begin-agent").fill("no-such-agent")
    page.get_by_role("button", name="Begin").click()
    visit.send("hello there")
    expect(page.locator(".toast[data-tone=bad]")).to_contain_text("no-such-agent")
    expect(page.locator("#prompt")).to_have_value("hello there")
    expect(page.locator("#history .said")).to_have_count(0)
