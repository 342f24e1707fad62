"""The pictures in the README: a real supervisor whose agents are at work, and a model that plays a part.

``python -m tests.doors.dashboard.portrait`` takes them once more, light and dark.
"""

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

from playwright.sync_api import expect

from fixtures.fake_openai import Handler, serving
from fixtures.fake_openai_plan import Call, Json, Plan, text_of, user_texts
from tests.commands.picture import DARK, LIGHT, Palette, draw_screen
from tests.commands.terminal import TerminalProgram, on_a_terminal
from tests.doors.dashboard.chromium import chromium
from tests.doors.dashboard.halting import agent_settings
from tests.doors.dashboard.site import TOKEN, Site, Visit, running_site

DOCS = Path(__file__).parents[3] / "docs"
COLUMNS = 112
Scheme = Literal["light", "dark"]
PALETTES: dict[Scheme, Palette] = {"light": LIGHT, "dark": DARK}
PICTURES = {scheme: DOCS / f"dashboard-{scheme}.png" for scheme in PALETTES}
SCREENS = {name: {scheme: DOCS / f"{name}-{scheme}.svg" for scheme in PALETTES} for name in ("top", "chat")}
Pictures = dict[Scheme, str]
"""SVG by colour scheme."""
SIZE = {"width": 1280, "height": 860}
ROUNDS = 45

SETTINGS = """
pool = {{ min = 1, max = 5, drain_timeout = 0.1, worker_memory = "100MB" }}
http = {{ bind = "127.0.0.1:0", token = "{token}" }}
[agents.main]
{model}
heartbeat.every = "5m"
[agents.careful]
{model}
permission_mode = "approval"
"""
WHY = """The test passes from Tuesday to Sunday, so I looked for what knows the weekday.

`discounts.py` builds the week with `strftime("%W")`, which counts weeks from Monday: on a Monday the coupon of last \
week is one week too old, and the basket comes out 5.00 too dear. The fixture was recorded on a Wednesday and never \
noticed.

I would compare dates rather than week numbers, and let the test freeze the clock on a Monday as well. The change is \
four lines; shall I make it? Meanwhile I am checking who else uses week numbers."""

SLOW = """Three of them take **41 of 58 seconds**:

1. `test_import_whole` reads 2 GB of fixtures: 19 s
2. `test_retry_after` waits for a real clock: 15 s
3. `test_render_pages` starts a browser for each page: 7 s

The first two need no more than a smaller file and a clock that is passed in."""

_TESTS = 'for n in $(seq 1 400); do echo "tests/test_api.py::test_case_$n PASSED"; sleep 0.4; done'
_SERVER = "while :; do echo 'GET /docs/guide.html 200'; sleep 2; done"


def _exec(command: str, **more: object) -> Plan:
    return Plan(calls=[Call("exec", json.dumps({"command": command, **more}))])


PARTS: dict[str, list[Plan]] = {
    "What changed since the last release?": [
        Plan(
            pieces=["Eleven commits: ", "the new importer, ", "two fixes of the cache, ", "and documentation."],
            delay=0.1,
        )
    ],
    "Why does the checkout test fail on Mondays?": [
        Plan(pieces=[f"{word} " for word in WHY.split(" ")], delay=0.02, ending="hang")
    ],
    "Run the API tests and tell me.": [_exec(_TESTS, yield_ms=120_000)],
    "Serve the docs here while I read them.": [
        _exec(_SERVER, background=True),
        Plan(pieces=["They are at http://localhost:8000; ", "I keep an eye on the log."]),
    ],
    "Which tests are slow?": [Plan(pieces=[f"{word} " for word in SLOW.split(" ")])],
    "Tag the release and push it.": [_exec("git tag v2.4.0 && git push origin v2.4.0")],
    "Rename the table, in small steps.": [Plan(pieces=["First the readers, then the writers. "] * 2000, delay=0.3)],
}
"""What is said, and what the model does at each step of its answer; anything else ends it."""


class _Actor(Handler):
    def do_POST(self) -> None:  # noqa: N802  # the name that the server calls
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        messages: list[Json] = body["messages"]
        asked = user_texts(messages)[-1]
        begin = max(at for at, message in enumerate(messages) if text_of(message.get("content")) == asked)
        step = sum(message["role"] == "assistant" for message in messages[begin:])
        steps = PARTS[asked]
        self.stream(body, steps[step] if step < len(steps) else Plan(pieces=["Done."]), asked)


@contextlib.contextmanager
def company(folder: Path) -> Iterator[Site]:
    """A supervisor, and the model that its agents ask."""
    with serving() as model:
        model.RequestHandlerClass = _Actor
        settings = SETTINGS.format(token=TOKEN, model=agent_settings(folder, model.url))
        with running_site(folder, settings=settings) as site:
            yield site


def pose(site: Site, visit: Visit, rounds: int = ROUNDS) -> None:
    """All at work, each at something else; ``rounds`` turns come before it, so that there are figures."""
    page = visit.page
    site.say("alice", "Serve the docs here while I read them.")
    site.begin("api", "Run the API tests and tell me.")
    for _ in range(rounds):
        site.say("release notes", "What changed since the last release?")
    site.begin("release", "Tag the release and push it.", agent="careful")
    expect(page.locator(".approval")).to_contain_text("git push")
    site.begin("telegram:bob", "Rename the table, in small steps.")
    site.begin("shop/checkout", "Why does the checkout test fail on Mondays?")
    site.begin("nightly", "What changed since the last release?")
    expect(page.locator("#waiting li")).to_have_count(1)
    visit.open_session("shop/checkout")
    expect(page.locator("#history [data-live] .text")).to_contain_text("who else uses")
    expect(page.locator("#workers .tile")).to_have_count(5)
    expect(page.locator("#background li")).to_have_count(1)


def watch(site: Site) -> Pictures:
    """``pool top`` beside the same agents."""
    with _terminal(site, 36, "top") as top:
        top.read_until_shown("shop/checkout", "telegram:bob", "q quit", "run:accepted")
        pictures = _pictures(top, "pool top: workers, waiting requests, sessions and events in a terminal")
        top.press("q")
        top.read_until("\x1b[?1049l")
        top.process.wait()
    return pictures


def chat(site: Site) -> Pictures:
    """``pool chat``: an answer, and a call that a person is asked about."""
    with _terminal(site, 20, "chat", "-s", "release", "-a", "careful") as program:
        program.read_until_shown("idle")
        program.press("Which tests are slow?\r")
        program.read_until_shown("that is passed in.", "idle")
        program.press("Tag the release and push it.\r")
        program.read_until_shown("git push origin", "y Allow", "approval ·")
        pictures = _pictures(program, "pool chat: an answer, and a call that waits for approval")
        program.press("n\r")
        program.read_until_shown("Done.", "idle")
        program.press("\x04")
        program.read_until("come back with")
        program.process.wait()
    return pictures


def _terminal(site: Site, rows: int, *command: str) -> AbstractContextManager[TerminalProgram]:
    line = [sys.executable, "-m", "cli", *command, "--socket", str(site.supervisor.socket)]
    return on_a_terminal(line, columns=COLUMNS, rows=rows, XDG_STATE_HOME=str(site.supervisor.data_dir), NO_COLOR="")


def _pictures(program: TerminalProgram, title: str) -> Pictures:
    return {scheme: draw_screen(program.screen, palette, title) for scheme, palette in PALETTES.items()}


def main() -> int:
    """Take the pictures."""
    with _company() as site, chromium() as browser:
        visit = Visit(browser, site, sign_in=True, viewport=SIZE)
        pose(site, visit)
        for scheme, path in PICTURES.items():
            visit.page.emulate_media(color_scheme=scheme)
            visit.page.screenshot(path=path, animations="disabled")
        visit.close()
        shown = {"top": watch(site)}
    with _company() as site:
        shown["chat"] = chat(site)
    for name, pictures in shown.items():
        for scheme, picture in pictures.items():
            SCREENS[name][scheme].write_text(picture)
    for path in [*PICTURES.values(), *(path for each in SCREENS.values() for path in each.values())]:
        print(f"{path.name}: {path.stat().st_size // 1000} kB")  # noqa: T201  # it is a script
    return 0


@contextlib.contextmanager
def _company() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="pool-") as folder, company(Path(folder)) as site:
        yield site


if __name__ == "__main__":
    sys.exit(main())
