"""MCP servers that front ends declare: which worker gets them, and when they are dropped."""

from typing import Any

from pool.declared_servers import DeclaredServers
from pool.shell import Pool
from tests.pool.memory_workers import MemoryLauncher, MemoryWorker, make_pool, plain_profile

SERVERS = [{"name": "files", "command": "x", "args": [], "env": [{"name": "API_KEY", "value": "s3cret-value"}]}]


class NotingWorker(MemoryWorker):
    """Notes the parameters of what gives it a conversation."""

    given: list[dict[str, Any]]

    def new_session(self, request: dict[str, Any]) -> dict[str, Any]:
        self.given.append(request["params"])
        return super().new_session(request)

    def switch_session(self, request: dict[str, Any]) -> dict[str, Any]:
        self.given.append(request["params"])
        return super().switch_session(request)

    def get_state(self, request: dict[str, Any]) -> dict[str, Any]:
        self.file = self.file or self.new_session({"params": {"spare": True}})["session_id"]
        return super().get_state(request)


class NotingLauncher(MemoryLauncher):
    def __init__(self) -> None:
        super().__init__()
        self.given: list[dict[str, Any]] = []
        self.kind = type("Noting", (NotingWorker,), {"given": self.given})


async def say(pool: Pool, session: str, dialect: str) -> None:
    async with pool.lease(session, plain_profile(dialect=dialect)) as lease:
        await lease.prompt("hello").wait()


async def test_a_sessions_servers_go_to_a_begin_and_to_each_resume_and_to_no_other_session() -> None:
    launcher = NotingLauncher()
    async with make_pool(launcher, max=1) as pool:
        pool.declared_servers.declare("alice", SERVERS)
        await say(pool, "alice", "acp")
        assert launcher.given == [{"mcp_servers": SERVERS}], "not the conversation that it has begun by itself"
        assert launcher.live["w1"].client.mask.text("s3cret-value") == "***"
        await say(pool, "bob", "acp")
        assert launcher.live["w1"].client.mask.text("s3cret-value") == "***", "her servers may still run"
        await say(pool, "alice", "acp")
    assert launcher.given[1:] == [{}, {"session_file": "/t/0", "mcp_servers": SERVERS}]


async def test_a_program_that_takes_no_servers_is_given_none() -> None:
    launcher = NotingLauncher()
    async with make_pool(launcher, max=1) as pool:
        pool.declared_servers.declare("alice", SERVERS)
        await say(pool, "alice", "native")
        await say(pool, "bob", "native")
        await say(pool, "alice", "native")
    assert "mcp_servers" not in str(launcher.given)
    assert len(launcher.given) == 3


def test_above_the_limit_those_declared_longest_ago_are_dropped() -> None:
    declared = DeclaredServers(max_bytes=250)
    assert declared.declare("a", SERVERS)
    assert declared.declare("b", SERVERS)
    assert not declared.declare("a", SERVERS), "the same ones"
    assert declared.declare("c", SERVERS)
    assert [session for session in "abc" if declared.of(session)] == ["a", "c"]
    assert declared.declare("a", [])
    assert declared.of("a") == []
    declared.forget("c")
    assert declared.declare("d", SERVERS)
    assert declared.declare("e", SERVERS)
    assert [session for session in "acde" if declared.of(session)] == ["d", "e"]
