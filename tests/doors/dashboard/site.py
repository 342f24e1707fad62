"""A supervisor with the HTTP door open, and a page of its dashboard in a browser."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from app.child import SupervisorProcess

TOKEN = "a-token-of-the-tests-0123456789"

expect.set_options(timeout=10_000)

SETTINGS = """
[pool]
min = 1
max = 4
worker_memory = "100MB"
[http]
bind = "127.0.0.1:{port}"
token = "{token}"
[agents.main]
workspace = "{folder}"
[agents.careful]
workspace = "{folder}"
permission_mode = "approval"
"""


class Site:
    """A running supervisor, as somebody with its token sees it over HTTP."""

    def __init__(self, supervisor: SupervisorProcess) -> None:
        self.supervisor = supervisor
        with supervisor.connect() as client:
            self.url = str(client.call("status")["supervisor"]["http"]["url"])
        self.port = int(self.url.rpartition(":")[2])
        self.pid = supervisor.pid

    def call(self, method: str, **params: Any) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(connection):
            headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
            connection.request("POST", f"/api/{method}", json.dumps(params), headers)
            answer = connection.getresponse()
            body = json.loads(answer.read())
        assert answer.status == 200, body
        return body

    def say(self, session: str, text: str, **more: Any) -> Any:
        """Send a prompt and wait for what comes of it."""
        run = self.begin(session, text, **more)
        return self.call("agent.wait", run_id=run, timeout_ms=15_000)

    def begin(self, session: str, text: str, **more: Any) -> str:
        """Send a prompt; the id of the run."""
        return str(self.call("agent", session=session, text=text, **more)["run_id"])

    def worker_of(self, session: str) -> dict[str, Any]:
        """The worker that has the session."""
        workers: list[dict[str, Any]] = self.call("status")["workers"]
        return next(worker for worker in workers if worker["session"] == session)


@contextlib.contextmanager
def running_site(folder: Path, port: int = 0, settings: str = "") -> Iterator[Site]:
    """A supervisor of the bundled agent, its data in ``folder``; with a port it comes back where another was.

    ``settings``: the text of a settings file with that token.
    """
    settings = settings or SETTINGS.format(port=port, token=TOKEN, folder=folder)
    with SupervisorProcess(folder, settings) as supervisor:
        yield Site(supervisor)


_WINDOW: dict[str, Any] = {"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce"}
"""What moves costs a processor: only the test of motion asks for it."""


class Visit:
    """A page of the dashboard in a browser profile of its own, and all that it has asked for."""

    def __init__(self, browser: Browser, site: Site, *, sign_in: bool, **options: Any) -> None:
        self.site = site
        self.requested: list[str] = []
        self.trouble: list[str] = []
        self._is_closed = False
        self.context = browser.new_context(**{**_WINDOW, **options})
        self.page: Page = self.context.new_page()
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("console", self._note_console)
        self.page.goto(f"{site.url}/#token={TOKEN}" if sign_in else site.url)
        if sign_in:
            expect(self.page.locator("#link-text")).to_have_text("Live")

    def open_session(self, key: str) -> None:
        self.page.locator("#sessions button", has=self.page.get_by_text(key, exact=True)).click()
        expect(self.page.locator("#conversation-title")).to_have_text(key)

    def send(self, text: str) -> None:
        self.page.locator("#prompt").fill(text)
        self.page.locator("#composer button[type=submit]").click()

    def close(self) -> None:
        """Look back at what the page did; a page that is closed already has been looked at."""
        if self._is_closed:
            return
        self._is_closed = True
        self.context.close()
        foreign = [url for url in self.requested if urlsplit(url).netloc != urlsplit(self.site.url).netloc]
        assert foreign == [], "the page asked others than its own server"
        assert [url for url in self.requested if TOKEN in url] == [], "the token was part of an address"
        assert self.trouble == []

    def _note_console(self, message: ConsoleMessage) -> None:
        """What the page itself says; that a server could not be reached is no defect of the page's."""
        if message.type == "error" and "net::" not in message.text and "Failed to load resource" not in message.text:
            self.trouble.append(message.text)
