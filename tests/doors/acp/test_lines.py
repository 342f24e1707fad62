"""Lines of an editor that are no good: what each is answered, and that none of them ends anything."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doors.acp.jsonrpc import EditorFramer
from tests.doors.acp.talk import Talk, refusal


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"garbage", -32700),
        (b'{"id":1', -32700),
        (b'{"id":1}}', -32700),
        (b"\xff\xfe{}", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"x":"\xff"}}', -32700),
        (b"[" * 100_000, -32700),
        (b"null", -32600),
        (b"42", -32600),
        (b'"text"', -32600),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"initialize"}]', -32600),
        (b"{}", -32600),
        (b'{"id":true,"method":"initialize"}', -32600),
        (b'{"id":1.5,"method":"initialize"}', -32600),
        (b'{"id":{},"method":"initialize"}', -32600),
        (b'{"method":5}', -32600),
        (None, -32600),
    ],
)
def test_what_is_no_message_is_answered_without_an_id_and_the_next_one_is_served(line: bytes | None, code: int) -> None:
    talk = Talk(initialized=False)
    talk.line(line)
    answer = talk.answered()
    assert (answer["id"], answer["error"]["code"]) == (None, code)
    talk.send("initialize", protocolVersion=1)
    assert talk.answered()["result"]["protocolVersion"] == 1


def test_a_request_without_a_method_is_answered_under_its_id() -> None:
    talk = Talk()
    talk.line({"jsonrpc": "2.0", "id": "x"})
    answer = talk.answered()
    assert (answer["id"], *refusal(answer)) == ("x", -32600, "method: it is missing")


def test_an_id_may_be_a_text_a_number_or_null_and_comes_back_as_it_is() -> None:
    for identity in ('"a\\u0062"', "0", "-7", "null", "9007199254740993"):
        talk = Talk(initialized=False)
        talk.line(b'{"jsonrpc":"2.0","id":%b,"method":"initialize","params":{"protocolVersion":1}}' % identity.encode())
        (line,) = talk.machine.take_editor_lines()
        assert f'"id":{identity},'.encode() in line


def test_half_characters_and_line_separators_break_no_line() -> None:
    talk = Talk()
    talk.open()
    talk.line(
        b'{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":{"sessionId":"acp-1",'
        b'"prompt":[{"type":"text","text":"a\\ud83d b"}]}}'
    )
    ((_, asked),) = talk.asked()
    assert asked["text"] == "a\ufffd b"
    talk.event("text_chunk", asked["run"], delta="x\u2028y")
    (line,) = talk.machine.take_editor_lines()
    assert line.count(b"\n") == 1
    assert "\u2028".encode() not in line
    assert json.loads(line)["params"]["update"]["content"]["text"] == "x\u2028y"


@pytest.mark.parametrize(
    ("method", "params", "named"),
    [
        ("initialize", {}, "protocolVersion"),
        ("initialize", {"protocolVersion": "1"}, "protocolVersion"),
        ("initialize", [], "object"),
        ("session/new", {"mcpServers": []}, "cwd"),
        ("session/new", {"cwd": "relative", "mcpServers": []}, "cwd"),
        ("session/new", {"cwd": "/p", "mcpServers": "no"}, "mcpServers"),
        ("session/load", {"cwd": "/p", "mcpServers": []}, "sessionId"),
        ("session/resume", {"cwd": "p", "sessionId": "x"}, "cwd"),
        ("session/list", {"cwd": "p"}, "cwd"),
        ("session/prompt", {"sessionId": "acp-1"}, "prompt"),
        ("session/prompt", {"sessionId": 5, "prompt": []}, "sessionId"),
        ("session/prompt", {"sessionId": "acp-1", "prompt": []}, "prompt"),
        ("session/prompt", {"sessionId": "acp-1", "prompt": [{"text": "x"}]}, "prompt"),
        ("session/set_config_option", {"sessionId": "acp-1", "configId": "model"}, "value"),
        ("session/set_config_option", {"sessionId": "acp-1", "configId": "mode", "value": "x"}, "configId"),
        ("session/close", {}, "sessionId"),
    ],
)
def test_a_member_that_is_wrong_is_named_and_the_pool_is_not_asked(method: str, params: Any, named: str) -> None:
    talk = Talk()
    talk.open()
    talk.line({"jsonrpc": "2.0", "id": 5, "method": method, "params": params})
    code, words = refusal(talk.answered())
    assert code == -32602
    assert named in words
    assert talk.asked() == []


def test_members_that_are_not_known_or_optional_and_odd_have_no_effect() -> None:
    talk = Talk(initialized=False)
    talk.send("initialize", protocolVersion=7, clientCapabilities="all", clientInfo=5, more={})
    assert talk.answered()["result"]["protocolVersion"] == 1


def test_before_initialize_every_other_request_is_refused() -> None:
    talk = Talk(initialized=False)
    for method in ("session/new", "session/prompt", "nonsense"):
        talk.send(method, cwd="/p")
        assert refusal(talk.answered()) == (-32600, f"{method}: send initialize first")
    assert talk.asked() == []


@pytest.mark.parametrize(
    "method", ["nonsense", "authenticate", "session/set_mode", "session/fork", "session/delete", "_other/thing"]
)
def test_an_unknown_request_is_answered_and_an_unknown_notification_is_not(method: str) -> None:
    talk = Talk()
    talk.notify(method)
    assert talk.told() == []
    talk.send(method)
    assert refusal(talk.answered()) == (-32601, f"there is no method '{method}'")


def test_notifications_that_make_no_sense_and_answers_to_nothing_have_no_effect() -> None:
    talk = Talk()
    talk.open()
    talk.notify("session/cancel", sessionId=5)
    talk.notify("session/cancel", sessionId="other")
    talk.notify("$/cancel_request", requestId=[])
    talk.line({"jsonrpc": "2.0", "id": 77, "result": {}})
    talk.line({"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": ""}})
    talk.line(b"   ")
    assert (talk.told(), talk.asked()) == ([], [])


def test_an_id_that_comes_twice_is_answered_twice() -> None:
    talk = Talk()
    talk.open()
    message = {"sessionId": "acp-1", "prompt": [{"type": "text", "text": "hello"}]}
    for _ in range(2):
        talk.line({"jsonrpc": "2.0", "id": 5, "method": "session/prompt", "params": message})
    first, second = (asked["run"] for _, asked in talk.asked())
    assert first != second
    for run in (second, first):
        talk.answer({"status": "accepted"})
        talk.event("done", run, reason="completed")
    assert [line["id"] for line in talk.told()] == [5, 5]


# --- framing ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_are_the_same_under_any_cut_and_a_long_one_takes_no_other_along(
    lines: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    framer, found, rest = EditorFramer(limit=8), [], stream
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        found += framer.feed(rest[:size])
        rest = rest[size:]
    assert found == [line if len(line) <= 8 else None for line in lines]


def test_of_a_line_that_is_too_long_nothing_is_kept_in_memory() -> None:
    framer = EditorFramer(limit=1_000)
    for _ in range(1_000):
        assert framer.feed(b"x" * 1_000) == []
    assert framer._pending.tell() == 0
    assert framer.feed(b"\n{}\n") == [None, b"{}"]
    assert framer.feed(b"last") == []
    assert framer.rest() == b"last"
