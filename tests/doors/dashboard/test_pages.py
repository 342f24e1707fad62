"""Logs and health: lines of a worker as they come and from before, and what keeps the pool from its work."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.doors.dashboard.site import Site, Visit
from wire.log_file import line_head

pytestmark = [pytest.mark.process, pytest.mark.browser]


def test_a_workers_log_is_followed_read_back_and_there_after_its_end(site: Site, visit: Visit, page: Page) -> None:
    site.say("logged", "hello")
    worker = site.worker_of("logged")["id"]
    path = Path(site.call("status")["supervisor"]["data_dir"], "logs", f"{worker}.log")
    with path.open("ab") as file:
        file.writelines(line_head(1e9 + at, "stderr") + b"<i>number %d</i>\n" % at for at in range(450))
    page.get_by_role("button", name=f"Worker {worker},").click()
    page.locator("#dialog").get_by_role("button", name="Log", exact=True).click()
    lines = page.locator(".output .log-line")
    expect(lines).to_have_count(200)
    expect(lines.last).to_contain_text("<i>number 449</i>")
    page.get_by_role("button", name="Earlier lines").click()
    expect(lines).to_have_count(400)
    page.get_by_role("button", name="Earlier lines").click()
    expect(page.get_by_role("button", name="Earlier lines")).to_be_hidden()
    expect(lines.first).to_contain_text("started")
    shown = [int(number) for number in re.findall(r"number (\d+)<", page.locator(".output").inner_text())]
    assert shown == list(range(450))
    site.call("workers.stop", worker=worker)
    expect(lines.last).to_contain_text("ended")
    page.keyboard.press("Escape")
    page.keyboard.press("l")
    expect(page.locator("#log-name")).to_have_value("supervisor")
    expect(lines.last).to_contain_text(re.compile(r"^\d\d:\d\d:\d\d \w+ \w+"))
    page.locator("#log-name").select_option(label=f"{worker} (ended)")
    expect(lines.last).to_contain_text("ended")
    note = page.locator("#dialog-body > .hint")
    for is_offline, said in ((True, "It cannot be read just now"), (False, re.compile(r"^\d+ lines"))):
        visit.context.set_offline(is_offline)
        expect(note).to_contain_text(said)
    page.keyboard.press("Escape")


def test_health_is_two_words_and_each_check_with_what_to_do(site: Site, page: Page) -> None:
    site.say("well", "hello")
    pool = page.locator(".check-row", has=page.get_by_text("pool", exact=True))
    site.call("pause")
    expect(page.locator("#health")).to_have_text(re.compile(r"^\d+ (warning|problem)s?$"))
    page.keyboard.press("h")
    expect(pool).to_have_attribute("data-tone", "warn")
    expect(pool).to_contain_text("it is paused: no new turn begins")
    expect(pool.locator(".fix")).to_contain_text("Resume")
    expect(page.locator(".check-row", has_text="agent main")).to_have_attribute("data-tone", "good")
    site.call("resume")
    expect(pool).to_have_attribute("data-tone", "good")
    expect(pool.locator(".fix")).to_be_hidden()
    page.keyboard.press("Escape")


TROUBLE = """async () => {
    const { judge, sumUp } = await import("/assets/health.js");
    const store = { degraded: true, last_error: "disk full", rows_waiting: 2, lost: 1 };
    const places = [{ to: "webhook:ops", error: "status 500" }, { to: "x", error: null }];
    const alerts = { undeliverable: [{}], places };
    const autonomy = { cron: { failing: 2, problems: ["job old cannot be used"] }, alerts };
    const status = {
        pool: { mode: "running", total: 1, max: 4 }, gateway: { store, autonomy },
        guarantee: { text: "nothing survives" },
        waiting: [{ session: "a", waited: 61, why: "all are busy" }, { session: "b", waited: 1, why: "?" }],
        workers: [{ id: "w1", suspended: true, last_ping: 1 }, { id: "w2", suspended: false, last_ping: 121 }],
        sessions: [{ key: "s", failed: "no such program" }, { key: "t", failed: null }],
        profiles: [{ agent: "one", breaker: "closed" }, { agent: "one", breaker: "open", last_error: "exit code 3" }],
    };
    const seen = { program: "prog", version: "1.2", is_ready: true, problem: null };
    const failed = { ...seen, problem: "no key" };
    const agents = [{ name: "one", seen }, { name: "two", seen: failed }, { name: "three", seen }];
    const checks = judge(status, agents, [{ agent: "two", warning: "no such time" }]);
    return { checks: checks.map(({ name, verdict, found }) => [verdict, name, found]), sum: sumUp(checks) };
}"""


def test_whatever_is_wrong_is_named_worst_first(page: Page) -> None:
    result = page.evaluate(TROUBLE)
    assert result["sum"] == {"text": "3 problems", "tone": "bad"}
    assert result["checks"] == [
        ["problem", "store", "it cannot be written: disk full; 2 rows in memory, 1 lost"],
        ["problem", "agent one", "it is not started: exit code 3"],
        ["problem", "agent two", "its last start failed: no key"],
        ["warning", "waiting", "2 requests, the longest for 1 m 1 s (a): all are busy"],
        ["warning", "workers", "suspended, or without an answer: w1, w2"],
        ["warning", "sessions", "cannot go on: s (no such program)"],
        ["warning", "jobs", "2 jobs failed the last time; job old cannot be used"],
        ["warning", "alerts", "1 could not be delivered; webhook:ops: status 500"],
        ["warning", "heartbeats", "two: no such time"],
        ["ok", "pool", "running, 1 of 4 workers"],
        ["ok", "agent three", "prog 1.2"],
        ["ok", "end of the supervisor", "nothing survives"],
    ]
