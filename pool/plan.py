"""From a profile to what its workers are started with and spoken to in, on whichever machine they run. Pure."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from profiles import DIALECTS, CapabilityProfile, allows_tool, prompt_arguments, worker_argv
from rpc.acp.options import AcpOptions
from rpc.dialect import Dialect, make_dialect
from rpc.host import WorkerPlan, transcript_dir
from rpc.prompt_files import PromptArgument
from rpc.settings import RpcSettings
from wire.units import Seconds
from wire.version import VERSION


def worker_plan(worker_id: str, profile: CapabilityProfile, data_dir: Path) -> WorkerPlan:
    """What a worker of the profile is started with; ``data_dir``: the supervisor's."""
    traits = DIALECTS[profile.dialect]
    prefix = traits.prompt_file("")
    return WorkerPlan(
        worker_id=worker_id,
        agent=profile.agent,
        argv=worker_argv(profile, str(transcript_dir(data_dir, profile.agent))),
        env=profile.env,
        cwd=profile.cwd,
        prompts=tuple(PromptArgument(at, text, prefix) for at, text in prompt_arguments(profile)),
        secrets=profile.secrets,
        own_agent_dir=traits.private_agent_dir,
        is_bundled=profile.command == DIALECTS["native"].default_command,
        may_be_wrapper=traits.may_be_wrapper,
        prepare=profile.prepare,
    )


def settings_for(settings: RpcSettings, profile: CapabilityProfile) -> RpcSettings:
    """The settings of one worker: programs of some dialects need longer to end a turn that is aborted."""
    grace = max(settings.abort_grace, Seconds(DIALECTS[profile.dialect].abort_seconds))
    return msgspec.structs.replace(settings, abort_grace=grace)


def dialect_for(
    profile: CapabilityProfile, settings: RpcSettings, data_dir: Path, attended: Callable[[], bool]
) -> Dialect:
    """The dialect of one worker; ``attended``: whether a front end is there to answer its dialogs."""
    return make_dialect(
        profile.dialect,
        settings=settings,
        allow_bash=allows_tool(profile, "bash"),
        attended=attended,
        in_memory="--no-session" in worker_argv(profile, ""),
        acp=_acp_options(profile, data_dir) if DIALECTS[profile.dialect].keeps_journal else None,
    )


def _acp_options(profile: CapabilityProfile, data_dir: Path) -> AcpOptions:
    declared = {name: msgspec.json.decode(text) for name, text in profile.declared}
    return AcpOptions(
        agent=profile.agent,
        cwd=profile.cwd,
        journal_dir=str(transcript_dir(data_dir, profile.agent)),
        client_version=VERSION,
        mode=profile.soft.mode,
        model=profile.soft.model,
        thinking=profile.soft.thinking,
        options=msgspec.json.decode(profile.soft.options or "{}"),
        auth_method=declared.get("auth_method"),
        instructions=declared.get("preamble", ""),
        mcp_servers=declared.get("mcp_servers", []),
        permission_mode=declared["permission_mode"],
    )
