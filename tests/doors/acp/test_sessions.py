"""Sessions of the editor: opened, loaded, resumed, listed, closed; what the pool is asked for each."""

from typing import Any

import pytest

from doors.acp.methods import MAX_SESSIONS
from doors.acp.session import SUBSCRIBED_KINDS
from doors.control.connection import ControlLimits
from tests.doors.acp.talk import OPENED, Talk, refusal, text

FOLLOWED = {"session": "acp-1", "kinds": list(SUBSCRIBED_KINDS), "since": 7}


def test_initialize_needs_no_supervisor_and_says_what_there_is() -> None:
    talk = Talk(initialized=False)
    talk.send("initialize", protocolVersion=2)
    assert talk.answered()["result"] == {
        "protocolVersion": 1,
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": False, "sse": False},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
        },
        "agentInfo": {"name": "agent-pool", "title": "Agent pool", "version": "1.0"},
        "authMethods": [],
        "_meta": {"steering": {"supported": True}},
    }
    assert not talk.machine.needs_pool


def test_a_new_session_is_opened_in_the_editors_directory_and_followed_before_it_is_answered() -> None:
    talk = Talk(agent="ops", role="coder")
    talk.send("session/new", cwd="/p", mcpServers=[])
    assert talk.asked() == [("sessions.open", {"cwd": "/p", "agent": "ops", "role": "coder", "mcp_servers": []})]
    talk.answer({**OPENED, "head": 7, "pending": []})
    assert talk.asked() == [("subscribe", FOLLOWED)]
    assert talk.told() == []
    talk.answer({"subscription": "s1", "head": 7, "complete": True})
    answer = talk.answered()["result"]
    assert (answer["sessionId"], "_meta" in answer) == ("acp-1", False)
    assert [option["id"] for option in answer["configOptions"]] == ["model", "thought_level"]


def test_the_first_new_session_has_the_key_of_the_command_line_and_the_next_ones_have_not() -> None:
    talk = Talk(session="mine")
    talk.send("session/new", cwd="/p", mcpServers=[])
    assert talk.asked() == [("sessions.open", {"cwd": "/p", "session": "mine", "mcp_servers": []})]
    talk.refuse("usage", "session mine works in /q, not in /p; open it there", session="mine", cwd="/q")
    assert refusal(talk.answered()) == (-32602, "session mine works in /q, not in /p; open it there")
    talk.send("session/new", cwd="/q", mcpServers=[])
    assert talk.asked() == [("sessions.open", {"cwd": "/q", "session": "mine", "mcp_servers": []})]
    talk.answer({**OPENED, "session": "mine"})
    talk.answer({"subscription": "s1"})
    talk.send("session/new", cwd="/q", mcpServers=[])
    assert talk.asked() == [("sessions.open", {"cwd": "/q", "mcp_servers": []})]


STDIO = {"name": "files", "command": "mcp-files", "args": ["-v"], "env": [{"name": "KEY", "value": "s3cret"}]}
HTTP = {"type": "http", "name": "docs", "url": "http://x", "headers": [{"name": "Authorization", "value": "s3cret"}]}


def test_mcp_servers_are_declared_at_each_opening_and_again_to_another_supervisor() -> None:
    talk = Talk()
    talk.send("session/new", cwd="/p", mcpServers=[{**STDIO, "_meta": {}, "type": "stdio"}, HTTP])
    assert talk.asked() == [("sessions.open", {"cwd": "/p", "mcp_servers": [STDIO, HTTP]})]
    talk.answer({**OPENED})
    talk.answer({"subscription": "s1"})
    assert "_meta" not in talk.answered()["result"]
    for method in ("session/load", "session/resume"):
        talk.asked()
        talk.send(method, sessionId="acp-1", cwd="/p", mcpServers=[HTTP])
        ((_, opening),) = talk.asked()
        assert opening["mcp_servers"] == [HTTP]
        talk.answer({**OPENED})
        if method == "session/load":
            talk.answer({"session": "acp-1", "messages": []})
    talk.lose("gone")
    talk.machine.on_connected()
    ((_, opening),) = talk.asked()
    assert opening["mcp_servers"] == [HTTP]


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ({}, "Expected `array`, got `object` - at `$.mcpServers`"),
        ([{"command": "x"}], "missing required field `name` - at `$.mcpServers[0]`"),
        ([STDIO, {"name": "x", "args": []}], "a server of type stdio has a name and a member command - at `$.mcpS"),
        ([{**HTTP, "url": ""}], "a server of type http has a name and a member url - at `$.mcpServers[0]`"),
        ([{**STDIO, "type": "pigeon"}], "Invalid enum value 'pigeon' - at `$.mcpServers[0].type`"),
        ([{**STDIO, "env": [{"name": "KEY", "value": 5}]}], "got `int` - at `$.mcpServers[0].env[0].value`"),
        ([STDIO] * 33, "Expected `array` of length <= 32 - at `$.mcpServers`"),
        ([{**STDIO, "args": ["x" * 65_536]}], "params.mcpServers: the servers have 65,6"),
    ],
)
def test_wrong_mcp_servers_are_refused_by_the_name_of_the_member(servers: Any, words: str) -> None:
    talk = Talk()
    for method, more in (("session/new", {}), ("session/load", {"sessionId": "acp-1"})):
        talk.send(method, cwd="/p", mcpServers=servers, **more)
        code, said = refusal(talk.answered())
        assert code == -32602
        assert words in said
        assert "s3cret" not in said
    assert talk.asked() == []


def test_servers_and_directories_that_have_no_effect_are_named() -> None:
    talk = Talk()
    talk.send("session/new", cwd="/p", mcpServers=[STDIO], additionalDirectories=["/q"])
    talk.answer({**OPENED, "ignored": ["mcp_servers"]})
    talk.answer({"subscription": "s1"})
    assert talk.answered()["result"]["_meta"] == {"pool": {"ignored": ["mcpServers", "additionalDirectories"]}}


def test_what_keeps_a_session_from_being_opened_is_told() -> None:
    talk = Talk(agent="nobody")
    talk.send("session/new", cwd="/p", mcpServers=[])
    talk.refuse("usage", "unknown agent 'nobody'; known: main", agent="nobody")
    line = talk.answered()
    assert refusal(line) == (-32602, "unknown agent 'nobody'; known: main")
    talk.send("session/new", cwd="/p", mcpServers=[])
    talk.refuse("saturated", "10 sessions are busy", retry_after=1.0)
    line = talk.answered()
    assert (line["error"]["code"], line["error"]["data"]) == (-32603, {"code": "saturated", "retry_after": 1.0})
    talk.send("session/new", cwd="/p", mcpServers=[])
    talk.answer({"nonsense": True})
    assert refusal(talk.answered())[1].startswith("what answers on the socket is no supervisor of this version")


# --- what was there before --------------------------------------------------------------------------------------------

NATIVE = [
    {"role": "user", "content": [text("hi"), {"type": "image", "data": "AA==", "mimeType": "image/gif"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm"},
            text("let me see"),
            {"type": "tool_use", "id": "c1", "name": "exec", "input": {"command": "ls"}},
            {"type": "tool_use", "id": "c2", "name": "read", "input": {"path": "x"}},
        ],
    },
    {
        "role": "user",
        "origin": "tool",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": {"ok": True, "data": "a b", "note": "(done)"}},
            {"type": "tool_result", "tool_use_id": "c2", "content": {"ok": False, "error": "no x"}, "is_error": True},
        ],
    },
    {"role": "user", "origin": "summary", "content": [text("earlier: nothing")]},
    {"role": "assistant", "content": [text("two files"), {"type": "unheard-of"}, 5]},
]
PI = [
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "content": [text("look"), {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls"}}],
    },
    {"role": "toolResult", "toolCallId": "c1", "content": [text("a"), text("b")], "isError": False},
    {"role": "bashExecution", "command": "ls"},
]


def load(talk: Talk, messages: list[Any]) -> list[dict[str, Any]]:
    identity = talk.send("session/load", sessionId="acp-1", cwd="/p", mcpServers=[])
    assert talk.asked() == [("sessions.open", {"cwd": "/p", "session": "acp-1", "exists": True, "mcp_servers": []})]
    talk.answer({**OPENED, "head": 7})
    assert talk.asked() == [("sessions.history", {"session": "acp-1", "limit": 1000})]
    talk.answer({"session": "acp-1", "messages": messages})
    assert talk.asked() == [("subscribe", FOLLOWED)]
    talk.answer({"subscription": "s1"})
    *replayed, answer = talk.told()
    assert answer["id"] == identity
    assert "configOptions" in answer["result"]
    assert {line["method"] for line in replayed} <= {"session/update"}
    return [line["params"]["update"] for line in replayed]


def test_load_tells_a_native_conversation_again_before_it_is_answered() -> None:
    updates = load(Talk(), NATIVE)
    assert [update["sessionUpdate"] for update in updates] == [
        *("user_message_chunk", "user_message_chunk", "agent_thought_chunk", "agent_message_chunk"),
        *("tool_call", "tool_call", "tool_call_update", "tool_call_update", "agent_message_chunk"),
    ]
    assert updates[0] == {"sessionUpdate": "user_message_chunk", "content": text("hi"), "messageId": "h0.user"}
    assert updates[1]["content"] == {"type": "image", "data": "AA==", "mimeType": "image/gif"}
    assert updates[4] == {
        "sessionUpdate": "tool_call",
        "toolCallId": "c1",
        "title": "exec ls",
        "name": "exec",
        "kind": "execute",
        "rawInput": {"command": "ls"},
        "status": "in_progress",
    }
    ends = [(end["toolCallId"], end["status"], end["content"][0]["content"]["text"]) for end in updates[6:8]]
    assert ends == [("c1", "completed", "a b\n(done)"), ("c2", "failed", "no x")]


def test_load_tells_a_conversation_of_pi_again() -> None:
    updates = load(Talk(), PI)
    assert [update["sessionUpdate"] for update in updates] == [
        *("user_message_chunk", "agent_message_chunk", "tool_call", "tool_call_update")
    ]
    assert updates[3]["content"][0]["content"]["text"] == "a\nb"


def test_a_message_that_is_nested_too_deep_is_passed_over() -> None:
    nested: Any = "x"
    for _ in range(600):
        nested = [nested]
    deep = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": nested}]}
    kinds = [update["sessionUpdate"] for update in load(Talk(), [deep, *PI])]
    assert kinds == ["user_message_chunk", "agent_message_chunk", "tool_call", "tool_call_update"]


def test_a_session_that_is_open_can_be_loaded_again_and_is_followed_once() -> None:
    talk = Talk()
    load(talk, NATIVE)
    talk.send("session/load", sessionId="acp-1", cwd="/p", mcpServers=[])
    talk.answer({**OPENED, "head": 9})
    talk.answer({"messages": NATIVE})
    assert talk.asked() == []
    assert talk.told()[-1]["result"]["configOptions"]
    talk.event("text_chunk", "r", delta="x")
    assert len(talk.updates()) == 1


def test_two_requests_that_open_one_session_at_once_leave_one_subscription() -> None:
    talk = Talk()
    for _ in range(2):
        talk.send("session/resume", sessionId="acp-1", cwd="/p")
    for _ in range(2):
        talk.answer({**OPENED, "head": 7}, method="sessions.open")
    talk.answer({"subscription": "s1"}, method="subscribe")
    talk.answer({"subscription": "s2"}, method="subscribe")
    assert talk.asked() == [("unsubscribe", {"subscription": "s2"})]
    talk.answer({})
    assert [line["id"] for line in talk.told()] == [2, 3]


def test_a_session_too_many_is_refused_before_it_is_made_and_one_that_is_closed_makes_room() -> None:
    assert ControlLimits().max_tasks >= MAX_SESSIONS + 10, "each is a subscription of one connection"
    talk = Talk()
    for number in range(MAX_SESSIONS - 1):
        talk.open(f"acp-{number}", f"s{number}")
    for _ in range(2):  # of which one is being opened
        talk.send("session/new", cwd="/p", mcpServers=[])
    assert [method for method, _ in talk.asked()] == ["sessions.open"]
    assert refusal(talk.answered()) == (-32603, "240 sessions are open here, which is the limit; close one first")
    talk.refuse("usage")
    assert refusal(talk.answered())[0] == -32602
    talk.open("acp-last", "last")
    talk.send("session/resume", sessionId="acp-more", cwd="/p")
    assert (talk.asked(), refusal(talk.answered())[0]) == ([], -32603)
    talk.send("session/resume", sessionId="acp-1", cwd="/p")
    assert [method for method, _ in talk.asked()] == ["sessions.open"], "it has its place"
    talk.answer(OPENED)
    talk.send("session/close", sessionId="acp-2")
    talk.answer(method="unsubscribe")
    talk.told()
    talk.open("acp-more", "more")


def test_resume_tells_nothing_again() -> None:
    talk = Talk()
    talk.send("session/resume", sessionId="acp-1", cwd="/p")
    assert talk.asked() == [("sessions.open", {"cwd": "/p", "session": "acp-1", "exists": True, "mcp_servers": []})]
    talk.answer({**OPENED, "head": 7})
    assert talk.asked() == [("subscribe", FOLLOWED)]
    talk.answer({"subscription": "s1"})
    assert list(talk.answered()["result"]) == ["configOptions"]


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
def test_an_unknown_session_is_not_found_and_one_of_another_directory_is_a_wrong_parameter(method: str) -> None:
    talk = Talk()
    talk.send(method, sessionId="acp-9", cwd="/p", mcpServers=[])
    talk.refuse("usage", "there is no session 'acp-9'", session="acp-9")
    assert refusal(talk.answered()) == (-32002, "there is no session 'acp-9'")
    talk.send(method, sessionId="acp-1", cwd="/q", mcpServers=[])
    talk.refuse("usage", "session acp-1 works in /p, not in /q", session="acp-1", cwd="/p")
    assert refusal(talk.answered()) == (-32602, "session acp-1 works in /p, not in /q")


def test_a_session_that_was_never_opened_here_takes_no_prompt() -> None:
    talk = Talk()
    for method in ("session/prompt", "_session/steering", "session/close"):
        talk.send(method, sessionId="acp-9", prompt=[text("hi")])
        code, words = refusal(talk.answered())
        assert (code, "load or resume it first" in words) == (-32002, True)
    assert talk.asked() == []


# --- lists ------------------------------------------------------------------------------------------------------------


def listed(number: int, **more: Any) -> dict[str, Any]:
    return {"key": f"s{number}", "cwd": "/real/p", "updated_at": 1000.0 + number, "label": None, **more}


def test_sessions_are_listed_by_directory_the_newest_first_fifty_a_page() -> None:
    talk = Talk()
    sessions = [listed(number) for number in range(120)]
    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        talk.send("session/list", cwd="/p", **cursor)
        assert talk.asked() == [("sessions.list", {"cwd": "/p"})]
        talk.answer(sessions)
        result = talk.answered()["result"]
        pages.append([each["sessionId"] for each in result["sessions"]])
        if "nextCursor" not in result:
            break
        cursor = {"cursor": result["nextCursor"]}
        sessions.append(listed(500 + len(pages)))  # one that comes meanwhile moves no page
    assert [len(page) for page in pages] == [50, 50, 20]
    assert [key for page in pages for key in page] == [f"s{number}" for number in range(119, -1, -1)]


def test_a_listed_session_has_the_editors_own_spelling_of_the_directory_its_label_and_its_time() -> None:
    talk = Talk()
    talk.send("session/list", cwd="/p")
    talk.answer([listed(5, label="Mine"), listed(6, cwd=None)])
    assert talk.answered()["result"] == {
        "sessions": [{"sessionId": "s5", "cwd": "/p", "updatedAt": "1970-01-01T00:16:45.000Z", "title": "Mine"}]
    }
    talk.send("session/list")
    assert talk.asked() == [("sessions.list", {})]
    talk.answer([listed(5)])
    assert talk.answered()["result"]["sessions"][0]["cwd"] == "/real/p"


def test_a_cursor_that_no_page_had_is_refused() -> None:
    talk = Talk()
    talk.send("session/list", cursor="nonsense")
    talk.answer([])
    assert refusal(talk.answered()) == (-32602, "params.cursor: no page ends with 'nonsense'")


# --- the end ----------------------------------------------------------------------------------------------------------


def test_close_ends_the_editors_runs_then_follows_no_longer_and_the_session_stays() -> None:
    talk = Talk()
    talk.open()
    first, run = talk.prompt()
    second, waiting = talk.prompt()
    closing = talk.send("session/close", sessionId="acp-1")
    assert talk.asked() == [("abort", {"session": "acp-1", "run": each}) for each in (run, waiting)]
    late = talk.send("session/prompt", sessionId="acp-1", prompt=[text("more")])
    assert talk.answered()["id"] == late
    for each in (waiting, run):
        talk.event("done", each, reason="interrupted")
    assert talk.asked() == [("unsubscribe", {"subscription": "s1"})]
    talk.answer({}, method="unsubscribe")
    assert [(line["id"], line["result"]) for line in talk.told()] == [
        (second, {"stopReason": "cancelled"}),
        (first, {"stopReason": "cancelled"}),
        (closing, {}),
    ]
    talk.event("text_chunk", "other", delta="x")
    assert talk.told() == []
    talk.send("session/close", sessionId="acp-1")
    assert talk.answered()["error"]["code"] == -32002


def test_a_deleted_session_is_open_no_longer_and_is_not_made_again_by_a_prompt() -> None:
    talk = Talk()
    talk.open()
    identity, _run = talk.prompt()
    talk.event("session_deleted", transcript=None)
    line = talk.answered()
    assert (line["id"], refusal(line)) == (identity, (-32602, "session acp-1 was deleted"))
    talk.send("session/prompt", sessionId="acp-1", prompt=[text("more")])
    assert talk.answered()["error"]["code"] == -32002
    assert talk.asked() == []
