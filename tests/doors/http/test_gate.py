"""Who is let in: tokens, scopes, names of the server, pages of other sites, rates."""

import logging
import stat
from pathlib import Path
from typing import Any

import pytest
import trio

from doors.http.access import TokenIdentity, TokenRegistry
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
from tests.doors.http.conftest import Connect, Door, Open
from tests.doors.http.peer import TOKEN
from tests.doors.methods import FakeMethods
from tests.gateway.world import World

LOOKER = "a-token-that-may-only-look-around"
TALKER = "a-token-that-may-talk-to-agents-too"
TOKENS = {
    "grafana": HttpToken(token=LOOKER),
    "bot": HttpToken(token=TALKER, scope="write"),
    "ann": HttpToken(token="a-token-of-somebody-who-decides", approvals=True),
}


# --- tokens -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization",
    [
        *(" ", "Bearer", "Bearer ", "Basic " + TOKEN, TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"),
        *(f"Bearer {TOKEN.upper()}", f"Bearer {TOKEN}, Bearer {TOKEN}", "Bearer \u00ff\u00ff", "Bearer " + "x" * 3000),
    ],
)
async def test_without_the_right_token_nothing_is_told(
    door: Door, connect: Connect, methods: FakeMethods, authorization: str
) -> None:
    peer = await connect(door, token=None)
    for verb, path in (("POST", "/api/echo"), ("GET", "/status"), ("GET", "/events"), ("GET", "/metrics")):
        answer = await peer.call(verb, path, authorization=authorization.strip())
        assert (answer.status, answer.error["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert TOKEN not in answer.body.decode()
    assert methods.calls == []


async def test_health_and_readiness_are_for_everybody(open_door: Open, connect: Connect, world: World) -> None:
    peer = await connect(await open_door(world.methods), token=None)
    assert (await peer.call("GET", "/health")).json == {"status": "ok"}
    assert (await peer.call("GET", "/ready")).json == {"status": "ready"}


async def test_the_word_bearer_may_be_written_in_any_case(door: Door, connect: Connect) -> None:
    assert (await (await connect(door)).call("POST", "/api/echo", authorization=f"bEARER {TOKEN}")).status == 200


@pytest.fixture
async def door_with_tokens(open_door: Open, world: World) -> Door:
    return await open_door(world.methods, tokens=TOKENS)


@pytest.mark.parametrize(
    ("token", "method", "status"),
    [
        *((LOOKER, "status", 200), (LOOKER, "agent", 403), (LOOKER, "decide", 403), (LOOKER, "pause", 403)),
        *((TALKER, "agent", 200), (TALKER, "decide", 403), (TALKER, "shutdown", 403), (TALKER, "nothing", 403)),
        *((TOKENS["ann"].token, "decide", 400), (TOKENS["ann"].token, "agent", 403), (TOKEN, "decide", 400)),
        (TOKEN, "pause", 200),
    ],
)
async def test_a_token_may_do_what_its_scope_allows(
    door_with_tokens: Door, connect: Connect, token: str, method: str, status: int
) -> None:
    door = door_with_tokens
    params: dict[str, Any] = {"text": "hello", "session": "alice"} if method == "agent" else {}
    assert (await (await connect(door, token)).call("POST", f"/api/{method}", params)).status == status


async def test_every_method_that_has_a_scope_is_one_and_what_concerns_all_needs_admin(world: World) -> None:
    names = {name for name in world.methods.names if not name.startswith("attach")}
    assert {name for name in METHOD_SCOPES if not name.startswith("heartbeat.")} <= names
    assert names - set(METHOD_SCOPES) == ADMIN, "a new method needs admin until somebody has thought about it"
    assert names >= APPROVAL_METHODS


ADMIN = {
    *("workers.stop", "workers.recycle", "pause", "resume", "drain", "config.get", "logs.tail", "reload", "shutdown"),
    *("sessions.delete", "cron.add", "cron.remove", "cron.run"),
}


async def test_a_decision_is_told_with_the_name_of_its_token(open_door: Open, connect: Connect, world: World) -> None:
    door = await open_door(world.methods, tokens=TOKENS)
    await world.begin("ask c1")
    answer = await (await connect(door, TOKENS["ann"].token)).call(
        "POST", "/api/decide", {"call_id": "c1", "decision": "allow"}
    )
    assert answer.json["by"] == "ann"


def test_a_token_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    (first,) = load_grants(HttpSettings(), {}, tmp_path)
    assert len(first.token) >= 43, "32 bytes in letters"
    assert stat.S_IMODE((tmp_path / TOKEN_FILE).stat().st_mode) == 0o600
    assert load_grants(HttpSettings(), {}, tmp_path) == [first]
    assert [path.name for path in tmp_path.iterdir()] == [TOKEN_FILE]


def test_environment_comes_before_settings_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_text("in-a-file-of-the-settings\n")
    file.chmod(0o600)
    env = {TOKEN_VARIABLE: "in-the-environment-1"}
    assert load_grants(HttpSettings(token="in-the-settings-1"), env, tmp_path)[0].token == "in-the-environment-1"
    assert load_grants(HttpSettings(token="in-the-settings-1"), {}, tmp_path)[0].token == "in-the-settings-1"
    assert load_grants(HttpSettings(token_file=str(file)), {}, tmp_path)[0].token == "in-a-file-of-the-settings"
    assert find_token_source(HttpSettings(token_file=str(file)), {}, tmp_path).file == file


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        ("0123456789abcdef", 0o644, "chmod 600"),
        ("0123456789abcdef", 0o620, "chmod 600"),
        ("brief!", 0o600, "too short"),
        ("", 0o600, "too short"),
        ("with a space and so on", 0o600, "no token"),
        ("zw\u00f6lf Zeichen sind es", 0o600, "no token"),
        ("x" * 5000, 0o600, "no token"),
    ],
)
def test_a_file_that_is_no_secret_token_is_refused_and_not_shown(
    tmp_path: Path, content: str, mode: int, words: str
) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(mode)
    with pytest.raises(UsageError) as refused:
        load_grants(HttpSettings(token_file=str(file)), {}, tmp_path)
    assert words in refused.value.message
    assert str(file) in refused.value.message
    assert not content or content not in refused.value.message


def test_a_token_file_that_is_not_there_and_a_token_given_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the token file"):
        load_grants(HttpSettings(token_file=str(tmp_path / "nowhere")), {}, tmp_path)
    with pytest.raises(UsageError, match="the same"):
        load_grants(HttpSettings(token=LOOKER, tokens={"other": HttpToken(token=LOOKER)}), {}, tmp_path)


def test_only_what_holds_still_is_somebody(tmp_path: Path) -> None:
    access = TokenRegistry(load_grants(HttpSettings(token=TOKEN, tokens=TOKENS), {}, tmp_path))
    bot, ann = access.authenticate(TALKER), access.authenticate(TOKENS["ann"].token)
    assert isinstance(bot, TokenIdentity)
    assert isinstance(ann, TokenIdentity)
    changed = {"bot": HttpToken(token=TALKER, scope="admin"), "ann": TOKENS["ann"]}
    access.set_grants(load_grants(HttpSettings(token=TOKEN, tokens=changed), {}, tmp_path))
    assert (access.is_valid(bot), access.is_valid(ann)) == (False, True)
    assert access.authenticate("\ud800" * 20) is None, "a text from JSON may be anything"


async def test_a_token_that_is_taken_away_ends_what_it_had_open(
    open_door: Open, connect: Connect, world: World
) -> None:
    door = await open_door(world.methods, tokens=TOKENS)
    looker, owner = await connect(door, LOOKER), await connect(door)
    await looker.open("/events")
    await owner.open("/events")
    settings = door.server.services.settings
    door.server.prepare(HttpSettings(bind=settings.bind, token=TOKEN, tokens={"bot": TOKENS["bot"]}))()
    assert await looker.is_closed()
    assert (await (await connect(door, LOOKER)).call("GET", "/status")).status == 401
    assert (await owner.message() or {})["event"] == "open"


async def test_settings_with_a_token_that_cannot_be_change_nothing(door: Door, connect: Connect) -> None:
    with pytest.raises(UsageError):
        door.server.prepare(HttpSettings(token_file="/nowhere/at/all"))
    assert (await (await connect(door)).call("POST", "/api/echo")).status == 200


async def test_other_limits_hold_for_what_comes_after_a_reload(door: Door, connect: Connect) -> None:
    peer = await connect(door)
    assert (await peer.call("POST", "/api/echo", {"text": "x" * 5000})).status == 200
    door.server.prepare(HttpSettings(token=TOKEN, max_body=1024))()  # type: ignore[arg-type]  # a number is one
    assert (await peer.call("POST", "/api/echo", {"text": "x" * 5000})).status == 413


# --- hosts and origins ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(
            ("localhost", 200),
            ("LOCALHOST:1", 200),
            ("127.0.0.1", 200),
            ("pool.example", 200),
            ("POOL.example:80", 200),
        ),
        *(("evil.example", 421), ("localhost.evil.example", 421), ("127.0.0.1.evil.example", 421), ("127.0.0.2", 421)),
        *(("user@localhost", 421), ("[::1]", 421), ("0", 421), ("local host", 421), ("localhost:port", 421)),
    ],
)
async def test_a_name_that_somebody_else_has_pointed_here_is_not_answered(
    open_door: Open, connect: Connect, host: str, status: int
) -> None:
    peer = await connect(await open_door(allowed_hosts=["pool.example"]))
    assert (await peer.call("POST", "/api/echo", host=host)).status == status


async def test_a_request_that_names_no_host_is_refused(door: Door, connect: Connect) -> None:
    peer = await connect(door)
    await peer.send_raw(f"GET /health HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    assert b" 421 " in bytes(await peer.stream.receive_some())


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        *(("http://{host}", 200), ("https://ops.example", 200), ("https://OPS.example:443", 200)),
        *(("http://evil.example", 403), ("null", 403), ("http://ops.example", 403), ("https://ops.example.evil", 403)),
        *(("http://127.0.0.1", 403), ("https://ops.example:444", 403), ("file://", 403), ("http://{host}@evil", 403)),
    ],
)
async def test_a_page_of_another_site_may_not_call(
    open_door: Open, connect: Connect, methods: FakeMethods, origin: str, status: int
) -> None:
    peer = await connect(await open_door(allowed_origins=["https://ops.example"]))
    answer = await peer.call("POST", "/api/echo", origin=origin.format(host=peer.host))
    assert answer.status == status
    assert ("access-control-allow-origin" in answer.headers) == (status == 200)
    assert len(methods.calls) == (status == 200)


async def test_a_browser_may_ask_first_for_a_site_that_is_allowed(open_door: Open, connect: Connect) -> None:
    peer = await connect(await open_door(allowed_origins=["https://ops.example"]), token=None)
    asks = {"access_control_request_method": "POST", "origin": "https://ops.example"}
    answer = await peer.call("OPTIONS", "/api/echo", **asks)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "https://ops.example")
    assert answer.headers["access-control-allow-headers"] == "authorization, *", "the star alone would leave it out"
    assert (await peer.call("OPTIONS", "/api/echo", **{**asks, "origin": "https://evil.example"})).status == 403


async def test_every_answer_has_the_headers_that_keep_browsers_from_guessing(door: Door, connect: Connect) -> None:
    headers = (await (await connect(door)).call("GET", "/health")).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


# --- rates and the log ------------------------------------------------------------------------------------------------


async def test_too_many_requests_of_one_token_do_not_take_the_turns_of_another(
    open_door: Open, connect: Connect
) -> None:
    door = await open_door(tokens=TOKENS, rate=1)
    bot, owner, nobody = await connect(door, TALKER), await connect(door), await connect(door, None)
    served, began = 0, trio.current_time()
    while (answer := await bot.call("GET", "/health")).status == 200:
        served += 1
        assert served <= 2 + (trio.current_time() - began)
    assert served >= 2
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    assert (await owner.call("GET", "/health")).status == 200
    assert (await nobody.call("GET", "/health")).status == 200


async def test_who_guesses_tokens_is_slowed_down_and_fills_no_log(
    open_door: Open, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    door = await open_door(rate=5)
    guesser = await connect(door, "guess-number-0000000")
    with caplog.at_level(logging.INFO, "pool.http"):
        statuses = [401]
        while statuses[-1] != 429:
            statuses.append((await guesser.call("GET", "/status")).status)
    assert set(statuses) == {401, 429}
    assert (await (await connect(door)).call("POST", "/api/echo")).status == 200
    assert len(caplog.records) == 2, "one line of each kind"
    assert "guess-number" not in caplog.text


async def test_no_token_comes_into_the_log(door: Door, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        peer = await connect(door)
        await peer.call("POST", "/api/crash", {})
        await peer.call("GET", f"/events?token={TOKEN}")
        await peer.call("GET", "/status", authorization=f"Basic {TOKEN}")
    assert "POST /api/crash 500" in caplog.text
    assert TOKEN not in caplog.text
