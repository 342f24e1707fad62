"""What the doctor says about a machine, and what it sees of this one."""

import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from msgspec.structs import replace

from commands.checks import Check, CheckVerdict
from commands.cluster_checks import ClusterFacts, ListenFacts, NodeFacts, RayFacts
from commands.doctor_checks import (
    AgentFacts,
    AgentProbe,
    HttpFacts,
    MachineFacts,
    WorkspaceFacts,
    diagnose,
)
from commands.machine_facts import gather_facts
from doors.http.settings import HttpSettings
from doors.locations import LockHolder
from pool.settings import PoolSettings
from profiles import AgentSettings
from rpc.settings import RpcSettings
from settings.schema import Settings
from wire.version import VERSION

FAKE_AGENT = Path(__file__).parents[2] / "stress" / "acp_agent"
HEALTHY = MachineFacts(
    python=(3, 12), platform="linux", max_workers=4, worker_memory=150 * 1024**2,
    agents=(AgentFacts("main", "native", "python", "/usr/bin/python"),), node=None, cgroup=True, pidfd=True,
    subreaper=True, pipe_pages_soft=16_384, is_root=False, open_files=20_000, memory=8 * 1024**3, data_dir="/data",
    data_dir_problem=None, socket="/run/pool.sock",
)  # fmt: skip
HTTP = HttpFacts(
    url="http://127.0.0.1:8765", token="/data/http-token", is_local=True, is_token_made=True, token_problem=None,
    max_connections=512,
)  # fmt: skip
NODE = NodeFacts(
    name="n", host="n.lan", version=VERSION, slots=8, cores=16, memory=64 * 1024**3, group="gpu", seconds=0.94,
)  # fmt: skip
DIAL = ListenFacts(address="0.0.0.0:7645", token_file="/t")
RAY = RayFacts(address="10.0.0.1:6379", python="python3", version="2.60.0", auth_mode="token", token="RAY_AUTH_TOKEN")
KEEPING = AgentFacts("keeping", "acp", "x", "/x", keeps_workers=True)
PI = AgentFacts("pi", "pi", "pi", "/usr/bin/pi", needs_node=True)
OK, WARNING, MISSING = CheckVerdict.OK, CheckVerdict.WARNING, CheckVerdict.MISSING


def checks(**changes: Any) -> dict[str, Check]:
    return {check.name: check for check in diagnose(msgspec.structs.replace(HEALTHY, **changes))}


def gathered(data_dir: Path, **settings: Any) -> MachineFacts:
    return gather_facts(Settings(**settings), data_dir, Path("/s"))


def test_a_machine_that_has_everything_is_told_so() -> None:
    assert {check.verdict for check in diagnose(HEALTHY)} == {CheckVerdict.OK}
    assert all(check.found and not check.fix for check in diagnose(HEALTHY))


@pytest.mark.parametrize(
    ("name", "verdict", "changes"),
    [
        ("python", MISSING, {"python": (3, 10)}),
        ("agent main", MISSING, {"agents": (AgentFacts("main", "native", "nowhere"),)}),
        ("agent main", MISSING, {"agents": (AgentFacts("main", "native", problem="unknown tool x"),)}),
        ("key of main", WARNING, {"agents": (AgentFacts("main", "native", path="x", keyless_server="h"),)}),
        ("supervisor", OK, {"supervisor": 17}),
        ("workspace", MISSING, {"workspaces": (WorkspaceFacts("/w", "agents.main.workspace", "is none"),)}),
        ("workspaces", OK, {"workspaces": (WorkspaceFacts("/w", "agents.main.workspace"),)}),
        ("kept workers", WARNING, {"agents": (KEEPING, KEEPING), "max_workers": 2}),
        ("node", MISSING, {"agents": (PI,), "node": None}),
        ("node", MISSING, {"agents": (PI,), "node": "v18.19.0"}),
        ("node", MISSING, {"agents": (PI,), "node": "does not run: boom"}),
        ("node", OK, {"agents": (PI,), "node": "v20.1.0"}),
        ("memory", MISSING, {"max_workers": 64}),
        ("memory", WARNING, {"max_workers": 50}),
        ("open files", MISSING, {"open_files": 1024}),
        ("pipe quota", WARNING, {"pipe_pages_soft": 64}),
        ("pipe quota", OK, {"pipe_pages_soft": 64, "is_root": True}),
        ("pipe quota", OK, {"pipe_pages_soft": 0}),
        ("pipe quota", OK, {"pipe_pages_soft": None}),
        ("data directory", MISSING, {"data_dir_problem": "no right to write"}),
        ("socket path", MISSING, {"socket": "/" + "x" * 107}),
        ("pidfd", WARNING, {"pidfd": False}),
        ("subreaper", WARNING, {"subreaper": False}),
        ("cgroup", WARNING, {"cgroup": False}),
        ("orphans", WARNING, {"platform": "darwin"}),
    ],
)
def test_what_is_not_as_it_should_be_is_found_with_what_to_do(
    name: str, verdict: CheckVerdict, changes: dict[str, Any]
) -> None:
    check = checks(**changes)[name]
    assert check.verdict is verdict
    assert bool(check.fix) == (verdict is not CheckVerdict.OK)


def test_what_is_found_is_said_with_the_arithmetic_and_node_only_where_an_agent_needs_it() -> None:
    memory = checks(max_workers=64)["memory"]
    assert memory.found == "64 workers x 150 MiB = 9600 MiB of 8192 MiB"
    assert memory.fix == "set pool.max to 54 or less"
    assert "node" not in checks()
    for is_shared, words in ((True, "shared by all sessions"), (False, "a directory for each")):
        place = WorkspaceFacts("/w", "agents.main.workspace", is_shared=is_shared)
        assert words in checks(workspaces=(place,))["workspaces"].found


def test_workers_that_are_kept_are_no_matter_where_each_agent_can_have_one() -> None:
    assert "kept workers" not in checks(agents=(KEEPING, KEEPING), max_workers=3)


def test_the_facts_of_this_machine_can_be_gathered(tmp_path: Path) -> None:
    defined = {
        "pi": AgentSettings(dialect="pi", command=["/no/such/pi"]),
        "here": AgentSettings(command=["tool"], env={"PATH": str(tmp_path)}),
        "wrong": AgentSettings(tools=["no-such-tool"], extra_args=["--mode", "text"]),
    }
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    facts = gathered(tmp_path / "a" / "b", agents=defined, pool=PoolSettings(max=3))
    agents = {agent.name: agent for agent in facts.agents}
    assert agents["main"].path == sys.executable
    assert agents["pi"].path is None
    assert agents["here"].path == str(tool)
    assert agents["wrong"].problem
    assert facts.max_workers == 3
    assert facts.memory > 0
    assert facts.data_dir_problem is None
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").touch()
    assert gathered(tmp_path / "file" / "d").data_dir_problem == f"{tmp_path}/file is no directory"


def started(probe: AgentProbe, **facts: Any) -> dict[str, Check]:
    agent = AgentFacts("claude", "acp", "claude-agent-acp", "/bin/claude-agent-acp", probe=probe)
    return checks(agents=(msgspec.structs.replace(agent, **facts),))


READY = AgentProbe(program="claude-agent-acp", version="0.101.0", capabilities=("load",), mode="default", seconds=1.04)


def test_an_agent_that_was_started_is_told_with_its_version_and_what_it_can() -> None:
    found = started(READY)
    assert "claude-agent-acp 0.101.0, ready in 1.0 s; it can load" in found["agent claude"].found
    assert (found["agent claude"].verdict, "mode of claude" in found) == (OK, False)


def test_a_mode_that_approves_by_itself_is_warned_of_unless_it_was_chosen() -> None:
    auto = msgspec.structs.replace(READY, mode="auto")
    warning = started(auto, asking_mode="default")["mode of claude"]
    assert (warning.verdict, warning.fix) == (WARNING, 'set agents.claude.mode to "default"')
    assert "mode of claude" not in started(auto, chooses_mode=True)


@pytest.mark.parametrize(
    ("problem", "login", "fix"),
    [
        ("claude wants a login: run it", "claude", "claude"),
        ("claude wants a login: run it", "", "log in as it says"),
        ("exited with code 1", "claude", "in a terminal: /bin/claude-agent-acp --acp 'a b'"),
        ("the agent offers no mode 'x'; offered: ask", "claude", "set what it offers, or nothing: mode, model"),
    ],
)
def test_an_agent_that_does_not_start_is_told_in_its_words_with_what_to_do(problem: str, login: str, fix: str) -> None:
    check = started(AgentProbe(problem=problem, stderr="boom"), login=login, arguments=("--acp", "a b"))["agent claude"]
    assert (check.verdict, problem in check.found, fix in check.fix) == (MISSING, True, True)
    assert ("boom" in check.found) == ("login" not in problem)


def test_an_agent_of_a_known_make_that_is_not_there_is_told_with_how_to_install_it(tmp_path: Path) -> None:
    command = ["claude-agent-acp"]
    facts = gathered(
        tmp_path, agents={"claude": AgentSettings(dialect="acp", command=command, env={"PATH": str(tmp_path)})}
    )
    (found,) = [check for check in diagnose(facts) if check.name == "agent claude"]
    assert "npm install -g @agentclientprotocol/claude-agent-acp" in found.fix


@pytest.mark.process
def test_agents_are_started_up_to_their_first_conversation_and_none_is_left(tmp_path: Path) -> None:
    def fake(*quirks: str) -> AgentSettings:
        log = ("--log", str(tmp_path / "log"))
        words = [word for quirk in quirks for word in ("--quirk", quirk)]
        return AgentSettings(dialect="acp", command=[sys.executable, "-S", str(FAKE_AGENT), *log, *words])

    told: list[str] = []
    agents = {"good": fake("wrapper"), "locked": fake("auth"), "silent": fake("hang=session/new")}
    settings = Settings(agents={**agents, "gone": AgentSettings(dialect="acp", command=["/no/such/agent"])})
    facts = gather_facts(settings, tmp_path, Path("/s"), on_probe=told.extend, probe_seconds=3.0)
    probes = {agent.name: agent.probe for agent in facts.agents}
    assert told == ["good", "locked", "silent"]
    good, locked, silent = (probes[name] for name in told)
    assert good is not None
    assert (good.program, good.version, good.mode, "load" in good.capabilities) == ("fake-agent", "1.0.0", "ask", True)
    assert locked is not None
    assert "locked wants a login" in str(locked.problem)
    assert silent is not None
    assert "not ready after 3 s" in str(silent.problem)
    assert probes["gone"] is None
    pids = {int(line.split()[0]) for line in (tmp_path / "log").read_text().splitlines()}
    assert [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"] == []


@pytest.mark.parametrize(
    ("name", "verdict", "facts", "words"),
    [
        ("node n", OK, NODE, "ssh n.lan: pool .*, 8 slots, 16 cores, 64 GiB, group gpu, ready in 0.9 s"),
        ("node n", WARNING, replace(NODE, version="9.9"), "pool 9.9, .*; here it is pool .* the same version"),
        ("node n", MISSING, replace(NODE, problem="cannot run pool", fix="set it"), "cannot run pool set it"),
        ("node n", MISSING, replace(NODE, problem="out of luck"), "out of luck see what it says: ssh n.lan"),
        (
            "node n",
            MISSING,
            replace(NODE, problem="the directory /d cannot be made: no"),
            "let its user make /data",
        ),
        ("nodes dial", OK, DIAL, "0.0.0.0:7645 .TLS., with the token in /t"),
        (
            "nodes dial",
            MISSING,
            replace(DIAL, port_problem="it is taken"),
            "it is taken choose another port",
        ),
        ("nodes dial", MISSING, replace(DIAL, token_problem="is too short"), "is too short mend the token"),
        ("nodes dial", MISSING, replace(DIAL, has_openssl=False), "no program openssl install openssl"),
        ("ray", OK, RAY, "10.0.0.1:6379, by python3 with Ray 2.60.0"),
        ("ray", MISSING, replace(RAY, version=None), "python3 has no Ray set cluster.ray.python to a Python"),
        ("ray auth", OK, RAY, "RAY_AUTH_TOKEN"),
        ("ray auth", WARNING, replace(RAY, auth_mode=""), "run code on every machine.* RAY_AUTH_MODE=token"),
        ("ray auth", MISSING, replace(RAY, token=""), "there is none set RAY_AUTH_TOKEN"),
    ],
)
def test_other_machines_are_looked_at_where_the_settings_speak_of_some(
    name: str, verdict: CheckVerdict, facts: NodeFacts | ListenFacts | RayFacts, words: str
) -> None:
    cluster = ClusterFacts(
        data_dir="/data",
        nodes=(facts,) if isinstance(facts, NodeFacts) else (),
        listen=facts if isinstance(facts, ListenFacts) else None,
        ray=facts if isinstance(facts, RayFacts) else None,
    )
    check = checks(cluster=cluster)[name]
    assert check.verdict is verdict
    assert re.search(words, f"{check.found} {check.fix}"), check


def test_only_the_workers_of_this_machine_have_to_fit_into_it() -> None:
    there = {"max_workers": 500, "cluster": ClusterFacts(data_dir="/data")}
    assert checks(**there, workers_here=4)["memory"].verdict is OK
    assert checks(**there, workers_here=64)["memory"].fix == "set cluster.local_slots to 54 or less"


def http(**changes: Any) -> HttpFacts:
    return msgspec.structs.replace(HTTP, **changes)


@pytest.mark.parametrize(
    ("verdict", "facts", "words"),
    [
        (OK, None, "off"),
        (OK, HTTP, "http://127.0.0.1:8765, token: /data/http-token"),
        (MISSING, http(token_problem="others may use the token file"), "others may use"),
        (MISSING, http(port_problem="another process listens there"), "another process listens there"),
        (MISSING, http(is_local=False), "/data/http-token"),
        (WARNING, http(is_local=False, is_token_made=False), "http://127.0.0.1:8765"),
    ],
)
def test_the_http_door_is_told_with_its_address_and_where_its_token_is(
    verdict: CheckVerdict, facts: HttpFacts | None, words: str
) -> None:
    check = checks(http=facts)["http"]
    assert check.verdict is verdict
    assert words in check.found
    assert bool(check.fix) == (verdict is not CheckVerdict.OK)


def test_each_door_is_shown_with_where_it_is_and_none_of_a_port_that_is_not_open() -> None:
    found = {name: check.found.partition(",")[0] for name, check in checks(http=HTTP).items()}
    assert {name: found[name] for name in ("attach", "dashboard", "openai", "websocket", "metrics")} == {
        "attach": "pool attach --mode rpc",
        "dashboard": "http://127.0.0.1:8765/",
        "openai": "http://127.0.0.1:8765/v1",
        "websocket": "ws://127.0.0.1:8765/ws",
        "metrics": "http://127.0.0.1:8765/metrics",
    }
    assert checks(http=http(url="any free port"))["openai"].found.startswith("/v1 on that port")
    for facts in (None, http(token_problem="others may use the token file"), http(port_problem="x")):
        assert not {"dashboard", "openai", "websocket", "events", "metrics"} & checks(http=facts).keys()
    assert checks(open_files=1300)["open files"].verdict is OK
    assert checks(open_files=1300, http=HTTP)["open files"].verdict is MISSING, "its connections count"


def test_the_http_door_is_looked_at_as_the_settings_have_it(tmp_path: Path) -> None:
    def found(**settings: Any) -> HttpFacts | None:
        return gathered(tmp_path, http=HttpSettings(**settings)).http

    assert found() is None
    made = found(bind="127.0.0.1:0")
    assert made == http(url="any free port, which `pool status` shows", token=str(tmp_path / "http-token"))
    open_to_all = tmp_path / "token"
    open_to_all.write_text("0123456789abcdef")
    open_to_all.chmod(0o644)
    shared = found(bind="[::]:0", token_file=str(open_to_all))
    assert shared is not None
    assert (shared.is_local, shared.is_token_made) == (False, False)
    assert "chmod 600" in str(shared.token_problem)


def test_a_port_of_another_process_is_a_problem_and_that_of_the_supervisor_that_runs_is_none(tmp_path: Path) -> None:
    def facts() -> tuple[int | None, str | None]:
        found = gathered(tmp_path, http=HttpSettings(bind=bind))
        assert found.http is not None
        return found.supervisor, found.http.port_problem

    control = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as listener, socket.create_server(("127.0.0.1", 0)) as port:
        bind = f"127.0.0.1:{port.getsockname()[1]}"
        assert str(facts()[1]).startswith("another process listens there")
        listener.bind(str(control))
        listener.listen()
        (tmp_path / "supervisor.lock").write_bytes(msgspec.json.encode(LockHolder(os.getpid(), str(control))))
        assert facts() == (os.getpid(), None)
    assert facts() == (None, None)


def test_workspaces_are_looked_at_and_not_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    agents = {
        "good": AgentSettings(workspace=str(tmp_path / "made-later")),
        "file": AgentSettings(workspace=str(tmp_path / "file")),
        "gone": AgentSettings(workspace="/nowhere/at/all"),
    }
    facts = gathered(tmp_path / "data", agents=agents)
    assert {place.source: place.problem for place in facts.workspaces} == {
        "agents.good.workspace": None,
        "agents.file.workspace": "is no directory",
        "agents.gone.workspace": "cannot be made: there is no directory /nowhere/at",
    }
    assert not (tmp_path / "made-later").exists()


@pytest.mark.parametrize(
    ("agent", "server"),
    [
        (AgentSettings(provider="openai", model="m"), "api.openai.com"),
        (AgentSettings(model="openai/m"), "api.openai.com"),
        (AgentSettings(provider="openai", model="m", base_url="https://models.example/v1"), "models.example"),
        (AgentSettings(provider="openai", model="m", env={"OPENAI_API_KEY": "k"}), None),
        (AgentSettings(provider="openai", model="m", base_url="http://127.0.0.1:8000/v1"), None),
        (AgentSettings(provider="openai", model="m", env={"OPENAI_BASE_URL": "http://localhost:1/v1"}), None),
        (AgentSettings(), None),
        (AgentSettings(dialect="pi", provider="openai", model="m"), None),
    ],
)
def test_an_agent_that_would_ask_a_server_without_a_key_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: AgentSettings, server: str | None
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "that-of-the-terminal")
    agents = {"x": agent}
    found = {each.name: each for each in gathered(tmp_path, agents=agents).agents}
    assert found["x"].keyless_server == server
    passed = gathered(tmp_path, agents=agents, rpc=RpcSettings(env_passthrough=["OPENAI_API_KEY"])).agents
    assert [each.keyless_server for each in passed] == [None, None]


def test_a_file_that_cannot_be_executed_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    agents = {"notes": AgentSettings(command=[str(tmp_path / "notes")])}
    (agent,) = [each for each in gathered(tmp_path, agents=agents).agents if each.name == "notes"]
    assert agent.problem == f"{tmp_path}/notes is not executable"
