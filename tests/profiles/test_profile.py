"""Profiles from bare parts, and what they keep to themselves."""

import pytest
from rich.pretty import pretty_repr

from errors import UsageError
from profiles import Resources, SoftArgs, make_profile, with_soft
from tests.profiles.parts import profile


def test_an_environment_value_is_in_no_representation() -> None:
    secret = profile(env={"API_KEY": "hunter2"})
    for shown in (repr(secret), str(secret), f"{secret}", pretty_repr(secret)):
        assert "hunter2" not in shown
        assert "API_KEY" in shown


def test_the_environment_is_sorted_by_name() -> None:
    assert profile(env={"B": "1", "A": "2"}).env == (("A", "2"), ("B", "1"))


def test_a_resource_named_twice_counts_once_at_its_first_place() -> None:
    assert profile(resources=Resources(skills=("/b", "/a", "/b"))).resources.skills == ("/b", "/a")


def test_the_short_signature_is_the_beginning_of_the_whole() -> None:
    made = profile()
    assert len(made.short) == 8
    assert made.signature.startswith(made.short)


def test_an_empty_command_is_refused() -> None:
    with pytest.raises(UsageError, match="command is empty"):
        profile(command=())


def test_a_relative_working_directory_is_refused() -> None:
    with pytest.raises(UsageError, match="not an absolute path"):
        profile(cwd="here")


@pytest.mark.parametrize("name", ["", "A=B", "A\0"])
def test_a_bad_name_of_a_variable_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no name of an environment variable"):
        profile(env={name: "x"})


def test_a_nul_in_a_value_is_refused_without_showing_the_value() -> None:
    with pytest.raises(UsageError, match="'KEY'") as caught:
        profile(env={"KEY": "hunter2\0"})
    assert "hunter2" not in str(caught.value)


def test_a_nul_in_an_argument_is_refused() -> None:
    with pytest.raises(UsageError, match="NUL"):
        profile(hard_args=("--system-prompt", "a\0b"))


def test_other_soft_arguments_make_another_signature_of_the_same_hard_profile() -> None:
    small = make_profile(command=["agent"], cwd="/", soft=SoftArgs("openai", "small", "low"), env={"A": "1"})
    changed = with_soft(small, model="large")
    assert changed.soft == SoftArgs("openai", "large", "low")
    assert changed.hard_signature == small.hard_signature
    assert changed.signature != small.signature
    assert with_soft(changed, model="small") == small
