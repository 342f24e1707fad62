"""Who is let in: tokens, scopes, names of the server, pages of other sites, rates."""

import logging
import stat
from pathlib import Path
from typing import Any

import pytest
import trio

from doors.http.access import TokenRegistry
from doors.http.settings import HttpSettings, HttpToken
from doors.http.tokens import (
    APPROVAL_METHODS,
    METHOD_SCOPES,
    TOKEN_FILE,
    TOKEN_VARIABLE,
    find_token_source,
    load_grants,
)
from errors import UsageError
from tests.doors.http.conftest import Door, Open
from tests.doors.http.peer import TOKEN
from tests.doors.methods import FakeMethods
from tests.gateway.world import World

LOOKER = "a-token-that-may-only-look-around"
TALKER = "a-token-that-may-talk-to-agents-too"
DECIDER = "a-token-of-somebody-who-decides"
TOKENS = {
    "grafana": HttpToken(token=LOOKER),
    "bot": HttpToken(token=TALKER, scope="write"),
    "ann": HttpToken(token=DECIDER, approvals=True),
}


@pytest.mark.parametrize(
    "authorization",
    [
        *("", "Bearer", "Bearer ", "Basic " + TOKEN, TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"),
        *(f"Bearer {TOKEN.upper()}", f"Bearer {TOKEN}, Bearer {TOKEN}", "Bearer \u00ff\u00ff", "Bearer " + "x" * 3000),
    ],
)
async def test_without_the_right_token_nothing_is_told(door: Door, methods: FakeMethods, authorization: str) -> None:
    for verb, path in (("POST", "/api/echo"), ("GET", "/status"), ("GET", "/events"), ("GET", "/metrics")):
        answer = await door.call(verb, path, token=None, authorization=authorization.strip())
        assert (answer.status, answer.error["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert TOKEN not in answer.body.decode()
    assert methods.calls == []
    assert (await door.call("POST", "/api/echo", authorization=f"bEARER {TOKEN}")).status == 200, "in any case"


@pytest.mark.parametrize(
    ("token", "statuses"),
    [
        (LOOKER, {"status": 200, "agent": 403, "decide": 403, "pause": 403}),
        (TALKER, {"agent": 200, "decide": 403, "shutdown": 403, "nothing": 403}),
        (DECIDER, {"decide": 400, "agent": 403}),
        (TOKEN, {"decide": 400, "pause": 200}),
    ],
)
async def test_a_token_may_do_what_its_scope_allows(
    open_door: Open, world: World, token: str, statuses: dict[str, int]
) -> None:
    door = await open_door(world.methods, tokens=TOKENS)
    for method, status in statuses.items():
        params: dict[str, Any] = {"text": "hello", "session": "alice"} if method == "agent" else {}
        assert (await door.call("POST", f"/api/{method}", params, token=token)).status == status, method


async def test_every_method_that_has_a_scope_is_one_and_what_concerns_all_needs_admin(world: World) -> None:
    names = {name for name in world.methods.names if not name.startswith("attach")}
    assert {name for name in METHOD_SCOPES if not name.startswith("heartbeat.")} <= names
    assert names - set(METHOD_SCOPES) == ADMIN, "a new method needs admin until its scope was decided"
    assert names >= APPROVAL_METHODS


ADMIN = {
    *("workers.stop", "workers.recycle", "pause", "resume", "drain", "config.get", "logs.tail", "reload", "shutdown"),
    *("logs.list", "logs.read", "logs.watch", "restart", "scale", "nodes.drain", "nodes.resume"),
    *("sessions.delete", "sessions.open", "cron.add", "cron.delete", "cron.run", "cron.enable", "cron.disable"),
    "process.write",
}


async def test_a_decision_is_told_with_the_name_of_its_token(open_door: Open, world: World) -> None:
    door = await open_door(world.methods, tokens=TOKENS)
    await world.begin("ask c1")
    answer = await door.call("POST", "/api/decide", {"call_id": "c1", "decision": "allow"}, token=DECIDER)
    assert answer.json["by"] == "ann"


def test_a_token_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    (first,) = load_grants(HttpSettings(), {}, tmp_path)
    assert len(first.token) >= 43, "32 bytes in letters"
    assert stat.S_IMODE((tmp_path / TOKEN_FILE).stat().st_mode) == 0o600
    assert load_grants(HttpSettings(), {}, tmp_path) == [first]
    assert [path.name for path in tmp_path.iterdir()] == [TOKEN_FILE]


def write_token(path: Path, content: str) -> HttpSettings:
    path.write_text(content)
    path.chmod(0o600)
    return HttpSettings(token_file=str(path))


def test_environment_comes_before_settings_before_the_file(tmp_path: Path) -> None:
    env, in_settings = {TOKEN_VARIABLE: "in-the-environment-1"}, HttpSettings(token="in-the-settings-1")
    in_file = write_token(tmp_path / "mine", "in-a-file-of-the-settings\n")
    assert load_grants(in_settings, env, tmp_path)[0].token == "in-the-environment-1"
    assert load_grants(in_settings, {}, tmp_path)[0].token == "in-the-settings-1"
    assert load_grants(in_file, {}, tmp_path)[0].token == "in-a-file-of-the-settings"
    assert find_token_source(in_file, {}, tmp_path).file == tmp_path / "mine"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        *(("brief!", "too short"), ("", "too short"), ("with a space and so on", "no token")),
        *(("zw\u00f6lf Zeichen sind es", "no token"), ("x" * 5000, "no token")),
    ],
)
def test_a_file_that_holds_no_token_is_refused_and_not_shown(tmp_path: Path, content: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        load_grants(write_token(tmp_path / "token", content), {}, tmp_path)
    assert str(tmp_path / "token") in refused.value.message
    assert not content or content not in refused.value.message


def test_a_token_file_that_is_not_there_and_a_token_given_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the token file"):
        load_grants(HttpSettings(token_file=str(tmp_path / "nowhere")), {}, tmp_path)
    with pytest.raises(UsageError, match="the same"):
        load_grants(HttpSettings(token=LOOKER, tokens={"other": HttpToken(token=LOOKER)}), {}, tmp_path)


def test_an_identity_holds_until_its_token_or_its_rights_change(tmp_path: Path) -> None:
    access = TokenRegistry(load_grants(HttpSettings(token=TOKEN, tokens=TOKENS), {}, tmp_path))
    bot, ann = access.authenticate(TALKER), access.authenticate(DECIDER)
    assert bot is not None
    assert ann is not None
    changed = {"bot": HttpToken(token=TALKER, scope="admin"), "ann": TOKENS["ann"]}
    access.set_grants(load_grants(HttpSettings(token=TOKEN, tokens=changed), {}, tmp_path))
    assert (access.is_valid(bot), access.is_valid(ann)) == (False, True)
    assert access.authenticate("\ud800" * 20) is None, "a text from JSON may be anything"


async def test_a_token_that_is_taken_away_ends_what_it_had_open(open_door: Open, world: World) -> None:
    door = await open_door(world.methods, tokens=TOKENS)
    looker, owner = await door.connect(LOOKER), await door.connect()
    await looker.open("/events")
    await owner.open("/events")
    settings = door.server.services.settings
    door.server.prepare(HttpSettings(bind=settings.bind, token=TOKEN, tokens={"bot": TOKENS["bot"]}))()
    assert await looker.is_closed()
    assert (await door.call("GET", "/status", token=LOOKER)).status == 401
    assert (await owner.message() or {})["event"] == "open"


async def test_a_reload_changes_the_limits_and_refused_settings_change_nothing(door: Door) -> None:
    large = {"text": "x" * 5000}
    with pytest.raises(UsageError):
        door.server.prepare(HttpSettings(token_file="/nowhere/at/all"))
    assert (await door.call("POST", "/api/echo", large)).status == 200
    door.server.prepare(HttpSettings(token=TOKEN, max_body=1024))()  # type: ignore[arg-type]  # a number is one
    assert (await door.call("POST", "/api/echo", large)).status == 413
    door.server.prepare(HttpSettings(token=TOKEN, rate=1))()
    statuses = [(await door.call("GET", "/health")).status for _ in range(4)]
    assert (statuses[0], statuses[-1]) == (200, 429)


async def test_a_browser_may_ask_first_for_a_site_that_is_allowed(open_door: Open) -> None:
    door = await open_door(allowed_origins=["https://ops.example"])
    asks = {"access_control_request_method": "POST", "origin": "https://ops.example"}
    answer = await door.call("OPTIONS", "/api/echo", token=None, **asks)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "https://ops.example")
    assert answer.headers["access-control-allow-headers"] == "authorization, *", "the star alone would leave it out"
    refused = await door.call("OPTIONS", "/api/echo", token=None, **{**asks, "origin": "https://evil.example"})
    assert refused.status == 403
    answer = await door.call("POST", "/api/echo", origin="https://OPS.example:443")
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "https://OPS.example:443")
    own = f"http://{door.url.removeprefix('http://')}"
    assert (await door.call("POST", "/api/echo", origin=own)).status == 200
    peer = await door.connect()
    await peer.send_raw(f"GET /health HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    assert b" 421 " in bytes(await peer.stream.receive_some()), "a request that names no host"


async def test_too_many_requests_of_one_token_do_not_take_the_turns_of_another(open_door: Open) -> None:
    door = await open_door(tokens=TOKENS, rate=1)
    served, began = 0, trio.current_time()
    while (answer := await door.call("GET", "/health", token=TALKER)).status == 200:
        served += 1
        assert served <= 2 + (trio.current_time() - began)
    assert served >= 2
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    assert (await door.call("GET", "/health")).status == 200
    assert (await door.call("GET", "/health", token=None)).status == 200


async def test_who_guesses_tokens_is_slowed_down_and_fills_no_log(
    open_door: Open, caplog: pytest.LogCaptureFixture
) -> None:
    door = await open_door(rate=5)
    statuses = [401]
    with caplog.at_level(logging.INFO, "pool.http"):
        while statuses[-1] != 429:
            statuses.append((await door.call("GET", "/status", token="guess-number-0000000")).status)
    assert set(statuses) == {401, 429}
    assert (await door.call("POST", "/api/echo")).status == 200
    assert len(caplog.records) == 2, "one line of each kind"
    assert "guess-number" not in caplog.text


async def test_no_token_comes_into_the_log(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await door.call("POST", "/api/crash", {})
        await door.call("GET", f"/events?token={TOKEN}")
        await door.call("GET", "/status", authorization=f"Basic {TOKEN}")
    assert "POST /api/crash 500" in caplog.text
    assert TOKEN not in caplog.text
