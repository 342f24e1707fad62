"""What can be done to the pool from the browser: pause, drain, stop a worker, kill what runs; with the keyboard too."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.doors.dashboard.conftest import OpenPage
from tests.doors.dashboard.site import Site, Visit
from wire.session_state import session_state

pytestmark = [pytest.mark.process, pytest.mark.browser]


def test_the_pool_is_paused_only_when_that_was_confirmed_and_goes_on_when_resumed(site: Site, page: Page) -> None:
    page.locator("#pause").click()
    expect(page.locator("#dialog").get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#mode")).to_have_text("running")
    page.locator("#pause").focus()
    for key in ("Enter", "Tab", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("#mode")).to_have_text("paused")
    expect(page.locator("#pause")).to_be_focused()
    site.begin("patient", "ECHO:at last")
    expect(page.locator("#waiting li")).to_contain_text("the pool is paused")
    row = page.locator("#sessions .session", has_text="patient")
    expect(row).to_have_attribute("data-state", "waiting")
    expect(row.locator(".when")).to_have_text("waiting, place 1")
    expect(row.locator(".last")).to_have_text("the pool is paused")
    row.click()
    expect(page.locator("#conversation-state")).to_have_text("waiting")
    expect(page.locator("#asks-note span")).to_have_text(
        re.compile(r"^Waits for a worker.*, place 1 of 1: the pool is paused$")
    )
    expect(page.locator("#history .said.user .text")).to_have_text("ECHO:at last")
    expect(page.locator("#pause")).to_have_text("Resume")
    page.locator("#pause").click()
    expect(page.locator("#mode")).to_have_text("running")
    expect(page.locator("#waiting li")).to_have_count(0)
    expect(row).to_contain_text("at last")
    page.locator("#conversation-close").click()


def test_a_drained_pool_has_no_workers_and_can_be_resumed(page: Page) -> None:
    expect(page.locator("#workers li")).not_to_have_count(0)
    page.locator("#drain").click()
    page.locator("#dialog").get_by_role("button", name="Drain").click()
    expect(page.locator("#workers-none")).to_be_visible()
    expect(page.locator("#mode")).not_to_have_text("running")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#mode")).to_have_text("running")
    expect(page.locator("#workers li")).not_to_have_count(0)


@pytest.mark.parametrize(("order", "told"), [("Recycle", "will be replaced"), ("Stop now", "is being stopped")])
def test_a_worker_is_ended_from_its_tile_when_that_was_confirmed(site: Site, page: Page, order: str, told: str) -> None:
    site.say("owner", "hello")
    worker = site.worker_of("owner")
    tile = page.get_by_role("button", name=f"Worker {worker['id']},")
    tile.click()
    dialog = page.locator("#dialog")
    expect(dialog).to_contain_text(f"pid {worker['pid']}")
    dialog.get_by_role("button", name=order).click()
    expect(dialog.locator("h2")).to_contain_text(f"worker {worker['id']}?")
    dialog.get_by_role("button", name=order).click()
    expect(page.locator(".toast").last).to_contain_text(f"{worker['id']} {told}")
    expect(tile).to_have_count(0)


def test_a_command_in_the_background_is_listed_its_output_followed_and_killed(site: Site, page: Page) -> None:
    command = "for i in $(seq 1 5000); do echo tick $i; sleep 0.05; done"
    site.say("busy", f'TOOL:exec {{"command": "{command}", "background": true}} TELL')
    row = page.locator("#background li")
    expect(row.locator(".command")).to_have_text(command)
    row.get_by_role("button", name=re.compile("Output of")).click()
    expect(page.locator(".output")).to_contain_text("tick 1\ntick 2")
    shown = page.locator(".output").inner_text().count("tick")
    expect(page.locator(".output")).to_contain_text(f"tick {shown + 1}\n")
    page.keyboard.press("Escape")
    row.get_by_role("button", name=re.compile("Kill")).click()
    page.locator("#dialog").get_by_role("button", name="Kill").click()
    expect(row.locator(".end")).not_to_have_text(re.compile(r"^(now|\d+ \w)$"))
    expect(row.get_by_role("button", name=re.compile("Kill"))).to_be_hidden()
    expect(page.locator("#background-count")).to_have_text("")


def test_the_output_of_a_command_is_asked_for_once_at_a_time(page: Page) -> None:
    asked = page.evaluate(
        """async () => {
            const { BackgroundView } = await import("/assets/background.js");
            let asked = 0;
            const looks = [], { setInterval } = window, never = new Promise(() => {});
            const one = { session_id: "p", status: "running", command: "make", started_at: 0, pid: 1, cwd: "/" };
            const ask = async (_, { action }) => (action === "list" ? { sessions: [one] } : (asked++, never));
            const model = { status: { workers: [{ session: "s", background: 1 }] } };
            const view = new BackgroundView(model, { ask, mark: () => {}, now: () => 0 });
            await view.refresh({ now: true });
            view.draw();
            window.setInterval = (look) => looks.push(look);
            document.querySelector("#background li .button").click();
            window.setInterval = setInterval;
            for (const look of looks) await Promise.race([look(), look(), null]);
            return [looks.length, asked];
        }"""
    )
    assert asked == [1, 1]
    page.keyboard.press("Escape")
    expect(page.locator("#dialog")).to_be_hidden()


def test_events_are_what_agents_do_until_internals_are_wanted_by_channel_and_text(site: Site, page: Page) -> None:
    site.say("noisy", "ECHO:one")
    expect(page.locator("#events .event", has_text="noisy").filter(has_text="done")).to_have_count(1)
    types = set(page.locator("#events .event .type").all_text_contents())
    assert types >= {"run:accepted", "done"}
    assert not types & {"run:start", "state_changed", "session_bound", "worker_ready", "token_usage"}
    expect(page.get_by_label("monitor")).to_be_hidden()
    page.get_by_label("internals").check()
    page.get_by_label("progress").uncheck()
    expect(page.locator("#events [data-channel=progress]")).to_have_count(0)
    expect(page.locator("#events [data-channel=monitor]")).not_to_have_count(0)
    page.get_by_label("progress").check()
    page.locator("#events-filter").fill("noisy")
    expect(page.locator("#events .event:not(:has-text('noisy'))")).to_have_count(0)
    page.locator("#events-hold").click()
    site.say("noisy", "ECHO:two")
    page.locator("#events-hold").click()
    expect(page.locator("#events .event", has_text="two").filter(has_text="done")).to_have_count(1)
    page.get_by_label("internals").uncheck()
    page.locator("#events-filter").fill("")
    page.locator("#events-filter").blur()


def test_scheduled_jobs_are_listed_run_at_a_press_switched_and_deleted(site: Site, open_page: OpenPage) -> None:
    site.call("cron.add", id="nightly", cron="0 7 1 1 *", text="ECHO:the report", session="reports", mode="isolated")
    page = open_page(site).page
    row = page.locator("#jobs li")
    expect(row).to_contain_text("nightly")
    expect(row.locator(".why")).to_contain_text("not run yet")
    row.get_by_role("button", name="Run now: nightly").click()
    expect(row.locator(".why")).to_contain_text("ok")
    row.get_by_role("button", name="nightly", exact=True).click()
    expect(page.locator("#dialog")).to_contain_text("ECHO:the report")
    for order, end in (("Disable", "off"), ("Enable", re.compile(r"^in \d+ \w"))):
        page.locator("#dialog").get_by_role("button", name=order).click()
        expect(row.locator(".end")).to_have_text(end)
        assert site.call("cron.get", id="nightly")["enabled"] == (order == "Enable")
        row.get_by_role("button", name="nightly", exact=True).click()
    page.locator("#dialog").get_by_role("button", name="Delete").click()
    page.locator("#dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("#jobs-panel")).to_be_hidden()
    assert site.call("cron.list")["total"] == 0


def test_a_profile_says_what_its_breaker_waits_for(page: Page, site: Site) -> None:
    site.say("profiled", "hello")
    mine = page.locator("#profiles li", has_text="main/default")
    expect(mine).to_have_attribute("data-state", "running")
    expect(mine.locator(".end")).to_contain_text("seen · ")
    broken = page.evaluate(
        """async () => {
            const { ProfilesView } = await import("/assets/profiles.js");
            const counts = { live: 0, starting: 0, warm: 0, min: 1, waiting: 2 };
            const trouble = { breaker: "open", retry_in: 29.2, last_error: "no such program" };
            const profiles = [{ profile: "p", agent: "a", role: "r", ...trouble, ...counts }];
            new ProfilesView({ status: { profiles }, sessions: new Map() }).draw();
            return document.querySelector("#profiles").innerText;
        }"""
    )
    lines = ["a/r", "0 workers · at least 1 · 2 waiting", "breaker open, next try in 30 s", "no such program"]
    assert broken.split() == " ".join(lines).split()


def test_a_chart_says_what_its_axes_mean_and_the_value_under_the_pointer(site: Site, page: Page) -> None:
    site.say("charted", "hello")
    chart = page.locator("#f-memory .chart")
    expect(chart.locator(".axis span")).to_have_text(["2 m ago", "now"])
    expect(chart.locator(".top")).to_have_text(re.compile(r"^\d+ MiB$"))
    box = chart.locator(".plot").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 10)
    expect(chart.locator(".tip")).to_have_text(re.compile(r"^\d+ MiB, (now|2.0 s ago)$"))
    page.mouse.move(box["x"] + 1, box["y"] + 10)
    expect(chart.locator(".tip")).to_have_text(re.compile("^nothing, 1 m 5?8 s ago$"))
    page.mouse.move(0, 0)
    expect(chart.locator(".tip")).to_be_hidden()


def test_a_worker_that_is_given_up_is_no_activity_of_its_session(page: Page) -> None:
    ages = page.evaluate(
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


def test_the_states_of_sessions_have_the_words_of_the_commands(page: Page) -> None:
    states = ["READY", "WORKING", "PAUSED", "LATER"]
    shown = page.evaluate(
        """async (states) => {
            const { Model } = await import("/assets/model.js");
            const model = new Model();
            const view = (state) => ({ key: state, agent: "a", role: "r", state, updated_at: 5, last_run: null });
            model.takeSessions(states.map(view), 0);
            const words = () => states.map((state) => model.shownState(state));
            const before = words();
            const waiting = states.map((session) => ({ session, why: "", position: 1, waited: 1 }));
            const gateway = { permissions: [], events: { last_seq: 0 }, lanes: { sessions: [] } };
            model.takeStatus({ workers: [], waiting, gateway }, 0);
            return [before, words()];
        }""",
        states,
    )
    assert shown == [[session_state(state, waits=waits) for state in states] for waits in (False, True)]


def test_a_line_about_a_call_has_its_command_as_text_also_where_it_is_cut(page: Page) -> None:
    lines = page.evaluate(
        r"""async () => {
            const { summarize } = await import("/assets/summary.js");
            const previews = [
                '{"command":"echo \\"a\\" \\u00e9"}', '{"command":"make te', '{"command":"x\\',
                '{"path":"a.py"}', '{"n":1}', '{"command":"\\q"}',
            ];
            const line = (each) => summarize("tool:start", { call: { name: "exec", input_preview: each } });
            return previews.map(line);
        }"""
    )
    assert lines == ['exec echo "a" é', "exec make te", "exec x", "exec a.py", 'exec {"n":1}', "exec "]


def test_a_list_that_is_older_than_the_end_of_a_session_does_not_bring_it_back(page: Page) -> None:
    known = page.evaluate(
        """async () => {
            const { Model } = await import("/assets/model.js");
            const model = new Model();
            const view = { key: "s", agent: "a", role: "r", state: "READY", updated_at: 5, last_run: null };
            model.takeSessions([view], 0);
            model.takeEvents([{ seq: 1, ts: 9, session: "s", type: "session_deleted", data: {} }]);
            const after = (asked) => (model.takeSessions([view], asked), model.sessions.has("s"));
            return [after(0), after(1)];
        }"""
    )
    assert known == [False, True]


def test_of_more_sessions_than_are_kept_the_one_that_was_used_longest_ago_goes(page: Page) -> None:
    gone = page.evaluate(
        """async () => {
            const { Model } = await import("/assets/model.js");
            const model = new Model();
            const all = { agent: "a", role: "r", state: "READY", last_run: null };
            const view = (_, n) => ({ key: `s${n}`, updated_at: 20_000 - n, ...all });
            model.takeSessions(Array.from({ length: 20_000 }, view), 0);
            model.takeEvents([{ seq: 1, ts: 30_000, session: "new", type: "done", data: {} }]);
            return ["s0", "s19999", "new"].filter((key) => !model.sessions.has(key));
        }"""
    )
    assert gone == ["s19999"]


def test_a_look_at_the_heartbeats_that_fails_hides_none(page: Page) -> None:
    kept = page.evaluate(
        """async () => {
            const { HeartbeatsView } = await import("/assets/heartbeats.js");
            const model = { status: { gateway: { autonomy: {} } }, heartbeats: null };
            const answers = [["a beat"], null];
            const view = new HeartbeatsView(model, { ask: async () => answers.shift(), mark: () => {} });
            await view.refresh();
            await view.refresh();
            return model.heartbeats;
        }"""
    )
    assert kept == ["a beat"]


def test_a_dialog_that_takes_the_place_of_another_waits_for_its_own_answer(page: Page) -> None:
    page.locator("#help").click()
    page.evaluate(
        """async () => {
            const { show } = await import("/assets/dialogs.js");
            window.answers = [];
            for (const name of ["first", "second"]) {
                show(name, [], [{ label: name, value: name }]).then((value) => window.answers.push(value));
            }
        }"""
    )
    page.locator("#dialog").get_by_role("button", name="second").click()
    page.wait_for_function("window.answers.length === 2")
    assert page.evaluate("window.answers") == [None, "second"]
    expect(page.locator("#dialog")).to_be_hidden()


def test_what_would_round_to_a_thousand_thousands_is_a_million(page: Page) -> None:
    shown = page.evaluate(
        """async (counts) => {
            const { count } = await import("/assets/format.js");
            return counts.map(count);
        }""",
        [0, 9_999, 12_345, 200_000, 999_949, 999_950, 4_500_000],
    )
    assert shown == ["0", "9999", "12.3 k", "200 k", "999.9 k", "1 M", "4.5 M"]


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.id || document.activeElement.className"))


def test_all_that_matters_is_done_with_the_keyboard_alone(site: Site, open_page: OpenPage) -> None:
    site.say("keys/one", "hello")
    page = open_page(site).page

    def press(*keys: str) -> None:
        for key in keys:
            page.keyboard.press(key)

    press("Tab")
    assert focused(page) == "skip"
    press("Enter")
    assert focused(page) == "workers-title"
    press("n")
    page.keyboard.type("ECHO:typed n ? and a as letters")
    press("Tab", "Tab", "Tab", "Control+a")
    page.keyboard.type("keys/two")
    press("Enter")
    expect(page.locator("#prompt")).to_be_focused()
    expect(page.locator("#history .said.assistant .text")).to_have_text(["typed n ? and a as letters"])
    press("Escape")
    expect(page.locator("#conversation")).to_be_hidden()
    assert focused(page) == "workers-title"
    press("/")
    page.keyboard.type("keys/")
    sessions = page.locator("#sessions .session")
    expect(sessions).to_have_count(2)
    press("Tab")
    if "session" not in focused(page).split():
        press("Tab")
    for key, at in (("ArrowDown", 1), ("ArrowDown", 1), ("Home", 0)):
        press(key)
        expect(sessions.nth(at)).to_be_focused()
    press("Enter")
    expect(page.locator("#conversation")).to_be_visible()
    press("Escape")
    expect(sessions.nth(0)).to_be_focused()
    run = site.begin("approved-by-key", 'TOOL:exec {"command": "echo done-by-key"} TELL', agent="careful")
    approve = page.get_by_role("button", name="Approve exec in approved-by-key")
    expect(approve).to_be_enabled()  # once the whole call is there; Tab passes over a disabled button
    press("a")
    page.keyboard.type("fine")
    press("Tab", "Tab", "Tab")
    expect(approve).to_be_focused()
    press("Enter")
    expect(page.locator("#approvals")).to_be_hidden()
    assert site.call("agent.wait", run_id=run)["text"].strip() == "done-by-key"


def test_letters_are_no_shortcuts_where_that_was_switched_off(visit: Visit, page: Page) -> None:
    page.keyboard.press("?")
    expect(page.locator("#dialog")).to_contain_text("Keyboard")
    page.get_by_label("Single letters are shortcuts").uncheck()
    page.keyboard.press("Escape")
    expect(page.locator("#dialog")).to_be_hidden()
    page.keyboard.press("?")
    expect(page.locator("#dialog")).to_be_hidden()
    page.locator("#help").click()
    expect(page.locator("#dialog")).to_be_visible()
    page.keyboard.press("Escape")


def test_whatever_has_the_focus_can_be_seen_to_have_it(page: Page) -> None:
    unseen = []
    for _ in range(25):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break  # once around
        style = page.evaluate(
            "(() => { const own = document.activeElement; const shown = own.closest('.chip')?.lastElementChild ?? own;"
            " const style = getComputedStyle(shown); return [own.id || own.className, style.outlineStyle,"
            " parseFloat(style.outlineWidth)]; })()"
        )
        if style[1] == "none" or style[2] < 2:
            unseen.append(style)
    assert unseen == []
