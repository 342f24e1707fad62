"""``pool approvals`` and ``pool sessions show``: pending calls, in full, with the commands to decide about them."""

from typing import Any

import msgspec

from errors import Conflict
from tests.commands.fake_pool import SESSION, Bench

QUESTION = {"id": "c1", "name": "exec", "reason": "a rule"}


def test_pending_calls_are_listed_and_one_is_shown_page_by_page_with_the_commands_to_decide(bench: Bench) -> None:
    def page(text: str, **more: Any) -> dict[str, Any]:
        return {"parts": [{"name": "command", "text": text}], **more}

    first = {"session": "ada", "call": QUESTION, "page": page("make\ncurl", hidden=5)}
    last = {"session": "ada", "call": QUESTION, "page": page("rm -rf", offset=9, seen="w0rd"), "is_partial": True}
    asked = {"session": "ada", "call": {**QUESTION, "input_preview": "make"}}
    bench.pool.fixed = {"approvals.list": [asked], "approvals.show": iter([first, last] * 2)}
    listed = bench.run("approvals").stdout.splitlines()
    assert listed == ["asks  ada: exec make (a rule)", "      pool approve -s ada c1"]
    assert bench.json("approvals", "list") == [asked]
    shown = bench.run("approvals", "show", "c1").stdout.splitlines()
    assert shown[0] == "exec in session ada (a rule)"
    assert [word for word in ("make", "curl", "rm -rf") if word not in "\n".join(shown)] == []
    assert shown[-3:] == [
        "its agent shows no more than this of its calls",
        "pool approve -s ada c1 --seen w0rd",
        'pool deny -s ada c1 --note "why not"',
    ]
    pages = bench.run("approvals", "show", "c1", "-s", "ada", "--json").stdout.splitlines()
    assert [msgspec.json.decode(each)["page"].get("offset") for each in pages] == [None, 9]
    assert bench.pool.calls[-1] == ("approvals.show", {"call_id": "c1", "offset": 9, "session": "ada"})


def test_a_session_is_shown_with_what_it_asks_in_full(bench: Bench) -> None:
    page = {"parts": [{"name": "command", "text": "make"}]}
    pending = {**SESSION, "pending_permissions": [QUESTION] * 12}
    shown = {"session": "ada", "call": QUESTION, "page": page}
    bench.pool.fixed = {"sessions.get": pending, "approvals.show": iter([shown] + [Conflict("it was decided")] * 9)}
    lines = bench.run("sessions", "show", "ada").stdout.splitlines()
    first = lines.index("asks  exec (a rule)")
    assert "make" in "".join(lines[first + 1 : first + 3])
    assert lines.count("pool approve -s ada c1") == 1
    assert (lines.count("it was decided"), lines[-1]) == (9, "and 2 more; pool approvals has all of them")
