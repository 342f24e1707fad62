"""The gateway's own prompt: one section for each convention that the settings want explained."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.settings import GatewayPrompts, build_gateway_prompt
from gateway.turns.media import MEDIA_TYPES
from tests.gateway.world import open_world

SECTIONS = ("heartbeat", "cron", "media")
HEADINGS = dict(zip(SECTIONS, ("## Heartbeats", "## Scheduled tasks", "## Files in answers"), strict=True))


def only(section: str) -> GatewayPrompts:
    return GatewayPrompts(**{name: name == section for name in SECTIONS})


def test_unless_the_settings_say_otherwise_only_how_to_hand_over_files_is_explained() -> None:
    assert build_gateway_prompt(GatewayPrompts()) == build_gateway_prompt(only("media"))


def test_nothing_wanted_means_no_prompt_at_all() -> None:
    assert build_gateway_prompt(GatewayPrompts(media=False)) is None


@given(wanted=st.sets(st.sampled_from(SECTIONS)))
def test_a_section_is_there_when_it_is_wanted(wanted: set[str]) -> None:
    text = build_gateway_prompt(GatewayPrompts(**{name: name in wanted for name in SECTIONS}))
    found = [line for line in (text or "").splitlines() if line.startswith("## ")]
    assert found == [HEADINGS[name] for name in SECTIONS if name in wanted]
    assert "\n\n\n" not in (text or "")
    assert text == (text.strip() if text else None)


@pytest.mark.parametrize(
    ("facts", "sections"),
    [
        ({}, ["media"]),
        ({"is_woken": True}, ["heartbeat", "cron", "media"]),
        ({"has_tasks": True}, ["cron", "media"]),
    ],
)
def test_what_nothing_is_said_about_is_explained_to_agents_that_it_concerns(
    facts: dict[str, bool], sections: list[str]
) -> None:
    text = build_gateway_prompt(GatewayPrompts(), **facts) or ""
    assert [line for line in text.splitlines() if line.startswith("## ")] == [HEADINGS[name] for name in sections]
    never = GatewayPrompts(heartbeat=False, cron=False)
    assert build_gateway_prompt(never, **facts) == build_gateway_prompt(only("media"))


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("heartbeat", ["HEARTBEAT_OK", "HEARTBEAT.md", "alert"]),
        ("cron", ["[CRON:id]", "HEARTBEAT_OK"]),
        ("media", ["\nMEDIA:path/to/file\n", "relative", *(suffix[1:] for suffix in MEDIA_TYPES)]),
    ],
)
def test_a_section_explains_what_the_gateway_reads(section: str, words: list[str]) -> None:
    text = build_gateway_prompt(only(section)) or ""
    assert [word for word in words if word not in text] == []


async def test_every_agent_in_every_role_is_told_after_what_is_said_to_it_alone(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        profile = await world.gateway.profile_cache.get("ops", "writer")
    text = build_gateway_prompt(GatewayPrompts())
    assert profile.hard_args == ("--append-system-prompt", f"Operate.\n\nWrite.\n\n{text}")
