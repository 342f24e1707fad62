"""What the page shows of agents of the Agent Client Protocol: their own answers to questions, what they have lost."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import expect

from commands.event_text import resumption_text
from tests.doors.dashboard.conftest import OpenPage
from tests.doors.dashboard.site import SETTINGS, TOKEN, Site, running_site

pytestmark = [pytest.mark.process, pytest.mark.browser]

AGENT = Path(__file__).resolve().parents[3] / "stress" / "acp_agent"
COMMAND = [sys.executable, "-S", str(AGENT), "--quirk", "load-empty", "--quirk", "no-resume", "--store"]


@pytest.fixture(scope="module")
def acp_site() -> Iterator[Site]:
    """A supervisor with an agent that forgets its conversations."""
    with tempfile.TemporaryDirectory(prefix="pool-") as folder:
        command = msgspec.json.encode([*COMMAND, f"{folder}/store"]).decode()
        agent = f'[agents.forgets]\ndialect = "acp"\nworkspace = "{folder}"\ncommand = {command}\n'
        settings = SETTINGS.format(port=0, token=TOKEN, folder=folder) + agent
        with running_site(Path(folder), settings=settings) as running:
            yield running


def test_the_agents_own_answers_are_the_buttons_below_its_question(acp_site: Site, open_page: OpenPage) -> None:
    run = acp_site.begin("asks", "ASK:write", agent="forgets")
    page = open_page(acp_site).page
    buttons = page.locator(".approval .answer button")
    expect(buttons).to_have_text(["Reject once", "Reject always", "Allow once", "Allow always"])
    page.get_by_role("button", name="Reject always write in asks").click()
    expect(page.locator(".toast").last).to_have_text("Denied: write in asks")
    assert "write denied: reject_always" in acp_site.call("agent.wait", run_id=run)["text"]


def test_an_agent_that_has_lost_its_conversation_is_seen_at_its_worker_and_in_the_conversation(
    acp_site: Site, open_page: OpenPage
) -> None:
    acp_site.say("lost", "ECHO:the apple", agent="forgets")
    worker = acp_site.worker_of("lost")
    os.kill(worker["pid"], signal.SIGKILL)
    page = open_page(acp_site).page
    expect(page.get_by_role("button", name=f"Worker {worker['id']},")).to_have_count(0)
    acp_site.say("lost", "ECHO:on;USAGE", agent="forgets")
    tile = page.locator("#workers .tile", has_text="lost")
    expect(tile.locator(".state")).to_have_text("idle, refed")
    tile.click()
    for words in ("fake-agent 1.0.0", "fake-1, ask", "1800 of 200 k tokens", f"refed: {resumption_text('refed')}"):
        expect(page.locator("#dialog")).to_contain_text(words)
    page.get_by_role("button", name="Open session").click()
    expect(page.locator("#conversation-facts")).to_contain_text("fake-1 · ask · 1800 of 200 k tokens · refed")
    expect(page.locator("#history .said.resumed")).to_have_text(resumption_text("refed"))
    order = page.locator("#history > .group > .said").evaluate_all("all => all.map((each) => each.className)")
    assert order == ["said user", "said assistant", "said resumed", "said user", "said assistant"]
