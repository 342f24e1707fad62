"""How turns ended, in an open conversation: why one failed, what it has cost, each at its turn."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.doors.dashboard.site import Site, Visit

pytestmark = [pytest.mark.process, pytest.mark.browser]


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
