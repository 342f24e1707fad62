"""The command line that starts a worker."""

from profiles import Resources, SoftArgs, allows_tool, worker_argv
from tests.profiles.parts import profile


def test_a_plain_profile_is_its_command() -> None:
    assert worker_argv(profile(), None) == ("agent",)


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


def test_soft_arguments_that_are_not_given_leave_no_flag() -> None:
    assert worker_argv(profile(soft=SoftArgs(model="gpt")), None) == ("agent", "--model", "gpt")


def test_an_agent_without_a_tool_list_has_every_tool() -> None:
    assert allows_tool(profile(), "bash")


def test_an_agent_with_a_tool_list_has_only_those() -> None:
    listed = profile(hard_args=("--tools", "read,write"))
    assert allows_tool(listed, "read")
    assert not allows_tool(listed, "bash")


def test_an_agent_without_tools_has_none() -> None:
    assert not allows_tool(profile(hard_args=("--no-tools",)), "read")


def test_without_the_builtin_tools_only_listed_ones_are_left() -> None:
    assert not allows_tool(profile(hard_args=("--no-builtin-tools",)), "bash")
    assert allows_tool(profile(hard_args=("--tools", "bash", "--no-builtin-tools")), "bash")


def test_contradicting_lists_allow_what_all_of_them_allow() -> None:
    twice = profile(hard_args=("--tools", "bash,read", "--tools", "read"))
    assert allows_tool(twice, "read")
    assert not allows_tool(twice, "bash")
    assert allows_tool(profile(hard_args=("--tools",)), "read")
