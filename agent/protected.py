"""Hooks and skills decide about the agent, or run with its rights: its own tools cannot replace them.

Hook files that tools could write without approval are refused when the agent starts, since the next worker would run
them. Skills may be in the working directory; ``write`` and ``edit`` do not change them.
"""

from collections.abc import Iterable
from pathlib import Path

from agent.policy import Policy, is_free
from agent.skills import Skill
from wire.ownership import places_of

__all__ = ["Exposed", "check_exposure", "free_writers", "protected_places"]

_WRITERS = ("write", "edit", "exec")
"""Tools that can replace a file in the working directory."""


class Exposed(Exception):
    """Tools could replace what is to run as code; the message says what, why and what to do."""


def check_exposure(hooks: Iterable[str], skills: Iterable[Skill], cwd: str, free: list[str]) -> None:
    """``free``: the tools of ``_WRITERS`` that run without approval. Raises Exposed."""
    if not free:
        return
    tools = " and ".join(free)
    for path in hooks:
        if any(place.is_relative_to(cwd) for place in places_of(path)):
            raise Exposed(
                f"the hooks {path} lie in the working directory {cwd}, where {tools} could replace them; "
                "keep them elsewhere, such as in ~/.config/agent"
            )
    for skill in skills:
        if Path(cwd).is_relative_to(skill.directory):
            raise Exposed(
                f"the skill {skill.path} takes up the whole working directory {cwd}, where {tools} could replace its "
                "files; give it a directory of its own"
            )


def free_writers(tools: Iterable[str], policy: Policy) -> list[str]:
    """Those of ``_WRITERS`` among the tools that run without a person's approval."""
    return [name for name in _WRITERS if name in tools and is_free(name, policy)]


def protected_places(hooks: Iterable[str], skills: Iterable[Skill]) -> tuple[str, ...]:
    """Real paths of files and directories that no file tool may write."""
    files = [place for path in hooks for place in places_of(path)]
    caches = [place.parent / "__pycache__" for place in files]
    return tuple(dict.fromkeys([*map(str, [*files, *caches]), *(skill.directory for skill in skills)]))
