"""Command lines: the one that starts a worker, and what a front end's own says of the worker that it needs."""

from typing import Any

import pytest

from errors import UsageError
from profiles import (
    DIALECTS,
    AgentSettings,
    Resources,
    SoftArgs,
    allows_tool,
    make_profile,
    prompt_arguments,
    worker_argv,
)
from profiles.command_line import read_flags
from profiles.profile import with_arguments
from tests.profiles.parts import profile


def test_a_plain_profile_is_its_command_and_what_is_set() -> None:
    assert worker_argv(profile(), None) == ("agent",)
    assert worker_argv(profile(soft=SoftArgs(model="gpt")), None) == ("agent", "--model", "gpt")


def test_everything_of_a_profile_is_on_the_command_line_in_order() -> None:
    full = profile(
        command=("pi", "--mode", "rpc"),
        hard_args=("--no-skills",),
        soft=SoftArgs("openai", "gpt", "high"),
        resources=Resources(("/s1", "npm:s2"), ("/e",), ("/t",)),
        env={"SECRET": "hunter2"},
    )
    assert worker_argv(full, "/sessions") == (
        *("pi", "--mode", "rpc", "--no-skills"),
        *("--provider", "openai", "--model", "gpt", "--thinking", "high"),
        *("--skill", "/s1", "--skill", "npm:s2", "--extension", "/e", "--prompt-template", "/t"),
        *("--session-dir", "/sessions"),
    )


@pytest.mark.parametrize(
    ("hard_args", "allowed", "denied"),
    [
        pytest.param((), ["bash"], [], id="without a list every tool"),
        pytest.param(("--tools", "read,write"), ["read"], ["bash"], id="with a list only those"),
        pytest.param(("--no-tools",), [], ["read"], id="without tools none"),
        pytest.param(("--no-builtin-tools",), [], ["bash"], id="without the builtin ones none"),
        pytest.param(("--tools", "bash", "--no-builtin-tools"), ["bash"], [], id="but the listed"),
        pytest.param(("--tools", "bash,read", "--tools", "read"), ["read"], ["bash"], id="what all lists allow"),
        pytest.param(("--tools",), ["read"], [], id="a flag without its list"),
    ],
)
def test_an_agent_has_the_tools_that_its_arguments_leave_it(
    hard_args: tuple[str, ...], allowed: list[str], denied: list[str]
) -> None:
    made = profile(hard_args=hard_args)
    assert [name for name in (*allowed, *denied) if allows_tool(made, name)] == allowed


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


NATIVE, PI = DIALECTS["native"].default_command, ("/opt/bin/pi", "--mode", "rpc")
LONG = "Be kind." + " " * 250


@pytest.mark.parametrize(
    ("dialect", "command", "hard_args", "texts"),
    [
        ("native", NATIVE, ("--no-tools", "--system-prompt", "Be kind."), ["Be kind."]),
        ("native", NATIVE, ("--system-prompt", "@@home", "--append-system-prompt", "@file.md"), ["@home"]),
        ("native", NATIVE, ("--system-prompt", "--append-system-prompt", "--no-tools"), ["--append-system-prompt"]),
        ("native", NATIVE, ("--system-prompt", ""), []),
        ("native", ("ssh", "far", "agent"), ("--system-prompt", "Be kind."), []),
        ("pi", PI, ("--append-system-prompt", LONG), ["Be kind."]),
        ("pi", PI, ("--append-system-prompt", "prompt.md"), []),
        ("pi", ("docker", "run", "pi"), ("--append-system-prompt", LONG), []),
        ("acp", ("agent",), ("--system-prompt", "Be kind."), []),
    ],
)
def test_texts_of_system_prompts_are_found_where_a_file_can_take_their_place(
    dialect: Any, command: tuple[str, ...], hard_args: tuple[str, ...], texts: list[str]
) -> None:
    made = make_profile(dialect=dialect, command=command, agent="main", role="default", hard_args=hard_args, cwd="/")
    found = prompt_arguments(made)
    assert [text for _, text in found] == texts
    for at, text in found:
        assert text in worker_argv(made, "/sessions")[at]
