"""The makes of agents that are known."""

import pytest

from profiles import AgentSettings, ProfilesSettings, build_profile
from profiles.catalogue import APPROVING_MODES, MAKES, make_of


@pytest.mark.parametrize("make", MAKES)
def test_each_make_yields_a_definition_that_asks_before_it_acts(make: str) -> None:
    found = MAKES[make]
    definition = AgentSettings(dialect=found.dialect, command=list(found.command), mode=found.mode)
    profile = build_profile(ProfilesSettings(agents={make: definition}), make, "default", "/")
    assert (profile.dialect, profile.command) == (MAKES[make].dialect, MAKES[make].command)
    assert definition.mode not in APPROVING_MODES


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_a_make_says_how_it_is_installed_and_logged_in(make: object) -> None:
    assert make.install.startswith("npm install -g ")  # type: ignore[attr-defined]
    assert make.login  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("dialect", "command", "said", "make"),
    [
        ("acp", ["claude-agent-acp"], "", "claude"),
        ("acp", ["/usr/local/bin/claude-agent-acp"], "", "claude"),
        ("acp", ["npx", "-y", "@zed-industries/codex-acp@0.16.0"], "", "codex"),
        ("acp", ["/somewhere/agent"], "@agentclientprotocol/claude-agent-acp", "claude"),
        ("acp", ["/somewhere/agent"], "codex-acp", "codex"),
        ("acp", ["gemini", "--experimental-acp"], "", "gemini"),
        ("pi", ["pi", "--mode", "rpc"], "", "pi"),
        ("native", ["pi"], "", None),
        ("acp", ["tool", ""], "", None),
        ("acp", [], "", None),
    ],
)
def test_a_definition_is_known_by_its_program_its_package_or_what_it_calls_itself(
    dialect: str, command: list[str], said: str, make: str | None
) -> None:
    found = make_of(dialect, command, said)
    assert (found.name if found else None) == make
