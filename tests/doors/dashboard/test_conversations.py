"""Conversations in the browser: an answer that streams, a worker that dies, approved calls, hostile texts."""

import json
import os
import re
import signal

import pytest
from playwright.sync_api import Page, Route, expect

from tests.doors.dashboard.conftest import OpenPage
from tests.doors.dashboard.halting import WHOLE, HaltingModel
from tests.doors.dashboard.site import Site, Visit

pytestmark = [pytest.mark.process, pytest.mark.browser]

HOSTILE = "<script>window.taken = 1</script><img src=x onerror='window.taken = 2'><b>bold</b> &amp; &lt;"
ANSWER = "#history .said.assistant .text"


def test_an_answer_is_shown_as_it_comes_and_stays_when_it_is_whole(
    visit: Visit, page: Page, model: HaltingModel
) -> None:
    page.locator("#new-session").click()
    page.locator("#begin-key").fill("streaming")
    page.locator("#begin-agent").select_option("halting")
    page.locator("#begin-text").fill("tell me")
    page.locator("#begin-text").press("Enter")
    expect(page.locator("#prompt")).to_be_focused()
    live = page.locator("#history [data-live] .text")
    expect(live).to_contain_text("piece 19")
    assert "piece 20" not in live.inner_text()
    expect(page.locator("#conversation-state")).to_have_text("working")
    expect(page.locator("#sessions .session[aria-current]")).to_contain_text("piece")
    model.go_on.release(2)
    expect(page.locator(ANSWER)).to_have_text([WHOLE])
    expect(page.locator("#conversation-state")).to_have_text("idle")
    expect(page.locator("#history [data-live]")).to_have_count(0)
    expect(page.locator("#history .said.user .text")).to_have_text(["tell me"])
    expect(page.locator("#history [data-pending]")).to_have_count(0)


def test_a_long_answer_is_shown_to_its_end_on_demand(site: Site, visit: Visit, page: Page) -> None:
    site.say("lengthy-answer", "PIECES=4000")
    visit.open_session("lengthy-answer")
    expect(page.locator(ANSWER)).not_to_contain_text("piece 3999")
    page.locator(ANSWER).get_by_role("button", name="more characters").click()
    expect(page.locator(ANSWER)).to_contain_text("piece 3999")


def test_a_message_into_a_running_turn_hides_nothing_and_reads_as_it_was_written(
    site: Site, model: HaltingModel, visit: Visit, page: Page, open_page: OpenPage
) -> None:
    other = open_page(site)
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
    model.go_on.release(4)
    site.call("agent.wait", run_id=run)
    expect(page.locator("#history .said .text")).to_have_text(["tell me", WHOLE, "turn left", WHOLE])
    expect(page.locator("#history .by").nth(2)).to_have_text("You, into the running turn")
    expect(page.locator("#history [data-pending]")).to_have_count(0)


def test_a_page_loaded_again_in_mid_turn_comes_back_and_says_that_the_beginning_is_missing(
    site: Site, visit: Visit, page: Page
) -> None:
    run = site.begin("reloaded", "PIECES=2800 HANG")
    visit.open_session("reloaded")
    live = page.locator("#history [data-live]")
    expect(live).to_contain_text("piece 1399 ")
    expect(live.locator(".by")).to_have_text("Agent")
    page.reload()
    expect(page.locator("#conversation-title")).to_have_text("reloaded")
    expect(live.locator(".by")).to_have_text("Agent; the beginning follows when the answer is complete")
    page.locator("#abort").click()
    assert site.call("agent.wait", run_id=run)["reason"] == "interrupted"
    expect(page.locator("#conversation-state")).to_have_text("idle")
    expect(page.locator("#abort")).to_be_hidden()
    expect(page.locator("#history .trouble")).to_contain_text("The turn ended: ")
    expect(page.locator("#history .said.assistant .by")).to_have_text("Agent")
    expect(page.locator(ANSWER)).to_contain_text("piece 0 piece 1 ")
    page.locator("#conversation-close").click()
    page.reload()
    expect(page.locator("#link-text")).to_have_text("Live")
    expect(page.locator("#conversation")).to_be_hidden()


def test_of_a_killed_worker_the_half_answer_stays_and_its_conversation_goes_on_with_the_next_one(
    site: Site, visit: Visit, page: Page
) -> None:
    site.say("mortal", "My number is 1815.")
    visit.open_session("mortal")
    visit.send("PIECES=400 DELAY=25")
    expect(page.locator("#history [data-live]")).to_contain_text("piece 9")
    victim = site.worker_of("mortal")
    tile = page.get_by_role("button", name=f"Worker {victim['id']},")
    expect(tile).to_contain_text("mortal")
    os.kill(victim["pid"], signal.SIGKILL)
    expect(tile).to_have_count(0)
    expect(page.locator("#events .event[data-tone=bad] .type").first).to_have_text("done")
    for by in (["You", "Agent", "You", "Agent, cut off"], ["You", "Agent", "You"]):
        expect(page.locator("#history .trouble")).to_have_text(re.compile(r"^The turn ended: worker \w+ killed by sig"))
        expect(page.locator("#conversation-state")).to_have_text("failed")
        expect(page.locator("#sessions .session[aria-current]")).to_have_attribute("data-state", "failed")
        expect(page.locator("#history .by")).to_have_text(by)
        if "Agent, cut off" in by:
            expect(page.locator(ANSWER).last).to_contain_text("piece 9")
        page.reload()
        expect(page.locator("#conversation-title")).to_have_text("mortal")
    expect(page.locator("#history .said")).to_have_count(4)  # the page shows the conversation before more is said
    visit.send("RECALL")
    expect(page.locator(ANSWER).last).to_contain_text(re.compile("Earlier you said.*My number is 1815"))
    order = ["user", "assistant", "user", "trouble", "user", "assistant"]
    expect(page.locator("#history .said")).to_have_class([f"said {kind}" for kind in order])
    heir = site.worker_of("mortal")
    assert heir["id"] != victim["id"]
    expect(page.get_by_role("button", name=f"Worker {heir['id']},")).to_contain_text("mortal")


def test_a_session_that_is_deleted_elsewhere_says_so_where_it_is_open(site: Site, visit: Visit, page: Page) -> None:
    site.say("doomed", "hello")
    visit.open_session("doomed")
    expect(page.locator("#history .said")).to_have_count(2)
    site.call("sessions.delete", session="doomed")
    expect(page.locator("#conversation-facts")).to_have_text("This session was deleted; a prompt begins a new one")
    expect(page.locator("#history .said")).to_have_count(0)
    visit.send("ECHO:born again")
    expect(page.locator(ANSWER)).to_have_text(["born again"])
    expect(page.locator("#conversation-facts")).to_contain_text("main/default")


def test_a_refused_prompt_is_told_and_not_lost(page: Page) -> None:
    page.locator("#new-session").click()
    page.locator("#begin-key").fill("nobody")
    page.locator("#begin-agent").select_option("halting")
    page.locator("#begin-model").fill("nowhere/no-such-model")
    page.locator("#begin-text").fill("hello there")
    page.locator("#dialog").get_by_role("button", name="Send").click()
    expect(page.locator(".toast[data-tone=bad]").last).to_contain_text("no-such-model")
    expect(page.locator("#prompt")).to_have_value("hello there")
    expect(page.locator("#history .said")).to_have_count(0)


def test_a_new_prompt_without_a_name_of_its_session_is_sent_in_one_of_a_name_of_its_own(page: Page) -> None:
    page.locator("#new-session").click()
    page.locator("#begin-key").fill(" ")
    page.locator("#begin-text").fill("ECHO:somewhere")
    page.locator("#begin-text").press("Enter")
    expect(page.locator(ANSWER)).to_have_text(["somewhere"])
    expect(page.locator("#conversation-title")).to_have_text(re.compile(r"^web-\w+$"))


def test_a_message_that_is_refused_late_stands_in_the_field_of_its_own_session(
    site: Site, visit: Visit, page: Page
) -> None:
    for session in ("drafts/one", "drafts/two"):
        site.say(session, "hello")
    visit.open_session("drafts/one")
    held: list[Route] = []
    page.route("**/api/agent", lambda route: held.append(route))  # noqa: PLW0108  # a method of list has no attributes
    with page.expect_request("**/api/agent"):
        visit.send("for one")
    page.locator("#prompt").fill("and more")
    visit.open_session("drafts/two")
    expect(page.locator("#prompt")).to_have_value("")
    page.locator("#prompt").fill("for two")
    [route] = held
    route.fulfill(status=503, json={"error": {"code": "store", "message": "not just now"}})
    expect(page.locator(".toast[data-tone=bad]").last).to_contain_text("not just now")
    page.unroute("**/api/agent")
    expect(page.locator("#prompt")).to_have_value("for two")
    visit.open_session("drafts/one")
    expect(page.locator("#prompt")).to_have_value("for one\nand more")
    visit.open_session("drafts/two")
    expect(page.locator("#prompt")).to_have_value("for two")
    page.locator("#prompt").fill("")


SETTLING = """async ({ transcripts, pending }) => {
    const { History } = await import("/assets/history.js");
    const history = new History(() => {});
    history.clear();
    for (const [run, text] of Object.entries(pending)) history.drawPending({ run, text, started: true, joined: false });
    const show = (messages) => history.show(messages, { live: "", isOver: false, ended: new Set() });
    const left = transcripts.map((texts) => {
        show(texts.map((content) => ({ role: "user", content })));
        return [...document.querySelectorAll("#history [data-pending] .text")].map((each) => each.textContent);
    });
    history.clear();
    return left;
}"""
"""What stands in the page of each run's message besides the transcript, after each reading of that."""


@pytest.mark.parametrize(
    ("pending", "transcripts", "left"),
    [
        ({"a": "ok"}, [["look here"], ["look here", "ok"]], [["ok"], []]),
        ({"a": "ok", "b": "ok"}, [["ok"], ["ok", [{"type": "text", "text": "ok"}]]], [["ok"], []]),
        ({"a": "text"}, [[[{"type": "text", "text": "ok"}]]], [["text"]]),
        ({"a": "one", "b": "two\nlines"}, [["[2 came in]\n\n[1 of 2]\none\n\n[2 of 2]\ntwo\nlines"]], [[]]),
        ({"a": "go on"}, [["[SYSTEM] a command has ended\n\ngo on"]], [[]]),
    ],
    ids=["part of another", "said twice", "a key of JSON", "collected", "behind events"],
)
def test_a_message_is_settled_by_itself_or_by_whole_lines_of_a_message_that_it_came_in(
    page: Page, pending: dict[str, str], transcripts: list[list[object]], left: list[list[str]]
) -> None:
    page.keyboard.press("Escape")  # whatever is open
    assert page.evaluate(SETTLING, {"transcripts": transcripts, "pending": pending}) == left


def test_a_message_with_scripts_in_it_is_text_wherever_it_is_shown(site: Site, page: Page) -> None:
    site.begin(f"key{HOSTILE}", f"ECHO:{HOSTILE}")
    row = page.locator("#sessions .session", has_text="window.taken = 1")
    expect(row.locator(".key")).to_have_text(f"key{HOSTILE}")
    expect(row.locator(".last")).to_have_text(HOSTILE)
    row.click()
    expect(page.locator(ANSWER)).to_have_text(HOSTILE)
    expect(page.locator("#history .said.user .text")).to_have_text(f"ECHO:{HOSTILE}")
    expect(page.locator("#conversation-title")).to_have_text(f"key{HOSTILE}")
    expect(page.locator("#events .event", has_text="window.taken").first).to_be_attached()
    site.begin("asks", f'TOOL:exec {{"command": "echo {HOSTILE.replace(chr(34), "")}"}} TELL', agent="careful")
    expect(page.locator(".approval .call")).to_contain_text("<img src=x")
    assert page.evaluate("[window.taken, document.querySelectorAll('img, b').length]") == [None, 0]
    page.locator(".approval").get_by_role("button", name="Deny").click()
    expect(page.locator("#approvals")).to_be_hidden()


def ask(site: Site, session: str, command: str = "echo it-was-done", **more: object) -> str:
    """Begin a turn that waits for the approval of this command; the run."""
    call = json.dumps({"command": command, **more})
    return site.begin(session, f"TOOL:exec {call} TELL", agent="careful")


def test_the_question_of_a_killed_worker_goes_and_the_page_says_so(site: Site, visit: Visit, page: Page) -> None:
    ask(site, "orphaned")
    expect(page.locator(".approval")).to_contain_text("exec in orphaned: every call needs approval")
    visit.open_session("orphaned")
    os.kill(site.worker_of("orphaned")["pid"], signal.SIGKILL)
    expect(page.locator("#approvals")).to_be_hidden()
    expect(page.locator(".toast").last).to_contain_text("exec in orphaned was not run; its turn ended: worker")
    expect(page.locator("#history .trouble")).to_contain_text("What waited for approval was not run: exec.")
    expect(page.locator("#conversation-state")).to_have_text("failed")


def test_a_call_is_approved_and_another_denied_with_a_note_that_reaches_the_model(
    site: Site, visit: Visit, page: Page, open_page: OpenPage
) -> None:
    first = ask(site, "asking")
    card = page.locator(".approval")
    expect(card).to_contain_text("echo it-was-done")
    expect(page).to_have_title("(1) pool")
    expect(page.locator("#announcer")).to_contain_text("Approval needed: exec in session asking")
    expect(page.locator("#sessions .session", has_text="asking")).to_have_attribute("data-state", "approval")
    card.get_by_role("button", name="Approve exec in asking").click()
    expect(page.locator("#approvals")).to_be_hidden()
    assert site.call("agent.wait", run_id=first)["text"].strip() == "it-was-done"
    second = ask(site, "asking")
    later = open_page(site).page
    expect(later.locator(".approval")).to_contain_text("exec in asking: every call needs approval")
    card.get_by_label("Note about exec in asking").fill("not on a Friday")
    card.get_by_role("button", name="Deny exec in asking").click()
    expect(page.locator("#approvals")).to_be_hidden()
    expect(page.locator(".toast").last).to_have_text("Denied: exec in asking")
    expect(later.locator(".toast")).to_have_text("exec in asking was denied by http")
    site.call("agent.wait", run_id=second)
    [denied] = site.call("sessions.history", session="asking")["messages"][-2]["content"]
    assert denied["content"]["note"] == "not on a Friday"
    visit.open_session("asking")
    page.locator("#history .failed summary").click()
    expect(page.locator("#history .failed pre")).to_contain_text("not on a Friday")
    expect(page).to_have_title("pool")


@pytest.mark.parametrize("width", [400, 1440])
def test_a_question_stands_in_the_conversation_that_is_open_and_is_answered_there(
    site: Site, open_page: OpenPage, width: int
) -> None:
    visit = open_page(site, viewport={"width": width, "height": 800})
    page = visit.page
    session = f"asked-at-{width}"
    run = ask(site, session, "echo from-here")
    expect(page.locator("#approval-list .approval")).to_have_count(1)
    if width < 1000:
        page.get_by_role("button", name="Sessions", exact=True).click()
    visit.open_session(session)
    card = page.locator("#history .approval")
    expect(card.locator(".part", has_text="command").locator("pre")).to_have_text("echo from-here")
    expect(page.locator("#approvals")).to_be_hidden()
    page.get_by_label(f"Note about exec in {session}").fill("half a note")
    page.locator("#conversation-close").click()
    expect(card).to_have_count(0)
    visit.open_session(session)
    expect(page.get_by_label(f"Note about exec in {session}")).to_have_value("half a note")
    page.locator("#asks-note button").click()
    expect(page.get_by_label(f"Note about exec in {session}")).to_be_focused()
    page.get_by_role("button", name=f"Approve exec in {session}").click()
    assert site.call("agent.wait", run_id=run)["text"].strip() == "from-here"
    expect(card).to_have_count(0)
    expect(page.locator("#asks-note")).to_be_hidden()


def test_a_call_reads_as_its_command_or_as_the_change_that_it_makes(site: Site, visit: Visit, page: Page) -> None:
    command = "printf 'one\\ntwo'\necho done"
    site.say("readable", f"TOOL:exec {json.dumps({'command': command, 'timeout': 9})} TELL")
    change = {"path": "read.txt", "content": "first\nsecond\n"}
    site.say("readable", f"TOOL:write {json.dumps(change)} ECHO:written")
    edits = [{"old_text": "second", "new_text": "third\nfourth"}]
    site.say("readable", f"TOOL:edit {json.dumps({'path': 'read.txt', 'edits': edits})} ECHO:edited")
    visit.open_session("readable")
    calls = page.locator("#history .fold.call")
    expect(calls.locator("summary")).to_have_text(
        ["exec  " + command.replace("\n", " "), "write  read.txt", "edit  read.txt"]
    )
    texts = [each.locator("pre").all_text_contents() for each in calls.all()]
    assert texts == [
        [command, '{\n  "timeout": 9\n}'],
        ["read.txt", "+first\n+second\n"],
        ["read.txt", "-second\n+third\n+fourth\n"],
    ]
    assert calls.last.locator(".added").count() == 2


def test_a_long_call_can_be_approved_when_its_end_was_shown(site: Site, page: Page) -> None:
    ask(site, "blind", f"true{' ' * 300}\necho evil\t\u200b", env={"CC": "other"})
    card = page.locator(".approval")
    command, environment = (card.locator(".part", has_text=name).locator("pre") for name in ("command", "env"))
    expect(command).to_have_text("true⟨300 spaces⟩\necho evil⇥   \\u{200b}")
    expect(environment).to_have_text("CC=other")
    expect(card.get_by_role("button", name="Approve")).to_be_enabled()
    card.get_by_role("button", name="Deny").click()
    expect(page.locator("#approvals")).to_be_hidden()
    content = "".join(f"line {number} \U0001f600\n" for number in range(4_000)) + "the end\n"
    call = json.dumps({"path": "long.txt", "content": content})
    run = site.begin("lengthy", f"TOOL:write {call} ECHO:ok", agent="careful")
    expect(card.locator(".hidden-part")).to_contain_text("more characters in")
    expect(card.get_by_role("button", name="Approve")).to_be_disabled()
    card.get_by_role("button", name="Show all of it").click()
    expect(card.locator("pre").last).to_contain_text("the end")
    card.get_by_role("button", name="Approve").click()
    expect(page.locator("#approvals")).to_be_hidden()
    assert site.call("agent.wait", run_id=run)["text"].strip() == "ok"
