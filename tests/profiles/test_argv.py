"""The command line that starts a worker."""

from profiles import Resources, SoftArgs, worker_argv
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
