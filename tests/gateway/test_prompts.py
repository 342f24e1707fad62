"""The gateway's own prompt: one section for each feature that is on, unless the settings say otherwise."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.media import MEDIA_TYPES
from gateway.prompts import GatewayPrompts, GatewayPromptSettings, build_gateway_prompt

FEATURES = ("heartbeat", "cron", "media")
HEADINGS = dict(zip(FEATURES, ("## Heartbeats", "## Scheduled tasks", "## Files in answers"), strict=True))
tri_state = st.none() | st.booleans()


def test_nothing_on_means_no_prompt_at_all() -> None:
    assert build_gateway_prompt(GatewayPromptSettings()) is None
    off = GatewayPrompts(heartbeat=False, cron=False, media=False)
    assert build_gateway_prompt(GatewayPromptSettings(heartbeat=True, cron=True, media=True, overrides=off)) is None


@given(on=st.tuples(*[st.booleans()] * 3), overrides=st.tuples(*[tri_state] * 3))
def test_a_section_is_there_when_its_feature_is_on_unless_overridden(
    on: tuple[bool, ...], overrides: tuple[bool | None, ...]
) -> None:
    features: dict[str, Any] = dict(zip(FEATURES, on, strict=True))
    said = GatewayPrompts(**dict(zip(FEATURES, overrides, strict=True)))
    text = build_gateway_prompt(GatewayPromptSettings(**features, overrides=said))
    wanted = [
        name
        for name, is_on, override in zip(FEATURES, on, overrides, strict=True)
        if override is True or (is_on and override is None)
    ]
    found = [line for line in (text or "").splitlines() if line.startswith("## ")]
    assert found == [HEADINGS[name] for name in wanted]
    assert "\n\n\n" not in (text or "")
    assert text == (text.strip() if text else None)


@pytest.mark.parametrize(
    ("feature", "words"),
    [
        ("heartbeat", ["HEARTBEAT_OK", "HEARTBEAT.md", "alert"]),
        ("cron", ["[CRON:id]", "HEARTBEAT_OK"]),
        ("media", ["\nMEDIA:path/to/file\n", "relative", *(suffix[1:] for suffix in MEDIA_TYPES)]),
    ],
)
def test_a_section_explains_what_the_gateway_reads(feature: str, words: list[str]) -> None:
    only: dict[str, Any] = {feature: True}
    text = build_gateway_prompt(GatewayPromptSettings(**only)) or ""
    assert [word for word in words if word not in text] == []


def test_the_same_settings_give_the_same_text() -> None:
    settings = GatewayPromptSettings(heartbeat=True, cron=True, media=True)
    assert build_gateway_prompt(settings) == build_gateway_prompt(settings)
