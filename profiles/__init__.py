"""What a worker can do: capability profiles, their signatures, how they match, and the command line they start with."""

from profiles.build import build_profile, workspace_of
from profiles.command_line import allows_tool, prompt_arguments, worker_argv
from profiles.dialects import DIALECTS
from profiles.matching import MatchLevel, first_difference, match, surplus
from profiles.profile import CapabilityProfile, Resources, SoftArgs, make_profile, with_soft
from profiles.settings import AgentSettings, ProfilesSettings, RoleSettings, SkillSettings

__all__ = [
    "DIALECTS",
    "AgentSettings",
    "CapabilityProfile",
    "MatchLevel",
    "ProfilesSettings",
    "Resources",
    "RoleSettings",
    "SkillSettings",
    "SoftArgs",
    "allows_tool",
    "build_profile",
    "first_difference",
    "make_profile",
    "match",
    "prompt_arguments",
    "surplus",
    "with_soft",
    "worker_argv",
    "workspace_of",
]
