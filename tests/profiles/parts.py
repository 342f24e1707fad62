"""Profiles for tests: a plain one to vary, and a Hypothesis strategy for any."""

from typing import Any

from hypothesis import strategies as st

from profiles import CapabilityProfile, Resources, SoftArgs, make_profile

text = st.text(st.characters(exclude_characters="\0"), max_size=6)
names = st.sampled_from(["a", "b", "c", "ab"])
resource_lists = st.lists(names, max_size=3, unique=True).map(tuple)
resource_sets = st.builds(Resources, resource_lists, resource_lists, resource_lists)
soft_args = st.builds(SoftArgs, *(st.sampled_from([None, "x", "y"]) for _ in range(3)))
parts = st.fixed_dictionaries(
    {
        "command": st.lists(text, max_size=2).map(lambda rest: ("agent", *rest)),
        "cwd": text.map(lambda rest: "/" + rest),
        "role": text,
        "dialect": st.sampled_from(["native", "pi"]),
        "hard_args": st.lists(text, max_size=3).map(tuple),
        "soft": soft_args,
        "resources": resource_sets,
        "env": st.dictionaries(st.sampled_from(["A", "B", "AB"]), text, max_size=3),
    }
)


def profile(**parts: Any) -> CapabilityProfile:
    """A plain profile, but for these parts."""
    return make_profile(**{"command": ("agent",), "cwd": "/work", **parts})
