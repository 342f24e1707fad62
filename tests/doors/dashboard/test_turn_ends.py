"""How turns ended, in an open conversation: why one failed, what it has cost, each at its turn."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.doors.dashboard.site import Site, Visit

pytestmark = [pytest.mark.process, pytest.mark.browser]


def test_after_a_reload_each_end_stands_at_its_turn_and_none_is_announced(site: Site, visit: Visit, page: Page) -> None:
    said = ["ECHO:hello", "ERROR", "ECHO:hello", "ERROR"]
    for text in said:
        site.say("past", text)
    visit.open_session("past")
    expect(page.locator("#history .trouble")).to_have_count(1)
    page.reload()
    expect(page.locator("#history .trouble")).to_have_count(2)
    completed, failed = ["said user", "said assistant", "cost"], ["said user", "said trouble", "cost"]
    expect(page.locator("#history > .group > *")).to_have_class([*completed, *failed] * 2)
    expect(page.locator("#history .said.user .text")).to_have_text(said)
    expect(page.get_by_role("button", name="Try again")).to_have_count(1)
    expect(page.locator("#history .trouble").last.get_by_role("button", name="Try again")).to_be_visible()
    expect(page.locator("#announcer")).not_to_contain_text("past")
    visit.send("ECHO:more")
    expect(page.locator("#history > .group > *")).to_have_class([*completed, *failed, *completed, *failed, *completed])
    expect(page.locator("#announcer")).to_contain_text("Answer complete in past")


PLACING = """async ({ transcript, ends, lastRun }) => {
    const { History } = await import("/assets/history.js");
    const history = new History(() => {});
    history.clear();
    for (const [run, text, joined] of ends) {
        const message = text === null ? undefined : { text, joined };
        history.keepEnd({ run, message, text: "", trouble: null, cost: `:${run}` });
    }
    const messages = transcript.map(([role, content, origin]) => ({ role, content, origin }));
    history.show(messages, { live: "", isOver: true, lastRun, ended: history.endedRuns });
    history.show(messages, { live: "", isOver: true, lastRun, ended: history.endedRuns });
    const shown = [...document.querySelectorAll("#history .text, #history .cost")].map((each) => each.textContent);
    history.keepEnd({ run: "before", message: { text: "again", joined: false }, text: "", trouble: null, cost: "" });
    history.forgetTurns();
    shown.push(history.endedRuns.size);
    history.clear();
    return shown;
}"""
"""What stands in the page of a transcript and of ends that the page has not watched; how many ends outlive a reset."""


SAID = [["user", "first"], ["assistant", "1"], ["user", "aside", "steer"], ["assistant", "2"]]
SAID += [["user", "again"], ["assistant", "3"], ["user", "again"], ["assistant", "4"]]


@pytest.mark.parametrize(
    ("ends", "shown"),
    [
        ([("a", "first", False), ("b", "aside", True)], "first 1 aside 2 :b :a again 3 again 4"),
        ([("a", "again", False), ("last", "again", False)], "first 1 aside 2 again 3 :a again 4 :last"),
        ([("a", None, False), ("b", "gone", False)], "first 1 aside 2 again 3 again 4"),
        ([("last", None, False)], "first 1 aside 2 again 3 again 4 :last"),
        ([("a", "first", False), ("last", "unheard", False)], "first 1 aside 2 :a again 3 again 4 unheard :last"),
    ],
    ids=["with a message into it", "said twice", "unknown", "the last one's text unknown", "the last one unwritten"],
)
def test_an_end_stands_behind_its_turn_or_is_left_out(
    page: Page, ends: list[tuple[str, str | None, bool]], shown: str
) -> None:
    page.keyboard.press("Escape")  # whatever is open
    assert page.evaluate(PLACING, {"transcript": SAID, "ends": ends, "lastRun": "last"}) == [*shown.split(), 0]


def test_a_turn_that_failed_at_another_door_before_the_page_was_opened_says_why(
    site: Site, page: Page, visit: Visit
) -> None:
    with site.supervisor.connect() as client:
        run = client.call("agent", {"session": "elsewhere", "text": "ERROR"})["run_id"]
        client.call("agent.wait", {"run_id": run, "timeout_ms": 15_000})
    visit.open_session("elsewhere")
    expect(page.locator("#history .cause")).to_contain_text("the scripted model was asked to fail")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()


def test_a_failed_turn_says_why_and_is_tried_again_at_a_press(site: Site, visit: Visit, page: Page) -> None:
    prompt = "PIECES=3 ERROR"
    site.say("unlucky", prompt)
    visit.open_session("unlucky")
    trouble = page.locator("#history .trouble")
    for failures in (1, 2):  # of a turn from before the page was opened, and of one that it has seen
        expect(trouble).to_have_count(failures)
        expect(trouble.last.locator(".cause")).to_contain_text("the scripted model was asked to fail")
        expect(trouble.last).to_have_attribute("data-tone", "bad")
        expect(page.locator("#history .said.user .text")).to_have_text([prompt] * failures)
        expect(trouble.get_by_role("button")).to_have_count(1)
        expect(trouble.last.get_by_role("button", name="Try again")).to_be_visible()
        if failures == 1:
            trouble.last.get_by_role("button", name="Try again").click()


def test_a_turn_says_what_it_has_cost_and_the_session_what_its_turns_have(site: Site, visit: Visit, page: Page) -> None:
    site.say("costly", "ECHO:one two three")
    used = [site.say("costly", "ECHO:four")["usage"]]
    visit.open_session("costly")
    cost = page.locator("#history .cost")
    expect(cost).to_have_count(1)  # of the turns before only the last one's is known
    visit.send("ECHO:five")
    expect(cost).to_have_count(2)
    used.append(site.call("agent.wait", run_id=site.call("sessions.get", session="costly")["last_run"])["usage"])
    tokens = [f"{usage['input_tokens']} tokens in, {usage['output_tokens']} out" for usage in used]
    expect(cost).to_have_text([re.compile(rf"^\d+ m?s · {each}$") for each in tokens])
    order = ["said user", "said assistant", *(["said user", "said assistant", "cost"] * 2)]
    expect(page.locator("#history > .group > *")).to_have_class(order)
    expect(page.locator("#conversation-facts")).to_contain_text("3 turns seen · ")


def test_a_first_turn_that_fails_before_its_worker_writes_leaves_the_message_before_the_cause(
    page: Page,
) -> None:
    page.locator("#new-session").click()
    page.locator("#begin-key").fill("unheard")
    page.locator("#begin-model").fill("nowhere/no-such-model")
    page.locator("#begin-text").fill("hello there")
    page.locator("#dialog").get_by_role("button", name="Send").click()
    expect(page.locator("#history .cause")).to_contain_text("unknown provider")
    expect(page.locator("#history .said")).to_have_class(["said user", "said trouble"])
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#history .said.user .text")).to_have_text(["hello there"] * 2)
