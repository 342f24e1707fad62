"""Commands of tools do not see the keys with which models are paid for, unless somebody says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.policy import may_be_set, tool_environment

SHOW = 'TOOL:exec {"command": "echo [$OPENAI_API_KEY][$MY_API_KEY][$XAI_API_KEY]"} TELL'


def test_only_the_keys_of_providers_are_left_out_and_those_that_are_named_stay() -> None:
    environment = {"OPENAI_API_KEY": "k", "XAI_API_KEY": "x", "STRIPE_API_KEY": "s", "PATH": "/bin"}
    assert tool_environment(environment) == {"STRIPE_API_KEY": "s", "PATH": "/bin"}
    assert tool_environment(environment, ["XAI_API_KEY", "NOT_THERE"]) == {
        **tool_environment(environment),
        "XAI_API_KEY": "x",
    }
    assert environment["OPENAI_API_KEY"] == "k"


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "PYTHONPATH", "PYTHONHOME", "NODE_OPTIONS", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "AGENT_EXEC_ID"),
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "POOL_WORKER_PARENT"),
        *("GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "GIT_PAGER", "EDITOR", "HOME", "KUBECONFIG", "MAKEFLAGS", "CC"),
        *(
            "PERL5OPT",
            "PERL5LIB",
            "RUBYOPT",
            "JAVA_TOOL_OPTIONS",
            "PYTHONSTARTUP",
            "PYTHONWARNINGS",
            "npm_config_shell",
        ),
    ],
)
def test_what_would_make_it_another_command_may_not_be_set(name: str) -> None:
    assert not may_be_set(name)
    assert may_be_set(f"MY_{name}")


@pytest.mark.parametrize("name", ["BASH_FUNC_ls%%", "BASH_FUNC_ls", "", "A B", "A=B", "1A", "A\0"])
def test_functions_of_a_shell_and_what_is_no_name_may_not_be_set(name: str) -> None:
    assert not may_be_set(name)


@pytest.mark.parametrize(
    "name",
    ["CI", "DEBUG", "NODE_ENV", "GIT_AUTHOR_NAME", "PYTHONUNBUFFERED", "TMPDIR", "LANG", "TZ", "http_proxy", "PORT"],
)
def test_what_only_tells_the_command_something_may_be_set(name: str) -> None:
    assert may_be_set(name)


@pytest.mark.process
@pytest.mark.parametrize(
    ("flags", "seen"), [([], "[][mine][]"), (["--tool-env", "XAI_API_KEY,NOT_THERE"], "[][mine][x]")]
)
def test_a_command_sees_no_key_of_a_provider_but_those_that_were_named(
    tmp_path: Path, flags: list[str], seen: str
) -> None:
    keys = {"OPENAI_API_KEY": "sk-secret", "MY_API_KEY": "mine", "XAI_API_KEY": "x"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "agent", "--no-session", *flags, "-p", SHOW],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **keys},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert done.stdout.strip() == seen
    assert "sk-secret" not in done.stderr
