"""Plan of a reload: which changed settings apply at once, and which need a restart."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from profiles import CapabilityProfile
from settings.problems import KeyPath, Problem
from settings.schema import Settings, as_table

NEEDS_RESTART: tuple[tuple[str, ...], ...] = (
    ("data_dir",),
    ("socket",),
    ("store",),
    ("log",),
    ("telemetry",),
    ("http", "bind"),
    ("pool", "fork_server"),
    *(("cluster", name) for name in ("listen", "lease", "silence", "fence_margin", "transcripts", "shared_dir")),
    *(("cluster", name) for name in ("groups", "nodes", "ray")),
    ("gateway", "events"),
    ("gateway", "hooks"),
)
"""Keys of the ``Settings`` struct that are read once, when the supervisor starts."""


class ReloadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The way from one state of the settings to another. Keys are spelt as in the file."""

    settings: Settings
    """What holds from now on: the new settings, with the old values of what only a restart can change."""
    changed: tuple[str, ...]
    """Keys that take effect at once: for what is done from now on, not for what is under way."""
    restart: tuple[str, ...]
    """Keys whose new values need a restart; reported as a warning."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing has changed at all."""
        return not self.changed and not self.restart


def plan_reload(old: Settings, new: Settings) -> ReloadPlan:
    """Compare what holds with what the file says now. Pure; both have been checked."""
    effective = new
    for path in NEEDS_RESTART:
        effective = _with_value_of(old, effective, path)
    return ReloadPlan(settings=effective, changed=_differences(old, effective), restart=_differences(effective, new))


def changed_profiles(old: Iterable[CapabilityProfile], new: Iterable[CapabilityProfile]) -> frozenset[str] | None:
    """The signatures that workers may have from now on, for ``pool.stimuli.ProfilesChanged``.

    ``old`` and ``new``: what all agents in all roles (and sessions with settings of their own) yielded before and yield
    now. None where every old one is still among the new ones, so that no worker is out of date.
    """
    before, after = ({profile.signature for profile in profiles} for profiles in (old, new))
    return None if before <= after else frozenset(after)


def _with_value_of(source: Any, target: Any, path: tuple[str, ...]) -> Any:
    name, *rest = path
    value = getattr(source, name)
    if rest:
        value = _with_value_of(value, getattr(target, name), tuple(rest))
    return msgspec.structs.replace(target, **{name: value})


def _differences(old: Settings, new: Settings) -> tuple[str, ...]:
    before, after = as_table(old), as_table(new)
    return tuple(str(Problem(path, "")).removesuffix(": ") for path in _changed_keys(before, after, ()))


def _changed_keys(old: Any, new: Any, path: KeyPath) -> Iterator[KeyPath]:
    """The innermost keys that differ; a table that is new or gone is one key, and so is a list."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        if old != new:
            yield path
        return
    for key in {**old, **new}:
        yield from _changed_keys(old.get(key), new.get(key), (*path, key))
