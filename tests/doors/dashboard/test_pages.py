"""Logs and health: lines of a worker as they come and from before, and what keeps the pool from its work."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from gateway.caller import Caller
from gateway.methods.operator import StatusDocument
from tests.commands.documents import GROUPS, NODES
from tests.doors.dashboard.crowd import BATCHES_A_SECOND, Crowd, a_status, serving
from tests.doors.dashboard.site import TOKEN, Site, Visit
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
        groups: [{ nodes: { up: 2, lost: 1 } }, { nodes: { refused: 1 } }],
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
        ["warning", "nodes", "1 lost, 1 refused"],
        ["warning", "jobs", "2 jobs failed the last time; job old cannot be used"],
        ["warning", "alerts", "1 could not be delivered; webhook:ops: status 500"],
        ["warning", "heartbeats", "two: no such time"],
        ["ok", "pool", "running, 1 of 4 workers"],
        ["ok", "agent three", "prog 1.2"],
        ["ok", "end of the supervisor", "nothing survives"],
    ]


# --- other machines ---------------------------------------------------------------------------------------------------


class Machines(Crowd):
    """A pool whose workers are on several machines."""

    def __init__(self) -> None:
        super().__init__(BATCHES_A_SECOND)
        self.nodes = [dict(node) for node in NODES]
        self.asked: list[tuple[str, Any]] = []

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        match method:
            case "status":
                status = a_status(self.seq)
                places = [node["name"] for node in self.nodes if node["state"] == "up"]
                workers = [each | {"node": places[at % len(places)]} for at, each in enumerate(status["workers"])]
                return msgspec.convert(status | {"groups": GROUPS, "workers": workers}, StatusDocument)
            case "nodes.list":
                return self.nodes
            case "nodes.drain" | "nodes.resume":
                asked = msgspec.json.decode(params)
                self.asked.append((method, asked))
                state = {"nodes.drain": "draining", "nodes.resume": "up"}[method]
                self.nodes = [each | {"state": state} if each["name"] == asked["node"] else each for each in self.nodes]
                return {"node": asked["node"]}
        return await super().call(method, params, caller)


def test_nodes_are_listed_drained_and_resumed_and_named_at_each_worker(browser: Browser, tmp_path: Path) -> None:
    machines = Machines()
    with serving(machines, tmp_path) as url:
        page = browser.new_page(reduced_motion="reduce")
        page.goto(f"{url}/#token={TOKEN}")
        rows = page.locator("#nodes li")
        expect(rows).to_have_count(5)
        expect(page.locator("#nodes-count")).to_have_text("2 up, 1 draining, 1 lost, 1 refused")
        for at, words in enumerate(
            (
                ("this machine", "up", "1 of 4 slots"),
                ("gpu-1", "2 of 8 slots · group gpu · ssh · load 3.3 · 16 GiB of 64 GiB · round trip 700 µs", "Drain"),
                ("gpu-2", "draining, 40 s left", "Resume"),
                ("gpu-3", "lost, fenced in 8.0 s", "silent for 10 s"),
                ("old", "refused", "ssh old: Permission denied"),
            )
        ):
            for word in words:
                expect(rows.nth(at)).to_contain_text(word)
        expect(rows.nth(0).get_by_role("button")).to_have_count(0)
        expect(
            page.get_by_role("button", name="Worker w1, leased, session s1, on node gpu-1, in a turn")
        ).to_be_visible()
        page.get_by_role("button", name="Drain node gpu-1").click()
        page.locator("#dialog").get_by_role("button", name="Drain", exact=True).click()
        expect(rows.nth(1)).to_contain_text("draining")
        page.get_by_role("button", name="Resume node gpu-1").click()
        expect(rows.nth(1)).to_contain_text("up")
        assert machines.asked == [("nodes.drain", {"node": "gpu-1"}), ("nodes.resume", {"node": "gpu-1"})]
        page.close()
