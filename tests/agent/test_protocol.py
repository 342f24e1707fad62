"""The native dialect to the letter: whatever comes in, every request with an id gets exactly one answer."""

from collections import Counter

import msgspec
import pytest
import trio
import trio.testing

from agent.requests import METHODS
from tests.agent.inprocess import SMALL, worker
from wire.messages import AssistantMessage, Message, Ready, StateResult, ToolEvent


@pytest.mark.parametrize(
    ("line", "request_id", "code"),
    [
        *((line, None, "parse_error") for line in (b"not json", b'{"id":"1","method":', b"null")),
        (b'{"id":{"a":1},"method":"ping"}', None, "parse_error"),
        (b'{"id":"7","method":"ping","params":{"\xff":1', None, "parse_error"),
        (b'{"id":"7"}', "7", "unknown_method"),
        (b'{"id":7,"method":null}', 7, "unknown_method"),
        (b'{"id":"7","method":"fly"}', "7", "unknown_method"),
        (b'{"method":"fly"}', None, "unknown_method"),
        (b'{"id":"7","method":"prompt"}', "7", "invalid_params"),
        (b'{"id":"7","method":"prompt","params":{"text":"a","colour":1}}', "7", "invalid_params"),
        (b'{"id":"7","method":"prompt","params":{"text":"\xff"}}', "7", "invalid_params"),
        (b'{"id":"7","method":"set_model","params":{"model":"gpt"}}', "7", "invalid_params"),
        (b'{"id":"7","method":"decide","params":{"call_id":"c","decision":"allow"}}', "7", "nothing_pending"),
        (b'{"id":"7","method":"process","params":{"action":"kill","session_id":"x"}}', "7", "not_found"),
        (b'{"id":"7","method":"steer","params":{"text":"x"}}', "7", "not_running"),
        (b'{"id":"7","method":"prompt","params":{"text":"x","client_tools":[{}]}}', "7", "invalid_params"),
    ],
)
async def test_a_bad_line_is_answered_with_its_fault_and_the_next_one_works(
    line: bytes, request_id: str | int | None, code: str
) -> None:
    async with worker("--no-session") as client:
        await client.send_raw(line + b"\n")
        assert await client.call("ping") == {}
        refusal = client.lines[1]
    assert (refusal["id"], refusal["error"]["code"]) == (request_id, code)
    assert refusal["error"]["message"]


async def test_blank_lines_mean_nothing_and_a_request_without_an_id_is_done_and_not_answered() -> None:
    async with worker("--no-session") as client:
        await client.send_raw(b'\n\r\n  \n{"id":"a","method":"ping"}\r\n')
        assert (await client.answer("a"))["result"] == {}
        assert len(client.lines) == 2
        await client.send_raw(b'{"method":"set_thinking","params":{"level":"high"}}\n')
        assert msgspec.convert(await client.call("get_state"), StateResult).thinking == "high"
        assert not [line for line in client.lines if line.get("id", 1) is None]


async def test_every_request_is_answered_exactly_once_whatever_happens_to_the_run() -> None:
    async with worker("--no-session") as client:
        ids = [await client.send("prompt", text="HANG")]
        ids += [await client.send(method) for method in ("ping", "nonsense", "get_state", "steer", "prompt")]
        ids += [await client.send("abort"), await client.send("abort")]
        ids += [await client.send("new_session"), await client.send("prompt", text="again")]
        ids += [await client.send("switch_session", session_file="/none"), await client.send("shutdown")]
        for request_id in ids:
            await client.answer(request_id)
    assert Counter(line["id"] for line in client.lines if "event" not in line) == Counter(ids)
    assert client.exit_code == 0


async def test_every_event_decodes_into_its_struct_and_its_seq_rises() -> None:
    async with worker("--no-session") as client:
        done = await client.prompt('THINK TOOL:exec {"command":"echo out"} TOOL:nothing {}', run_id="mine")
        await client.prompt("PIECES=1500")
    kept = {event["event"] for event in done.events}
    assert kept >= {"run_start", "tool", "tool_executed", "done"}
    assert "assistant_message" not in kept  # the text is in the result
    seqs = [line["data"]["seq"] for line in client.lines if "event" in line and line["event"] != "ready"]
    assert seqs == sorted(set(seqs))
    kinds = {line["event"] for line in client.lines if line.get("data", {}).get("run_id") == "mine"}
    assert kinds >= {"run_start", "thinking", "assistant_message", "tool", "tool_executed", "token_usage", "done"}
    msgspec.json.Decoder(Message).decode_lines(client.raw)
    ready = msgspec.convert(client.lines[0]["data"], Ready)
    assert (client.lines[0]["event"], ready.protocol, ready.methods) == ("ready", 1, list(METHODS))
    for line in client.lines:
        if line.get("event") == "tool":
            msgspec.convert(line["data"], ToolEvent)
        if line.get("event") in {"assistant_message", "thinking"}:
            msgspec.convert(line["data"], AssistantMessage)


async def test_get_commands_names_templates_and_skills(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("knowledge")
    (place / "fix.md").write_text("ECHO:fix this: $ARGUMENTS")
    (place / "SKILL.md").write_text("---\nname: sewing\ndescription: how to sew\n---\nThread first.\n")
    async with worker("--no-session", "--prompt-template", f"{place}/fix.md", "--skill", str(place)) as client:
        commands = (await client.call("get_commands"))["commands"]
        named = [(command["name"], command["source"]) for command in commands]
        assert named == [("fix", "prompt_template"), ("sewing", "skill")]
        assert (await client.prompt("/fix the roof")).text == "fix this: the roof"


async def test_a_client_that_stops_reading_stalls_only_the_output() -> None:
    limits = msgspec.structs.replace(SMALL, output_soft=10_000)
    async with (
        trio.open_nursery() as nursery,
        worker("--no-session", limits=limits, read=False, stdout_buffer=1) as client,
    ):
        await client.send("prompt", text="PIECES=100000")
        await trio.testing.wait_all_tasks_blocked()
        await client.send("abort")  # read and done, though nothing takes the answer yet
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(client.read)
        assert (await client.answer("1"))["result"]["stop_reason"] == "aborted"
        assert len(client.raw) < 500_000


async def test_a_line_that_is_too_long_ends_the_worker_as_the_end_of_stdin_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with worker("--no-session", limits=msgspec.structs.replace(SMALL, line_bytes=100_000)) as client:
        await client.send("prompt", text='TOOL:exec {"command":"echo begun; exec sleep 60"}')
        await client.event("tool", phase="update")
        await client.send_raw(b"x" * 200_000)
        await client.ended.wait()
    assert (client.exit_code, capsys.readouterr().err) == (1, "agent: a line on stdin is longer than 100000 bytes\n")


async def test_a_worker_that_is_shutting_down_begins_nothing_more_but_answers_pings() -> None:
    async with worker("--no-session") as client:
        prompt = await client.send("prompt", text="PIECES=100000 DELAY=10")
        await client.event("assistant_message")
        late = b'{"id":"late","method":"prompt","params":{"text":"late"}}\n{"id":"ping","method":"ping"}\n'
        await client.send_raw(b'{"id":"end","method":"shutdown"}\n' + late)
        assert (await client.answer("late"))["error"]["code"] == "shutting_down"
        assert (await client.answer("ping"))["result"] == (await client.answer("end"))["result"] == {}
        assert (await client.answer(prompt))["result"]["stop_reason"] == "aborted"
