"""Sessions that a front end opens in a directory of its choice: which directory counts, and for how long."""

import re
from pathlib import Path

import pytest
import trio

from errors import UsageError
from gateway.sessions.session_entry import SessionEntry
from pool.agent_report import AgentReport
from profiles import AgentSettings, ProfilesSettings
from tests.gateway.world import WholeStore, World, open_world
from wire.messages import ContextSize, Ready


async def cwd_of(world: World, session: str) -> str:
    profile = await world.gateway.profile_of(session)
    assert profile is not None
    return profile.cwd


def project(tmp_path: Path, name: str) -> str:
    place = tmp_path / "projects" / name
    place.mkdir(parents=True)
    return str(place.resolve())


async def test_an_opened_session_works_in_its_directory_and_is_kept_before_it_is_answered(
    world: World, tmp_path: Path
) -> None:
    place = project(tmp_path, "a")
    opened = await world.call("sessions.open", cwd=place)
    session = opened["session"]
    assert re.fullmatch(r"acp-[a-z0-9]{12}", session)
    assert (opened["cwd"], opened["is_new"], opened["agent"], opened["role"]) == (place, True, "main", "default")
    assert session in {row.key for row in world.store.loaded.sessions}
    assert await cwd_of(world, session) == place
    await world.ask("hello", session)
    assert (await world.call("sessions.get", session=session))["cwd"] == place
    await world.ask("hello")
    assert await cwd_of(world, "alice") != place


async def test_sessions_of_one_directory_share_a_profile_and_with_it_workers(world: World, tmp_path: Path) -> None:
    place = project(tmp_path, "a")
    one, two = [(await world.call("sessions.open", cwd=place))["session"] for _ in range(2)]
    assert one != two
    assert await world.gateway.profile_of(one) == await world.gateway.profile_of(two)


async def test_the_directory_outlives_the_supervisor(tmp_path: Path) -> None:
    place, store = project(tmp_path, "a"), WholeStore()
    async with open_world(tmp_path / "data", store=store) as first:
        session = (await first.call("sessions.open", cwd=place))["session"]
    async with open_world(tmp_path / "data", store=store.after_a_crash()) as second:
        assert await cwd_of(second, session) == place


async def test_a_named_session_goes_where_it_is_opened_first_and_is_refused_elsewhere_once_it_has_a_conversation(
    world: World, tmp_path: Path
) -> None:
    one, two = project(tmp_path, "one"), project(tmp_path, "two")
    assert (await world.call("sessions.open", cwd=one, session="mine"))["is_new"]
    moved = await world.call("sessions.open", cwd=two, session="mine", exists=True)
    assert (moved["cwd"], moved["is_new"]) == (two, False), "nothing was said there yet"
    await world.ask("hello", "mine")
    with pytest.raises(UsageError, match=f"session mine works in {two}, not in {one}") as refused:
        await world.call("sessions.open", cwd=one, session="mine", exists=True)
    assert refused.value.details["cwd"] == two
    link = tmp_path / "link"
    link.symlink_to(two)
    assert (await world.call("sessions.open", cwd=str(link), session="mine", exists=True))["cwd"] == two


async def test_a_conversation_that_began_elsewhere_is_opened_in_its_agents_workspace_alone(
    world: World, tmp_path: Path
) -> None:
    await world.ask("hello")
    place = (await world.call("sessions.get", session="alice"))["cwd"]
    with pytest.raises(UsageError, match="session alice works in"):
        await world.call("sessions.open", cwd=project(tmp_path, "a"), session="alice")
    assert not (await world.call("sessions.open", cwd=place, session="alice"))["is_new"]


async def test_what_can_be_no_directory_of_a_session_is_refused_and_no_session_is_made(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "sessions").mkdir()
    (tmp_path / "file").write_text("")
    wrong = {
        "projects": "an absolute path",
        f"{tmp_path}/\0": "an absolute path",
        str(tmp_path / "nowhere"): "there is no directory",
        str(tmp_path / "file"): "there is no directory",
        str(tmp_path / "sessions"): "transcripts",
    }
    for cwd, words in wrong.items():
        with pytest.raises(UsageError, match=words):
            await world.call("sessions.open", cwd=cwd)
    for more, words in (({"agent": "nobody"}, "unknown agent"), ({"role": "nobody"}, "unknown role")):
        with pytest.raises(UsageError, match=words):
            await world.call("sessions.open", cwd=str(tmp_path), **more)
    with pytest.raises(UsageError, match="there is no session 'mine'"):
        await world.call("sessions.open", cwd=str(tmp_path), session="mine", exists=True)
    assert await world.call("sessions.list") == []


async def test_a_directory_that_is_gone_is_an_error_of_the_run_and_not_another_directory(
    world: World, tmp_path: Path
) -> None:
    place = project(tmp_path, "a")
    session = (await world.call("sessions.open", cwd=place))["session"]
    await trio.Path(place).rmdir()
    outcome = await world.ask("hello", session)
    assert outcome.error is not None
    assert "there is no directory" in outcome.error.message


async def test_sessions_are_listed_by_directory_also_by_one_that_is_a_link(world: World, tmp_path: Path) -> None:
    one, two = project(tmp_path, "one"), project(tmp_path, "two")
    mine = [(await world.call("sessions.open", cwd=one))["session"] for _ in range(2)]
    await world.call("sessions.open", cwd=two)
    link = tmp_path / "link"
    link.symlink_to(one)
    for cwd in (one, str(link)):
        assert {view["key"] for view in await world.call("sessions.list", cwd=cwd)} == set(mine)
    assert len(await world.call("sessions.list")) == 3
    assert await world.call("sessions.list", cwd="/nowhere") == []


async def test_how_much_of_its_context_a_conversation_uses_is_known_until_it_is_reset(
    world: World, tmp_path: Path
) -> None:
    asked = {"cwd": project(tmp_path, "a"), "session": "mine"}
    assert (await world.call("sessions.open", **asked))["context"] is None
    await world.ask("context", "mine")
    known = {"used": 120, "size": 1000}
    assert (await world.call("sessions.open", **asked))["context"] == known
    assert (await world.call("sessions.get", session="mine"))["context"] == known
    await world.call("sessions.reset", session="mine")
    assert (await world.call("sessions.get", session="mine"))["context"] is None


def test_what_a_worker_reports_of_the_context_counts_before_what_the_last_turn_left() -> None:
    entry = SessionEntry(key="s", agent="a", role="r", transcript=None, created_at=1.0, updated_at=2.0)
    entry.context = ContextSize(1, 9)
    assert entry.known_context(None) == entry.known_context(AgentReport()) == entry.context
    assert entry.known_context(AgentReport(context=ContextSize(2, 9))) == ContextSize(2, 9)


async def test_a_session_offers_what_its_agent_has_said_else_what_the_settings_name(tmp_path: Path) -> None:
    definition = AgentSettings(dialect="acp", command=["x"], model="m1")
    async with open_world(tmp_path / "data", profiles=ProfilesSettings(agents={"a": definition})) as world:
        asked = {"cwd": project(tmp_path, "a"), "agent": "a", "session": "mine"}
        options = (await world.call("sessions.open", **asked))["options"]
        assert (options["models"], options["any_model"]) == (["m1"], True)
        assert options["thinking_levels"] == ["off", "minimal", "low", "medium", "high", "xhigh"]
        ready = Ready(models=["m1", "m2", "x" * 201], thinking_levels=["low", "ultra"])
        world.gateway.pool.agent_records.note_ready("a", ready)
        await world.call("sessions.patch", session="mine", model="m2")
        offered = {"models": ["m1", "m2"], "any_model": False, "thinking_levels": ["low", "ultra"]}
        assert await world.call("sessions.options", session="mine") == {"model": "m2", "thinking": None, **offered}
        await world.call("sessions.patch", session="mine", thinking="ultra")
        assert (await world.call("sessions.options", session="mine"))["thinking"] == "ultra"
        with pytest.raises(UsageError, match="there is no session 'other'"):
            await world.call("sessions.options", session="other")


SERVER = {"name": "files", "command": "mcp", "args": [], "env": [{"name": "API_KEY", "value": "s3cret-value"}]}


async def test_mcp_servers_reach_the_conversation_and_other_ones_have_it_loaded_again_and_nothing_shows_them(
    tmp_path: Path,
) -> None:
    profiles = ProfilesSettings(agents={"a": AgentSettings(dialect="acp", command=["x"])})
    async with open_world(tmp_path / "data", profiles=profiles) as world:
        asked = {"cwd": project(tmp_path, "a"), "agent": "a", "session": "mine"}
        opened = await world.call("sessions.open", **asked, mcp_servers=[SERVER])
        assert opened["ignored"] == []
        await world.ask("hello", "mine")
        assert world.launcher.asked("new_session") == [{"mcp_servers": [SERVER]}]
        for same in ({}, {"mcp_servers": [SERVER]}):
            await world.call("sessions.open", **asked, **same)
            await world.ask("hello", "mine")
        assert len(world.launcher.asked("new_session")) == 1
        assert world.launcher.asked("switch_session") == []
        shown = [opened, await world.call("sessions.list"), await world.call("status"), vars(world.store)]
        assert "s3cret-value" not in str(shown)
        await world.call("sessions.open", **asked, mcp_servers=[{**SERVER, "name": "docs"}])
        await world.ask("hello", "mine")
        (again,) = world.launcher.asked("switch_session")
        assert again["mcp_servers"] == [{**SERVER, "name": "docs"}]
        await world.call("sessions.delete", session="mine")
        assert world.gateway.pool.declared_servers.of("mine") == []


async def test_an_agent_that_takes_no_mcp_servers_has_them_named_as_ignored(world: World, tmp_path: Path) -> None:
    asked = {"cwd": project(tmp_path, "a"), "session": "mine"}
    assert (await world.call("sessions.open", **asked, mcp_servers=[SERVER]))["ignored"] == ["mcp_servers"]
    assert (await world.call("sessions.open", **asked, mcp_servers=[]))["ignored"] == []
    assert world.gateway.pool.declared_servers.of("mine") == []


async def test_more_bytes_of_mcp_servers_than_a_session_may_have_are_refused(world: World, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mcp_servers: the servers have 65,\d+ bytes, and 65,536 are taken"):
        await world.call("sessions.open", cwd=project(tmp_path, "a"), mcp_servers=[{**SERVER, "args": ["x" * 65_536]}])
    assert await world.call("sessions.list") == []
