"""The command line: pi's names, one clear line for what is wrong."""

import msgspec
import pytest

from agent.flags import FLAGS, help_text
from agent.models.directives import DIRECTIVES_HELP
from agent.options import OptionError, Options, parse_options

FLAGS_GIVEN = (
    "--mode rpc --provider scripted --model scripted --thinking high --tools read,exec --no-tools --no-builtin-tools "
    "--system-prompt a --append-system-prompt b --append-system-prompt=c=d --extension e --no-extensions --skill s "
    "--no-skills --prompt-template t --no-prompt-templates --no-context-files --session-dir d --session f --offline "
    "--deny-tools exec --deny-tools write,edit --require-approval process --permission-mode approval --allow-outside "
    "--no-background --hooks a.py --hooks b.py --no-hooks --base-url http://localhost/v1 --context-tokens 32000 "
    "--history-turns 9 --max-steps 7 --timeout 1.5"
)
MEANT = {
    "mode": "rpc",
    "provider": "scripted",
    "model": "scripted",
    "thinking": "high",
    "tools": ["read", "exec"],
    "system_prompt": "a",
    "append_system_prompt": ["b", "c=d"],
    "extension": ["e"],
    "skill": ["s"],
    "prompt_template": ["t"],
    "session_dir": "d",
    "session": "f",
    "deny_tools": ["exec", "write", "edit"],
    "require_approval": ["process"],
    "permission_mode": "approval",
    "hooks": ["a.py", "b.py"],
    "timeout": 1.5,
    "base_url": "http://localhost/v1",
    "context_tokens": 32_000,
    "history_turns": 9,
    "max_steps": 7,
    **dict.fromkeys(("no_tools", "no_builtin_tools", "no_extensions", "no_skills", "no_prompt_templates"), True),
    **dict.fromkeys(("no_context_files", "offline", "allow_outside", "no_background", "no_hooks"), True),
}


def test_every_flag_of_a_profile_is_understood() -> None:
    assert parse_options(FLAGS_GIVEN.split()) == msgspec.convert(MEANT, Options)
    assert parse_options(["-p", "--help"]).prompt == "--help"  # a value may begin with a dash


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "give --mode rpc"),
        (["--fly"], "unknown option '--fly'"),
        (["hello"], "unknown argument 'hello'"),
        (["--mode", "rpc", "--model"], "--model needs a value"),
        (["--mode", "dance"], "--mode 'dance' does not fit; it takes one of: rpc, text"),
        (["--mode", "rpc", "--thinking", "much"], "--thinking 'much' does not fit; it takes one of: high, low, "),
        (["--mode", "rpc", "--offline=yes"], "takes no value"),
        (["--mode", "rpc", "--permission-mode", "x"], "--permission-mode 'x' .* one of: approval, auto, readonly"),
        (["--mode", "rpc", "--max-steps", "0"], "--max-steps '0' does not fit; it takes a whole number from 1 on"),
        (["--mode", "rpc", "--timeout", "soon"], "--timeout 'soon' does not fit; it takes a number above 0"),
        (["--mode", "rpc", "--context-tokens", "12"], "--context-tokens '12' .* from 1000 on"),
        (["--mode", "rpc", "--timeout", "nan"], "--timeout 'nan' does not fit"),
        (["-p", "caf\udce9"], r"the argument 'caf\\udce9' is not UTF-8 text"),
        (["--mode", "rpc", "-p", "x"], "exclude each other"),
        (["--mode", "rpc", "--no-session", "--continue"], "exclude each other"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(arguments: list[str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint) as caught:
        parse_options(arguments)
    assert "\n" not in str(caught.value)


def test_help_stands_in_groups_that_no_line_breaks() -> None:
    text = help_text("models: none")
    assert "--append-system-prompt TEXT|@FILE" in text
    assert text.endswith("models: none\n")
    lines = help_text(DIRECTIVES_HELP).splitlines()
    assert "tools and permissions:" in lines
    assert max(map(len, lines)) <= 80


def test_every_flag_sets_a_field_of_the_options() -> None:
    assert {flag.field for flag in FLAGS.values()} == set(Options.__struct_fields__)
