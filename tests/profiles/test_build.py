"""Profiles from settings: agents, roles, skills, paths, environment."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.options import parse_options
from errors import UsageError
from profiles import (
    AgentSettings,
    CapabilityProfile,
    ProfilesSettings,
    Resources,
    RoleSettings,
    SkillSettings,
    SoftArgs,
    build_profile,
    workspace_of,
)
from profiles.profile import is_uri_like

HERE = "/"


def settings_of(text_like: dict[str, Any]) -> ProfilesSettings:
    return msgspec.convert(text_like, ProfilesSettings)


def built(
    settings: ProfilesSettings | None = None,
    agent: str = "main",
    role: str = "default",
    cwd: str = HERE,
    **options: Any,
) -> CapabilityProfile:
    return build_profile(settings or ProfilesSettings(), agent, role, cwd, **options)


def agent_of(**agent: Any) -> CapabilityProfile:
    """Of an agent with these settings."""
    return built(ProfilesSettings(agents={"main": msgspec.convert(agent, AgentSettings)}))


def hard_args_of(gateway_prompt: str | None = None, **agent: Any) -> tuple[str, ...]:
    return built(settings_of({"agents": {"main": agent}}), gateway_prompt=gateway_prompt).hard_args


def test_the_default_agent_is_the_bundled_one() -> None:
    made = built()
    assert made.command == (sys.executable, "-P", "-m", "agent", "--mode", "rpc", "--timeout", "inf")
    assert (made.dialect, made.hard_args, made.env, made.resources) == ("native", (), (), Resources())


def test_an_agent_that_speaks_pi_starts_pi() -> None:
    assert agent_of(dialect="pi").command == ("pi", "--mode", "rpc")


def test_a_program_below_the_home_directory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert agent_of(command=["~/bin/agent", "~"]).command == ("/home/somebody/bin/agent", "~")


def test_an_unknown_agent_is_refused_with_the_one_that_was_meant() -> None:
    settings = settings_of({"agents": {"reviewer": {}}})
    with pytest.raises(UsageError, match="unknown agent 'reviewr'; did you mean 'reviewer'") as caught:
        built(settings, "reviewr", session_key="agent:reviewr:main:main")
    assert caught.value.details == {"agent": "reviewr", "session": "agent:reviewr:main:main"}


def test_an_unknown_role_is_refused_with_what_there_is() -> None:
    with pytest.raises(UsageError, match="unknown role 'zzz'; known: default, coder"):
        built(settings_of({"roles": {"coder": {}}}), role="zzz")


def test_sessions_share_their_profile() -> None:
    assert built(session_key="a") == built(session_key="b")


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ({}, ()),
        ({"tools": ["read", "ls", "read"]}, ("--tools", "ls,read")),
        ({"tools": ["read", "ls"], "deny_tools": ["ls"]}, ("--tools", "read")),
        ({"tools": []}, ("--no-tools",)),
        ({"tools": ["ls"], "deny_tools": ["ls"]}, ("--no-tools",)),
        ({"deny_tools": ["exec", "process"]}, ("--tools", "edit,find,grep,ls,read,todo,write")),
        ({"dialect": "pi", "deny_tools": ["bash"]}, ("--tools", "edit,find,grep,ls,read,write")),
        ({"tools": ["my_own"], "deny_tools": ["another"]}, ("--tools", "my_own")),
    ],
)
def test_tools_become_one_allow_list(agent: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert hard_args_of(**agent) == expected


def test_a_misspelt_denied_tool_is_refused_rather_than_allowed() -> None:
    with pytest.raises(UsageError, match="unknown tool 'exce'; did you mean 'exec'"):
        hard_args_of(deny_tools=["exce"])


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ({"permission_mode": "auto", "allow_background": True, "hooks": []}, ()),
        ({"permission_mode": "approval"}, ("--permission-mode", "approval")),
        ({"permission_mode": "readonly"}, ("--permission-mode", "readonly")),
        ({"require_approval": ["write", "exec", "exec"]}, ("--require-approval", "exec,write")),
        ({"allow_outside": True}, ("--allow-outside",)),
        ({"allow_background": False}, ("--no-background",)),
        ({"tool_env": ["OPENAI_API_KEY", "B"]}, ("--tool-env", "B,OPENAI_API_KEY")),
        ({"hooks": ["a.py", "/b.py"]}, ("--hooks", "/a.py", "--hooks", "/b.py")),
        ({"base_url": "http://h/v1"}, ("--base-url", "http://h/v1")),
        ({"context_tokens": 8000, "max_steps": 7}, ("--context-tokens", "8000", "--max-steps", "7")),
        ({"history_turns": 3}, ()),
    ],
)
def test_what_only_the_bundled_agent_can_is_told_it_in_its_flags(
    agent: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert hard_args_of(**agent) == expected
    parse_options(["--mode", "rpc", *expected])  # the agent itself understands them


@pytest.mark.parametrize(
    "setting",
    [
        *({"permission_mode": "approval"}, {"require_approval": ["read"]}, {"allow_outside": True}),
        *({"allow_background": False}, {"tool_env": ["A"]}, {"hooks": ["a.py"]}, {"base_url": "http://h"}),
        *({"context_tokens": 1000}, {"max_steps": 1}, {"history_turns": 1}),
    ],
)
def test_what_pi_has_no_means_for_is_refused_rather_than_passed_over(setting: dict[str, Any]) -> None:
    [name] = setting
    with pytest.raises(UsageError, match=f"^{name}: .*'pi' has no such thing") as caught:
        hard_args_of(dialect="pi", **setting)
    assert caught.value.details["setting"] == name
    hard_args_of(dialect="native", **setting)


def test_a_tool_whose_approval_is_required_must_exist() -> None:
    with pytest.raises(UsageError, match="require_approval: unknown tool 'exce'; did you mean 'exec'"):
        hard_args_of(require_approval=["exce"])
    assert "deploy" in hard_args_of(tools=["deploy"], require_approval=["deploy"])


def test_prompts_are_appended_as_one_text() -> None:
    settings = settings_of(
        {"agents": {"main": {"append_system_prompt": "user"}}, "roles": {"coder": {"append_system_prompt": "role"}}}
    )
    made = built(settings, role="coder", gateway_prompt="gateway")
    assert made.hard_args == ("--append-system-prompt", "user\n\nrole\n\ngateway")


@pytest.mark.parametrize("text", ["You are careful.", "a/b", "prompts/main.md", "é" * 200, "x" * 300, "@home"])
def test_no_program_can_take_a_prompt_for_the_name_of_a_file(tmp_path: Path, text: str) -> None:
    for name in ("a", "prompts"):
        (tmp_path / name).mkdir()
    for dialect in ("pi", "native"):
        _, prompt, _, appended = hard_args_of(dialect=dialect, system_prompt=text, append_system_prompt=text)
        assert prompt == appended
        if dialect == "native":
            assert prompt == f"@{text}" if text.startswith("@") else prompt == text
        else:
            assert prompt.rstrip() == text
            with pytest.raises(OSError, match="File name too long"):
                (tmp_path / prompt).stat()


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ({"no_extensions": True}, ("--no-extensions",)),
        ({"no_skills": True}, ("--no-skills",)),
        ({"no_prompt_templates": True}, ("--no-prompt-templates",)),
        ({"no_context_files": True}, ("--no-context-files",)),
        ({"system_prompt": ""}, ("--system-prompt", "")),
        ({"gateway_prompt": "gateway"}, ("--append-system-prompt", "gateway")),
        ({"no_skills": True, "extra_args": ["--offline", "-x"]}, ("--no-skills", "--offline", "-x")),
    ],
)
def test_every_setting_has_its_flag_and_extra_arguments_come_last(
    agent: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert hard_args_of(**agent) == expected


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--model=gpt", "use the setting 'model' instead of --model"),
        ("--tools", "use the setting 'tools'"),
        ("--api-key", "use the setting 'env'"),
        ("--session", "the pool's own to give"),
        ("--mode", "the pool's own to give"),
        ("--permission-mode=auto", "use the setting 'permission_mode'"),
        ("--no-background", "use the setting 'allow_background'"),
    ],
)
def test_an_extra_argument_that_would_go_past_a_setting_is_refused(argument: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        hard_args_of(extra_args=[argument])


def test_a_secret_variable_is_one_of_the_environment_and_makes_another_profile() -> None:
    env = {"PLACE": "/opt", "A_KEY": "abc"}
    plain, marked = (agent_of(env=env, secret_env=names) for names in ([], ["PLACE"]))
    assert (plain.secrets, marked.secrets) == (("abc",), ("abc", "/opt"))
    assert plain.hard_signature != marked.hard_signature
    with pytest.raises(UsageError, match="secret_env: there is no 'PLAC' in env"):
        agent_of(env={"PLACE": "/opt"}, secret_env=["PLAC"])


def test_soft_arguments_are_the_agents() -> None:
    assert agent_of(provider="openai", model="gpt", thinking="high").soft == SoftArgs("openai", "gpt", "high")


def test_skills_are_merged_role_first_then_agent_gateway_and_base() -> None:
    settings = ProfilesSettings(
        agents={"main": AgentSettings(skills=["/agent", "/both"])},
        roles={"coder": RoleSettings(skills=["/role", "/both"])},
        skills=SkillSettings(base=["/base", "/role"], gateway=["/gateway"], flat=["/flat"]),
    )
    made = built(settings, role="coder")
    assert made.resources.skills == ("/role", "/both", "/agent", "/gateway", "/base")


@pytest.mark.parametrize("filled", ["role", "agent", "gateway", "base"])
def test_the_flat_list_is_used_only_where_every_other_is_empty(filled: str) -> None:
    assert built(ProfilesSettings(skills=SkillSettings(flat=["/flat"]))).resources.skills == ("/flat",)
    some = ["/some"]
    settings = ProfilesSettings(
        agents={"main": AgentSettings(skills=some if filled == "agent" else [])},
        roles={"default": RoleSettings(skills=some if filled == "role" else [])},
        skills=SkillSettings(
            base=some if filled == "base" else [], gateway=some if filled == "gateway" else [], flat=["/flat"]
        ),
    )
    assert built(settings).resources.skills == ("/some",)


def test_extensions_and_templates_are_the_roles_then_the_agents_without_duplicates() -> None:
    settings = ProfilesSettings(
        agents={"main": AgentSettings(extensions=["/a", "/r"], prompt_templates=["/ta"])},
        roles={"coder": RoleSettings(extensions=["/r", "/q"], prompt_templates=["/tr"])},
    )
    resources = built(settings, role="coder").resources
    assert resources.extensions == ("/r", "/q", "/a")
    assert resources.prompt_templates == ("/tr", "/ta")


def test_the_working_directory_is_absolute_without_links_or_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path.resolve() / "place"
    place.mkdir()
    (tmp_path / "link").symlink_to(place)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for spelling in (str(tmp_path / "link"), "~/link", "link", "place/../link/."):
        assert built(cwd=spelling).cwd == str(place)
    assert built(cwd="/nowhere/at/all").cwd == "/nowhere/at/all", "it need not exist yet"


def test_resources_by_path_are_absolute_and_uri_like_ones_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    uris = ["npm:x", "git:host/x", "https://host/x", "git@host:x/y"]
    settings = ProfilesSettings(agents={"main": AgentSettings(extensions=["./e", "e", "~/e", "../e:1", "/e", *uris])})
    here = str(tmp_path.resolve())
    made = built(settings, cwd=here)
    assert made.resources.extensions == (f"{here}/e", "/home/somebody/e", f"{here}/../e:1", "/e", *uris)


def test_a_link_to_a_resource_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "current").symlink_to("v1")
    current = str(tmp_path / "current")
    assert agent_of(skills=[current]).resources.skills == (current,)


@pytest.mark.parametrize("name", ["~user:x", "./a:b", "/a:b", "a/b:c", ":x", "plain"])
def test_a_path_with_a_colon_is_still_a_path(name: str) -> None:
    assert not is_uri_like(name)


def test_the_directories_of_the_program_go_into_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert agent_of(agent_dir="~/.pi", package_dir="/opt/pi", env={"KEY": "v"}).env == (
        ("KEY", "v"),
        ("PI_CODING_AGENT_DIR", "/home/somebody/.pi"),
        ("PI_PACKAGE_DIR", "/opt/pi"),
    )


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ({"agent_dir": "/a", "env": {"PI_CODING_AGENT_DIR": "/b"}}, "set twice"),
        ({"env": {"POOL_WORKER_ID": "w1"}}, "POOL_WORKER_ID"),
    ],
)
def test_an_environment_with_a_directory_set_twice_or_a_forged_marker_is_refused(
    agent: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        agent_of(**agent)


def test_the_roles_workspace_comes_before_the_agents() -> None:
    settings = ProfilesSettings(
        agents={"main": AgentSettings(workspace="~/a")}, roles={"coder": RoleSettings(workspace="/r")}
    )
    assert workspace_of(settings, "main", "coder") == "/r"
    assert workspace_of(settings, "main", "default") == "~/a"
    assert workspace_of(ProfilesSettings(), "main", "default") is None


def test_context_files_are_left_out_one_by_one_or_all() -> None:
    settings = ProfilesSettings(agents={"main": AgentSettings(), "p": AgentSettings(dialect="pi")})

    def args(agent: str, left_out: list[str] | None) -> tuple[str, ...]:
        return build_profile(settings, agent, "default", "/w", left_out=left_out).hard_args

    assert args("main", []) == ()
    assert args("main", ["AGENTS.md", "/AGENTS.md"]) == (
        *("--without-context", "/w/AGENTS.md"),
        *("--without-context", "/AGENTS.md"),
    )
    assert args("main", None) == args("p", None) == args("p", ["AGENTS.md"]) == ("--no-context-files",)
    parse_options(["--mode", "rpc", *args("main", ["AGENTS.md"])])
