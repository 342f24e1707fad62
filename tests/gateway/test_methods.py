"""The method table: every method is there, takes what it should and nothing else, and says what was wrong."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from errors import PoolError, UsageError
from gateway.autonomy import AutonomySettings
from heartbeat.settings import HeartbeatSettings
from pool.group_figures import figures_of_groups
from profiles import AgentSettings, ProfilesSettings
from tests.gateway.callers import RecordingCaller
from tests.gateway.world import MACHINES, Machines, World

_EMPTY = (
    *("ping", "status", "subscribe", "approvals.list", "sessions.list", "agents.list", "workers.list", "waiting.list"),
    "nodes.list",
    *("explain", "heartbeat.run", "heartbeat.status", "cron.list", "pause", "resume", "drain", "config.get"),
    *("logs.tail", "logs.list", "logs.watch", "reload", "restart", "shutdown", "metrics"),
)
_ALICE = ("get", "options", "patch", "reset", "delete", "history")
GOOD: dict[str, dict[str, Any]] = {
    **{name: {} for name in _EMPTY},
    **{f"sessions.{name}": {"session": "alice"} for name in _ALICE},
    "events.peek": {"session": "alice"},
    "abort": {"session": "alice"},
    "agent": {"text": "hello", "session": "alice"},
    "agent.wait": {"run_id": "k1"},
    "prompt": {"text": "hello", "session": "alice"},
    "steer": {"session": "alice", "text": "left"},
    "acquire": {"session": "bob"},
    "release": {"hold": "h1"},
    "unsubscribe": {"subscription": "s1"},
    "decide": {"call_id": "c1", "decision": "allow"},
    "ui.respond": {"session": "alice", "id": "d1", "value": "x"},
    "approvals.show": {"call_id": "c1"},
    "scale": {"max": 3},
    "logs.read": {"log": "supervisor"},
    "nodes.drain": {"node": "one"},
    "nodes.resume": {"node": "one"},
    "workers.stop": {"worker": "w1"},
    "workers.recycle": {"worker": "w1"},
    "route": {"source": {"channel": "telegram", "chat_type": "dm", "chat_id": "7", "sender_id": "7"}},
    "process": {"session": "alice", "action": "list"},
    "process.write": {"session": "alice", "id": "p1"},
    "delegate": {"session": "alice", "agent": "ops", "task": "say it"},
    "events.inject": {"session": "alice", "text": "the door bell rang"},
    "attach.open": {"cwd": "/"},
    "sessions.open": {"cwd": "/"},
    "attach.send": {"attachment": "none"},
    "attach.end": {"attachment": "none"},
    "cron.add": {"id": "tidy", "text": "tidy up", "every": "1h"},
    "cron.get": {"id": "tidy"},
    "cron.run": {"id": "tidy"},
    "cron.disable": {"id": "tidy"},
    "cron.enable": {"id": "tidy"},
    "cron.delete": {"id": "tidy"},
}
"""The least that each method needs."""

WRONG: dict[str, list[dict[str, Any]]] = {
    "sessions.patch": [
        *({"label": ""}, {"label": "x" * 65}, {"label": " x"}, {"model": "a b"}, {"model": "/x"}, {"model": "x/"}),
        *({"thinking": "very deep"}, {"thinking": "x" * 201}, {"queue_mode": "sideways"}, {"verbose": "on"}),
    ],
    "logs.tail": [{"limit": 0}, {"limit": 5001}, {"cursor": -1}, {"max_bytes": 0}, {"max_bytes": 1_000_001}],
    "logs.read": [
        *({"limit": 0}, {"limit": 1001}, {"max_bytes": 0}, {"max_bytes": 1_000_001}, {"log": ""}, {"log": "x" * 65}),
        *({"before": "1"}, {"before": "1-2-3"}, {"after": "-"}, {"after": "1-" + "2" * 21}, {"after": 5}),
    ],
    "agent": [
        *({"text": 5}, {"session": ""}, {"session": "x" * 513}, {"run": ""}, {"run": "x" * 129}),
        *({"priority": 1001}, {"priority": 1.5}, {"timeout": -1}, {"queue": "sideways"}, {"lane": ""}, {"agent": ""}),
        *({"images": [{"data": "AA=="}] * 33}, {"images": [{}]}, {"source": {"channel": "telegram"}}, {"hold": "h1"}),
    ],
    "agent.wait": [{"timeout_ms": -1}, {"timeout_ms": 86_400_001}, {"timeout_ms": "1"}, {"run_id": ""}],
    "prompt": [{"hold": ""}, {"text": None}],
    "steer": [{"text": None}],
    "abort": [{"clear": "yes"}, {"run": ""}],
    "acquire": [{"priority": -1001}, {"timeout": "5s"}, {"spawn": 1}],
    "subscribe": [{"since": -1}, {"channels": ["gossip"]}, {"channels": ["monitor"] * 4}, {"kinds": ["x"] * 65}],
    "decide": [{"decision": "perhaps"}, {"note": "x" * 10_001}],
    "ui.respond": [{"confirmed": "yes"}],
    "sessions.history": [{"limit": 0}, {"limit": 1001}],
    "process.write": [{"id": ""}, {"keys": "Enter"}, {"data": "x" * 1_000_001}],
    "process": [{"action": "write"}, {"action": "feed"}, {"params": []}],
    "delegate": [{"mode": "later"}, {"agent": ""}, {"timeout": -0.1}],
    "events.inject": [{"kind": "gossip"}, {"text": "x" * 40_001}, {"text": None}],
    "heartbeat.run": [{"agent": ""}, {"session": ""}, {"reason": "boredom"}, {"agent": "nobody"}],
    "cron.add": [
        *({"text": ""}, {"text": "x" * 32_769}, {"id": "Tidy"}, {"every": "often"}, {"cron": "* * * * *"}),
        *({"agent": "nobody"}, {"delivery": "webhook:nobody"}, {"mode": "aside"}, {"at": "yesterday"}),
    ],
    "cron.list": [{"limit": 0}, {"limit": 1001}],
    "cron.get": [{"id": ""}],
    "cron.delete": [{"id": "x" * 65}],
    "cron.run": [{"id": 5}],
    "approvals.show": [{"offset": -1}, {"call_id": ""}],
    "drain": [{"timeout": -1}],
    "scale": [{"max": 0}, {"max": 100_001}, {"max": "2"}],
    "workers.stop": [{"worker": ""}],
    "explain": [{"session": ""}],
    "route": [{"text": 5}],
    "attach.open": [{"cwd": 5}, {"cwd": "x" * 4_097}, {"arguments": "--model"}, {"env": {"A": 1}}, {"session": ""}],
    "sessions.open": [{"cwd": ""}, {"cwd": "x" * 4_097}, {"agent": ""}, {"session": ""}, {"exists": "yes"}],
    "sessions.list": [{"cwd": 5}, {"cwd": ""}],
    "attach.send": [{"text": 5}, {"refusal": "x" * 1_001}, {"attachment": ""}],
}


_NOT_NEEDED_ALONE = {
    *(("agent", "session"), ("prompt", "session"), ("ui.respond", "value"), ("cron.add", "id"), ("cron.add", "every"))
}


async def _raises(world: World, method: str, params: Any) -> str:
    with pytest.raises(UsageError) as raised:
        await world.methods.call(method, msgspec.Raw(msgspec.json.encode(params)), world.caller)
    return raised.value.message


async def test_every_method_is_known_to_these_tests_and_listed_for_an_unknown_one(world: World) -> None:
    assert set(world.methods.names) == set(GOOD)
    message = await _raises(world, "sessions.lst", {})
    assert message.startswith("unknown method 'sessions.lst'; there are: ")
    assert all(name in message for name in GOOD)


async def test_an_unknown_or_missing_field_is_named_and_what_is_no_object_is_refused(world: World) -> None:
    for method, params in GOOD.items():
        message = await _raises(world, method, {**params, "sesion": "alice"})
        assert message.startswith(f"bad parameters for {method}: ")
        assert "`sesion`" in message
        for name in params:
            if (method, name) not in _NOT_NEEDED_ALONE:
                rest = {key: value for key, value in params.items() if key != name}
                assert f"`{name}`" in await _raises(world, method, rest), method
        nothing: list[Any] = [[], "text", 5, True]
        for wrong in nothing:
            assert await _raises(world, method, wrong) != ""
        for raw in (b'{"text": "\xff"}', b'{"params":' + b"[" * 5000):
            with pytest.raises(UsageError, match="bad parameters"):
                await world.methods.call(method, msgspec.Raw(raw), world.caller)


async def test_a_value_that_cannot_be_meant_is_named_with_its_place(world: World) -> None:
    for method, cases in WRONG.items():
        for wrong in cases:
            message = await _raises(world, method, {**GOOD[method], **wrong})
            [name] = wrong
            assert name in message, (method, wrong)
            assert len(message) < 500


async def test_parameters_may_be_left_out_where_none_are_needed(world: World) -> None:
    for params in (b"", b"null", b"{}"):
        assert await world.methods.call("ping", msgspec.Raw(params), world.caller) == {}


@pytest.mark.world(autonomy=AutonomySettings(heartbeats={"main": HeartbeatSettings()}))
async def test_every_result_is_json(world: World) -> None:
    last = ("sessions.delete", "drain", "shutdown", "restart")
    refused = set[str]()
    await world.ask("hello", run="k1")
    for method in [*(name for name in GOOD if name not in (*last, "logs.watch")), *last]:
        try:
            with trio.fail_after(100):
                msgspec.json.encode(await world.call(method, **GOOD[method]))
        except PoolError:
            refused.add(method)
    assert refused <= {
        *("steer", "release", "unsubscribe", "decide", "approvals.show", "workers.recycle", "ui.respond", "process"),
        "process.write",
        *("attach.send", "attach.end", "nodes.drain", "nodes.resume"),
    }


async def test_who_reads_logs_is_told_which_have_grown_each_once_however_slow_it_reads(world: World) -> None:
    with world.log_changes.watch() as other:
        async with trio.open_nursery() as nursery:
            watcher = RecordingCaller(nursery)
            nursery.start_soon(world.methods.call, "logs.watch", msgspec.Raw(b"{}"), watcher)
            await wait_all_tasks_blocked()
            for name in ("w1", "w2", "w1", "supervisor"):
                world.log_changes.note(name)
            await wait_all_tasks_blocked()
            pushed = [data["logs"] for event, data in watcher.pushed if event == "logs_changed"]
            assert pushed == [[], ["w1", "w2", "supervisor"]]
            nursery.cancel_scope.cancel()
        assert await other.wait() == ["w1", "w2", "supervisor"]
    assert not world.log_changes.is_watched


async def test_logs_are_read_by_name_and_a_name_leads_to_no_other_file(world: World, tmp_path: Path) -> None:
    logs = world.supervisor.logs = tmp_path / "kept"
    assert await world.call("logs.list") == {"logs": ["supervisor"]}
    logs.mkdir()
    (tmp_path / "secret.log").write_text("a secret\n")
    (logs / "w1.log").write_text("one\ntwo\n")
    assert await world.call("logs.list") == {"logs": ["supervisor", "w1"]}
    page = await world.call("logs.read", log="w1", limit=1)
    assert page["lines"] == [{"at": None, "source": "stderr", "text": "two"}]
    earlier = await world.call("logs.read", log="w1", before=page["before"])
    assert [line["text"] for line in earlier["lines"]] == ["one"]
    assert (await world.call("logs.read", log="supervisor"))["lines"] == []
    for name in ("../secret", "w2", "w1.log"):
        assert "is kept; logs.list names" in await _raises(world, "logs.read", {"log": name})


# --- the operator's ---------------------------------------------------------------------------------------------------


async def test_the_status_shows_everything_at_one_moment(world: World) -> None:
    await world.begin("hang")
    await world.begin("say later", queue="followup")
    status = await world.call("status")
    assert (status["gateway"]["runs"], status["gateway"]["sessions"]) == (2, 1)
    assert status["gateway"]["events"]["head"] == world.gateway.bus.head
    assert status["supervisor"] == {"pid": 1, "service": None}
    [session] = status["sessions"]
    assert (session["key"], session["waiting"]) == ("alice", 1)
    [lane] = status["gateway"]["lanes"]["sessions"]
    assert (lane["session"], lane["state"], lane["waiting"]) == ("alice", "running", 1)


async def test_the_nodes_of_a_cluster_are_listed_summed_by_group_and_explained(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await world.call("nodes.list") == []
    assert (await world.call("status"))["groups"] == []
    assert "group" not in await world.call("explain", agent="main")
    assert "see [cluster]" in await _raises(world, "nodes.drain", {"node": "gpu-1"})
    machines = Machines(*MACHINES)
    monkeypatch.setattr("tests.gateway.world.Supervisor.machines", machines)
    assert [node["name"] for node in await world.call("nodes.list")] == ["", "gpu-1", "gpu-2", "gpu-3"]
    assert (await world.call("status"))["groups"] == [
        {"group": "", "nodes": {"up": 1}, "slots": 4, "used": 1},
        {"group": "gpu", "nodes": {"up": 1, "draining": 1, "lost": 1}, "slots": 3, "used": 3},
    ]
    here = (await world.call("explain", agent="main"))["group"]
    assert here == "this machine and nodes of no group: 1 of 4 slots used"
    assert str(figures_of_groups(MACHINES)[1]) == "group gpu: 3 of 3 slots used, 1 node draining, 1 node lost"
    await world.call("nodes.drain", node="gpu-1", timeout=2.5)
    assert machines.drained == {"gpu-1": 2.5}
    await world.call("nodes.resume", node="gpu-1")
    assert machines.drained == {}


async def test_workers_can_be_listed_stopped_and_replaced(world: World) -> None:
    await world.ask("one")
    assert [worker["id"] for worker in await world.call("workers.list")] == ["w1"]
    assert await world.call("workers.recycle", worker="w1") == {"worker": "w1", "recycling": True}
    await wait_all_tasks_blocked()
    assert (await world.ask("two")).worker == "w2"
    assert await world.call("workers.stop", worker="w2") == {"worker": "w2", "stopping": True}
    await wait_all_tasks_blocked()
    assert world.launcher.stops == ["w1", "w2"]
    with pytest.raises(UsageError, match="w2"):
        await world.call("workers.stop", worker="w2")


async def test_a_paused_pool_grants_nothing_until_it_goes_on(world: World) -> None:
    assert await world.call("pause") == {"paused": True}
    run = await world.begin("hello")
    [waiting] = await world.call("waiting.list")
    assert waiting["session"] == "alice"
    assert world.launcher.prompts == []
    assert await world.call("resume") == {"paused": False}
    assert (await run.wait()).text == "hello"
    assert await world.call("waiting.list") == []


async def test_a_drain_says_whether_everything_has_ended(world: World) -> None:
    await world.begin("hang")
    assert await world.call("drain", timeout=5) == {"drained": False}
    assert trio.current_time() == 5
    world.launcher.running("hang").finish()
    assert await world.call("drain") == {"drained": True}


async def test_explain_is_for_a_session_or_for_an_agent(world: World) -> None:
    await world.ask("one", agent="ops", role="writer")
    own = await world.call("explain", session="alice")
    assert (own["session"], own["profile"]["agent"], own["profile"]["role"]) == ("alice", "ops", "writer")
    [worker] = own["workers"]
    assert (worker["worker"], worker["level"], worker["difference"]) == ("w1", "bound", "")
    other = await world.call("explain", session="alice", agent="main")
    assert (other["profile"]["agent"], other["profile"]["role"]) == ("main", "default")
    assert "writer" in other["workers"][0]["difference"]
    assert own["wait"] is None
    await world.begin("hang")
    await world.begin("next", queue="followup")
    behind = (await world.call("explain", session="alice"))["wait"]
    assert (behind["place"], behind["why"]) == (None, "1 message waits in the session")
    assert behind["needs"] == "the turn that runs in the session has to end"
    unknown = await world.call("explain", session="bob")
    assert (unknown["session"], unknown["profile"]["agent"]) == ("bob", "main")
    assert await world.call("reload") == {"reloaded": True}


@pytest.mark.world(profiles=ProfilesSettings(agents={"ops": AgentSettings(), "p": AgentSettings(dialect="pi")}))
async def test_agents_can_be_listed_with_what_they_take(world: World) -> None:
    listed = await world.call("agents.list")
    assert len({agent.pop("program") for agent in listed}) == 2  # main and ops have the bundled program
    assert listed == [
        {"name": "main", "dialect": "native", "is_default": True, "client_tools": True},
        {"name": "ops", "dialect": "native", "is_default": False, "client_tools": True},
        {"name": "p", "dialect": "pi", "is_default": False, "client_tools": False},
    ]


async def test_an_empty_text_is_named_as_such(world: World) -> None:
    for method, params in (("prompt", {"session": "", "text": "hi"}), ("cron.add", {"text": "", "every": "1h"})):
        (name,) = (name for name, value in params.items() if value == "")
        with pytest.raises(UsageError) as refused:
            await world.call(method, **params)
        assert refused.value.message == f"bad parameters for {method}: {name} is empty"
