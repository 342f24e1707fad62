"""The command line: pi's names, one clear line for what is wrong."""

import pytest

from agent.flags import help_text
from agent.options import Options, UsageError, parse_options


def test_every_flag_of_a_profile_is_understood() -> None:
    arguments = [
        *("--mode", "rpc", "--provider", "scripted", "--model", "scripted", "--thinking", "high"),
        *("--tools", "read,exec", "--no-tools", "--no-builtin-tools"),
        *("--system-prompt", "a", "--append-system-prompt", "b", "--append-system-prompt=c=d"),
        *("--extension", "e", "--no-extensions", "--skill", "s", "--no-skills"),
        *("--prompt-template", "t", "--no-prompt-templates", "--no-context-files"),
        *("--session-dir", "d", "--session", "f", "--offline"),
    ]
    assert parse_options(arguments) == Options(
        mode="rpc",
        provider="scripted",
        model="scripted",
        thinking="high",
        tools=["read", "exec"],
        no_tools=True,
        no_builtin_tools=True,
        system_prompt="a",
        append_system_prompt=["b", "c=d"],
        extension=["e"],
        no_extensions=True,
        skill=["s"],
        no_skills=True,
        prompt_template=["t"],
        no_prompt_templates=True,
        no_context_files=True,
        session_dir="d",
        session="f",
        offline=True,
    )


def test_a_value_may_begin_with_a_dash() -> None:
    assert parse_options(["-p", "--help"]).prompt == "--help"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "give --mode rpc"),
        (["--fly"], "unknown option '--fly'"),
        (["hello"], "unknown argument 'hello'"),
        (["--mode", "rpc", "--model"], "--model needs a value"),
        (["--mode", "dance"], "mode"),
        (["--mode", "rpc", "--thinking", "much"], "thinking"),
        (["--mode", "rpc", "--offline=yes"], "takes no value"),
        (["--mode", "rpc", "-p", "x"], "exclude each other"),
        (["--mode", "rpc", "--no-session", "--continue"], "exclude each other"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(arguments: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        parse_options(arguments)
    assert "\n" not in str(caught.value)


def test_help_names_every_flag() -> None:
    text = help_text("models: none")
    assert "--append-system-prompt TEXT|FILE" in text
    assert text.endswith("models: none\n")
