"""What the doctor says about a machine, and what it sees of this one."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from doors.doctor import AgentFacts, Check, Facts, HttpFacts, Verdict, examine
from doors.facts import gather_facts
from doors.http.settings import HttpSettings
from pool.settings import PoolSettings
from profiles import AgentSettings, ProfilesSettings
from settings import Settings

HEALTHY = Facts(
    python=(3, 12),
    platform="linux",
    max_workers=4,
    worker_memory=150 * 1024**2,
    agents=(AgentFacts("main", "native", "python", "/usr/bin/python"),),
    node=None,
    cgroup=True,
    pidfd=True,
    subreaper=True,
    pipe_pages_soft=16_384,
    is_root=False,
    open_files=20_000,
    memory=8 * 1024**3,
    data_dir="/data",
    data_dir_problem=None,
    socket="/run/pool.sock",
)
HTTP = HttpFacts(
    url="http://127.0.0.1:8765",
    token="/data/http-token",
    is_local=True,
    is_token_made=True,
    token_problem=None,
    max_connections=512,
)
PI = AgentFacts("pi", "pi", "pi", "/usr/bin/pi")


def checks(**changes: Any) -> dict[str, Check]:
    return {check.name: check for check in examine(msgspec.structs.replace(HEALTHY, **changes))}


def test_a_machine_that_has_everything_is_told_so() -> None:
    assert {check.verdict for check in examine(HEALTHY)} == {Verdict.OK}
    assert all(check.found and not check.fix for check in examine(HEALTHY))


@pytest.mark.parametrize(
    ("name", "verdict", "changes"),
    [
        ("python", Verdict.MISSING, {"python": (3, 10)}),
        ("agent main", Verdict.MISSING, {"agents": (AgentFacts("main", "native", "nowhere"),)}),
        ("agent main", Verdict.MISSING, {"agents": (AgentFacts("main", "native", problem="unknown tool x"),)}),
        ("node", Verdict.MISSING, {"agents": (PI,), "node": None}),
        ("node", Verdict.MISSING, {"agents": (PI,), "node": "v18.19.0"}),
        ("node", Verdict.MISSING, {"agents": (PI,), "node": "does not run: boom"}),
        ("node", Verdict.OK, {"agents": (PI,), "node": "v20.1.0"}),
        ("memory", Verdict.MISSING, {"max_workers": 64}),
        ("memory", Verdict.WARNING, {"max_workers": 50}),
        ("open files", Verdict.MISSING, {"open_files": 1024}),
        ("pipe quota", Verdict.WARNING, {"pipe_pages_soft": 64}),
        ("pipe quota", Verdict.OK, {"pipe_pages_soft": 64, "is_root": True}),
        ("pipe quota", Verdict.OK, {"pipe_pages_soft": 0}),
        ("pipe quota", Verdict.OK, {"pipe_pages_soft": None}),
        ("data directory", Verdict.MISSING, {"data_dir_problem": "no right to write"}),
        ("socket path", Verdict.MISSING, {"socket": "/" + "x" * 107}),
        ("pidfd", Verdict.WARNING, {"pidfd": False}),
        ("subreaper", Verdict.WARNING, {"subreaper": False}),
        ("cgroup", Verdict.WARNING, {"cgroup": False}),
        ("orphans", Verdict.WARNING, {"platform": "darwin"}),
    ],
)
def test_what_is_not_as_it_should_be_is_found_with_what_to_do(
    name: str, verdict: Verdict, changes: dict[str, Any]
) -> None:
    check = checks(**changes)[name]
    assert check.verdict is verdict
    assert bool(check.fix) == (verdict is not Verdict.OK)


def test_memory_is_refused_with_the_arithmetic() -> None:
    check = checks(max_workers=64)["memory"]
    assert check.found == "64 workers x 150 MiB = 9600 MiB of 8192 MiB"
    assert check.fix == "set pool.max to 54 or less"


def test_node_is_nobodys_business_where_no_agent_needs_it() -> None:
    assert "node" not in checks()


def test_the_facts_of_this_machine_can_be_gathered(tmp_path: Path) -> None:
    profiles = Settings(
        agents={
            "pi": AgentSettings(dialect="pi", command=["/no/such/pi"]),
            "here": AgentSettings(command=["tool"], env={"PATH": str(tmp_path)}),
            "wrong": AgentSettings(tools=["no-such-tool"], extra_args=["--mode", "text"]),
        }
    )
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    facts = gather_facts(
        PoolSettings(max=3), profiles, HttpSettings(), data_dir=tmp_path / "a" / "b", socket=Path("/s")
    )
    agents = {agent.name: agent for agent in facts.agents}
    assert agents["main"].path == sys.executable
    assert agents["pi"].path is None
    assert agents["here"].path == str(tool)
    assert agents["wrong"].problem
    assert facts.max_workers == 3
    assert facts.memory > 0
    assert facts.data_dir_problem is None
    assert not (tmp_path / "a").exists()


def test_a_data_directory_that_cannot_be_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    facts = gather_facts(
        PoolSettings(), ProfilesSettings(), HttpSettings(), data_dir=tmp_path / "file" / "d", socket=Path("/s")
    )
    assert facts.data_dir_problem == f"{tmp_path}/file is no directory"


def http(**changes: Any) -> HttpFacts:
    return msgspec.structs.replace(HTTP, **changes)


@pytest.mark.parametrize(
    ("verdict", "facts", "words"),
    [
        (Verdict.OK, None, "off"),
        (Verdict.OK, HTTP, "http://127.0.0.1:8765, token: /data/http-token"),
        (Verdict.MISSING, http(token_problem="others may use the token file"), "others may use"),
        (Verdict.MISSING, http(is_local=False), "/data/http-token"),
        (Verdict.WARNING, http(is_local=False, is_token_made=False), "http://127.0.0.1:8765"),
    ],
)
def test_the_http_door_is_told_with_its_address_and_where_its_token_is(
    verdict: Verdict, facts: HttpFacts | None, words: str
) -> None:
    check = checks(http=facts)["http"]
    assert check.verdict is verdict
    assert words in check.found
    assert bool(check.fix) == (verdict is not Verdict.OK)


def test_each_door_is_told_with_where_it_is() -> None:
    found = {name: check.found.partition(",")[0] for name, check in checks(http=HTTP).items()}
    assert found["attach"] == "pool attach --mode rpc"
    assert found["dashboard"] == "http://127.0.0.1:8765/"
    assert found["openai"] == "http://127.0.0.1:8765/v1"
    assert found["websocket"] == "ws://127.0.0.1:8765/ws"
    assert found["metrics"] == "http://127.0.0.1:8765/metrics"
    assert checks(http=http(url="any free port"))["openai"].found.startswith("/v1 on that port")


@pytest.mark.parametrize("facts", [None, http(token_problem="others may use the token file")])
def test_doors_on_a_port_that_is_not_open_are_not_told(facts: HttpFacts | None) -> None:
    assert not {"dashboard", "openai", "websocket", "events", "metrics"} & checks(http=facts).keys()


def test_the_connections_of_the_http_door_count_as_open_files() -> None:
    assert checks(open_files=1300)["open files"].verdict is Verdict.OK
    assert checks(open_files=1300, http=HTTP)["open files"].verdict is Verdict.MISSING


def test_the_http_door_is_looked_at_as_the_settings_have_it(tmp_path: Path) -> None:
    def found(**settings: Any) -> HttpFacts | None:
        return gather_facts(
            PoolSettings(), ProfilesSettings(), HttpSettings(**settings), data_dir=tmp_path, socket=Path("/s")
        ).http

    assert found() is None
    made = found(bind="127.0.0.1:8765")
    assert made == http(token=str(tmp_path / "http-token"))
    open_to_all = tmp_path / "token"
    open_to_all.write_text("0123456789abcdef")
    open_to_all.chmod(0o644)
    shared = found(bind="[::]:0", token_file=str(open_to_all))
    assert shared is not None
    assert (shared.is_local, shared.is_token_made) == (False, False)
    assert "chmod 600" in str(shared.token_problem)
