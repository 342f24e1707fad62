"""A program's own command line: what of it says what the worker must be like."""

import pytest

from errors import UsageError
from profiles import AgentSettings, make_profile
from profiles.command_line import read_flags, worker_argv
from profiles.profile import with_arguments

PLAIN = AgentSettings()


def test_flags_with_a_setting_change_the_definition() -> None:
    asked = read_flags(
        AgentSettings(skills=["a"], append_system_prompt="Be good.", tools=["ls"]),
        ["--skill", "b", "--append-system-prompt=Be brief.", "-t", "read, bash", "-ns", "--system-prompt", "--odd"],
    )
    definition = asked.definition
    assert definition.skills == ["a", "b"]
    assert definition.append_system_prompt == "Be good.\n\nBe brief."
    assert definition.tools == ["read", "bash"]
    assert definition.no_skills
    assert definition.system_prompt == "--odd"
    assert asked.arguments == []
    assert not asked.keeps_profile


def test_a_model_is_the_programs_own_to_understand_and_overrules_the_agents() -> None:
    asked = read_flags(AgentSettings(provider="p", model="m", thinking="low"), ["--model", "fake/*:high"])
    assert (asked.definition.provider, asked.definition.model, asked.definition.thinking) == (None, None, "low")
    assert asked.arguments == ["--model", "fake/*:high"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--no-session"], ["--no-session"]),
        (["--session-dir", "/s"], ["--session-dir", "/s"]),
        (["--plan", "fast"], ["--plan", "fast"]),
        (["--plan", "--no-session"], ["--plan", "--no-session"]),
        (["--plan=fast"], ["--plan", "fast"]),
        (["-nbt"], ["--no-builtin-tools"]),
    ],
)
def test_what_has_no_setting_reaches_the_program(given: list[str], kept: list[str]) -> None:
    assert read_flags(PLAIN, given).arguments == kept


def test_continuing_says_nothing_about_the_worker() -> None:
    asked = read_flags(PLAIN, ["-c"])
    assert (asked.resume_latest, asked.keeps_profile, asked.no_session) == (True, True, False)


@pytest.mark.parametrize("given", [["hello"], ["--skill"], ["--resume"], ["-p", "x"], ["--fork=x"], ["--help"]])
def test_what_cannot_be_meant_is_refused(given: list[str]) -> None:
    with pytest.raises(UsageError):
        read_flags(PLAIN, given)


def test_a_directory_of_its_own_is_the_only_one_that_the_program_is_told() -> None:
    profile = make_profile(command=["pi"], cwd="/")
    assert worker_argv(with_arguments(profile, ["--session-dir", "/own"]), "/all") == ("pi", "--session-dir", "/own")
    assert worker_argv(profile, "/all") == ("pi", "--session-dir", "/all")


def test_further_arguments_leave_the_rest_of_the_profile_as_it_is() -> None:
    plain = make_profile(command=["pi"], cwd="/w", env={"NOTE": "hidden"}, secret_env=["NOTE"])
    changed = with_arguments(plain, ["--plan"])
    assert (changed.hard_args, changed.secrets) == (("--plan",), plain.secrets)
    assert with_arguments(plain, []) == plain
