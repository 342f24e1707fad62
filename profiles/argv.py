"""From a profile to the command line that starts a worker of it, in the flags that both dialects share."""

from collections.abc import Iterator
from itertools import pairwise

from profiles.profile import CapabilityProfile

__all__ = ["allows_tool", "worker_argv"]


def worker_argv(profile: CapabilityProfile, session_dir: str | None) -> tuple[str, ...]:
    """Command, hard arguments, soft arguments, resources, and ``--session-dir`` where workers keep transcripts.

    ``session_dir`` is one directory for all workers of a pool, never a session's own: any worker may be asked to go
    on with any conversation. That is why it is no part of the profile; one that names its own keeps it.
    """
    own_dir = None if "--session-dir" in profile.hard_args else session_dir
    return (*profile.command, *profile.hard_args, *_soft(profile), *_resources(profile), *_session_dir(own_dir))


def _soft(profile: CapabilityProfile) -> Iterator[str]:
    soft = profile.soft
    for flag, value in (("--provider", soft.provider), ("--model", soft.model), ("--thinking", soft.thinking)):
        if value is not None:
            yield from (flag, value)


def _resources(profile: CapabilityProfile) -> Iterator[str]:
    resources = profile.resources
    for flag, names in (
        ("--skill", resources.skills),
        ("--extension", resources.extensions),
        ("--prompt-template", resources.prompt_templates),
    ):
        for name in names:
            yield from (flag, name)


def _session_dir(session_dir: str | None) -> tuple[str, ...]:
    return () if session_dir is None else ("--session-dir", session_dir)


def allows_tool(profile: CapabilityProfile, tool: str) -> bool:
    """Whether a worker of this profile has the tool: what ``--tools`` lists, or every known one without it.

    Where arguments contradict each other, or a prompt reads like a flag, the answer is the narrower one.
    """
    arguments = profile.hard_args
    if "--no-tools" in arguments:
        return False
    allow_lists = [value.split(",") for flag, value in pairwise(arguments) if flag == "--tools"]
    if allow_lists:
        return all(tool in allowed for allowed in allow_lists)
    return "--no-builtin-tools" not in arguments
