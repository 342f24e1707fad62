"""The gateway's own prompt: one section for each convention that the settings want explained."""

import itertools
from pathlib import Path

import pytest

from gateway.settings import GatewayPrompts, build_gateway_prompt
from gateway.turns.media import MEDIA_TYPES
from tests.gateway.world import open_world

HEADINGS = {"heartbeat": "## Heartbeats", "cron": "## Scheduled tasks", "media": "## Files in answers"}
WORDS = {
    "heartbeat": ["HEARTBEAT_OK", "HEARTBEAT.md", "alert"],
    "cron": ["[CRON:id]", "HEARTBEAT_OK"],
    "media": ["\nMEDIA:path/to/file\n", "relative", *(suffix[1:] for suffix in MEDIA_TYPES)],
}


def sections(text: str | None) -> list[str]:
    found = [line for line in (text or "").splitlines() if line.startswith("## ")]
    return [name for name, heading in HEADINGS.items() if heading in found]


@pytest.mark.parametrize("wanted", list(itertools.product([True, False], repeat=3)))
def test_a_section_is_there_when_it_is_wanted_and_explains_what_the_gateway_reads(wanted: tuple[bool, ...]) -> None:
    settings = dict(zip(HEADINGS, wanted, strict=True))
    text = build_gateway_prompt(GatewayPrompts(**settings))
    assert sections(text) == [name for name, is_wanted in settings.items() if is_wanted]
    assert [word for name in sections(text) for word in WORDS[name] if word not in (text or "")] == []
    assert text == (text.strip() if any(wanted) and text else None)
    assert "\n\n\n" not in (text or "")


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, ["media"]),
        ({"is_woken": True}, ["heartbeat", "cron", "media"]),
        ({"has_tasks": True}, ["cron", "media"]),
    ],
)
def test_what_nothing_is_said_about_is_explained_to_agents_that_it_concerns(
    facts: dict[str, bool], expected: list[str]
) -> None:
    assert sections(build_gateway_prompt(GatewayPrompts(), **facts)) == expected
    assert sections(build_gateway_prompt(GatewayPrompts(heartbeat=False, cron=False), **facts)) == ["media"]


async def test_every_agent_in_every_role_is_told_after_what_is_said_to_it_alone(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        profile = await world.gateway.profile_cache.get("ops", "writer")
    text = build_gateway_prompt(GatewayPrompts())
    assert profile.hard_args == ("--append-system-prompt", f"Operate.\n\nWrite.\n\n{text}")
