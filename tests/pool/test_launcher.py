"""What a local worker is started with."""

import os
import secrets
import signal
import sys
from pathlib import Path

import msgspec
import pytest
import trio

from pool.launcher import LocalLauncher
from pool.plan import dialect_for, worker_plan
from pool.settings import PoolSettings
from pool.shell import Pool
from profiles import AgentSettings, ProfilesSettings, build_profile
from rpc.host import WorkerPlan
from rpc.prompt_files import remove_leftover_prompts
from rpc.settings import RpcSettings
from wire.units import Seconds

pytestmark = pytest.mark.process
ACP_AGENT = Path(__file__).resolve().parents[2] / "stress" / "acp_agent"


async def environment_of_a_tool(launcher: LocalLauncher, profiles: ProfilesSettings, cwd: Path) -> dict[str, str]:
    """What a command that the bundled agent runs finds in its environment."""
    profile = build_profile(profiles, "main", "default", str(cwd))
    command = msgspec.json.encode({"command": "env -0 > env.txt"}).decode()
    async with Pool(PoolSettings(min=0, max=1), launcher=launcher) as pool, pool.lease("s", profile) as lease:
        await lease.prompt(f"TOOL:exec {command}").wait()
    pairs = (cwd / "env.txt").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


async def test_a_worker_inherits_what_is_let_through_its_profile_and_its_marker_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_SECRET", "of the supervisor")
    profiles = ProfilesSettings(agents={"main": AgentSettings(env={"MINE": "yes"})})
    instance = secrets.token_hex(8)
    launcher = LocalLauncher(data_dir=tmp_path / "data", instance=instance, base_env=os.environ)
    try:
        with trio.fail_after(25):
            found = await environment_of_a_tool(launcher, profiles, tmp_path)
    finally:
        launcher.close()
    assert found["MINE"] == "yes"
    assert found["POOL_WORKER_ID"] == f"{instance}:w1"
    assert "SOME_SECRET" not in found
    assert "POOL_WORKER_PARENT" not in found


def test_a_plan_holds_what_is_the_profiles_own_and_survives_being_sent(tmp_path: Path) -> None:
    agent = AgentSettings(env={"MINE": "yes"}, system_prompt="canary-prompt")
    profile = build_profile(ProfilesSettings(agents={"main": agent}), "main", "default", str(tmp_path))
    plan = worker_plan("w1", profile, Path("/data"))
    assert msgspec.json.decode(msgspec.json.encode(plan), type=WorkerPlan) == plan
    assert (plan.env, plan.cwd, plan.is_bundled) == ((("MINE", "yes"),), str(tmp_path), True)
    assert plan.argv[-2:] == ("--session-dir", "/data/sessions/main")
    (prompt,) = plan.prompts
    assert (prompt.text, prompt.prefix, plan.argv[prompt.at]) == ("canary-prompt", "@", "canary-prompt")
    assert "canary-prompt" not in repr(plan)


async def test_a_spawned_worker_reads_its_prompt_from_a_file_that_is_gone_with_it(tmp_path: Path) -> None:
    profiles = ProfilesSettings(agents={"main": AgentSettings(system_prompt="canary-prompt")})
    launcher = LocalLauncher(data_dir=tmp_path / "data")
    profile = build_profile(profiles, "main", "default", str(tmp_path))
    async with Pool(PoolSettings(min=0, max=1), launcher=launcher) as pool, pool.lease("s", profile) as lease:
        with trio.fail_after(25):
            assert "canary-prompt" in (await lease.prompt("SYSTEM").wait()).text
        (prompt,) = (tmp_path / "data" / "prompts").iterdir()
        assert (prompt.stat().st_mode & 0o777, prompt.read_text()) == (0o600, "canary-prompt")
        assert await trio.Path(f"/proc/{lease.pid}/cmdline").read_bytes() == b"pool: worker w1 main\0"
    assert not prompt.exists()
    launcher.close()
    prompt.write_text("of a supervisor that was killed")
    remove_leftover_prompts(prompt.parent)
    assert not prompt.exists()


async def test_transcripts_logs_and_directories_are_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    launcher = LocalLauncher(data_dir=data)
    try:
        with trio.fail_after(25):
            await environment_of_a_tool(launcher, ProfilesSettings(), tmp_path)
    finally:
        launcher.close()
    files = [path for path in data.rglob("*") if path.is_file()]
    assert any(path.parent.name == "main" for path in files)
    for path in data.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


async def test_a_worker_killed_before_a_sessions_first_message_leaves_none_and_the_next_one_begins_it() -> None:
    profile = build_profile(ProfilesSettings(), "main", "default", "/")
    async with LocalLauncher.temporary() as launcher, Pool(PoolSettings(min=0, max=1), launcher=launcher) as pool:
        with trio.fail_after(25):
            async with pool.lease("s", profile) as lease:
                unwritten = (await lease.state()).session_file
                assert lease.pid is not None
                os.kill(lease.pid, signal.SIGKILL)
                await lease.wait_ended()
            async with pool.lease("s", profile) as lease:
                await lease.prompt("alpha").wait()
                written = (await lease.state()).session_file
                assert lease.pid is not None
                os.kill(lease.pid, signal.SIGKILL)
                await lease.wait_ended()
            assert [path for path in (unwritten, written) if path and await trio.Path(path).exists()] == [written]
            async with pool.lease("s", profile) as lease:
                assert (await lease.prompt("RECALL").wait()).text == 'Earlier you said: ["alpha"]'


def test_a_dialog_waits_where_somebody_attends_to_its_worker_and_is_cancelled_elsewhere(tmp_path: Path) -> None:
    profiles = ProfilesSettings(agents={"main": AgentSettings(dialect="pi")})
    profile = build_profile(profiles, "main", "default", str(tmp_path))
    question = b'{"type":"extension_ui_request","id":"d1","method":"confirm","title":"Sure?"}\n'
    answers = []
    for attended in (True, False):
        dialect = dialect_for(profile, RpcSettings(), tmp_path, lambda attended=attended: attended)  # type: ignore[misc]
        dialect.open(0.0)
        answers.append(dialect.receive(question, 0.0).outgoing)
    assert answers == [[], [b'{"type":"extension_ui_response","cancelled":true,"id":"d1"}\n']]


async def test_an_agent_of_the_protocol_gets_five_seconds_to_end_an_aborted_turn_unless_the_settings_give_more(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-S", str(ACP_AGENT)]
    definition = AgentSettings(dialect="acp", command=command, workspace=str(tmp_path))
    profiles = ProfilesSettings(agents={"main": AgentSettings(), "acp": definition})
    found = []
    for name, grace in (("main", 0.5), ("acp", 0.5), ("acp", 9.0)):
        settings = RpcSettings(abort_grace=Seconds(grace))
        profile = build_profile(profiles, name, "default", str(tmp_path))
        async with (
            LocalLauncher.temporary(settings) as launcher,
            launcher.open("w1", profile, force=trio.Event()) as worker,
        ):
            found.append(worker.client.settings.abort_grace)
    assert found == [0.5, 5.0, 9.0]
