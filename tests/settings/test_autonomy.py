"""What the settings file may say about heartbeats, scheduled jobs and deliveries, and how it is refused."""

from pathlib import Path
from typing import Any

import pytest

from heartbeat.settings import HeartbeatSettings
from settings.load import parse_settings
from settings.problems import SettingsError
from settings.schema import Settings, file_shape, struct_shape
from wire.units import Seconds

FILE = Path("/nowhere/pool.toml")


def test_an_agents_own_heartbeat_comes_before_that_of_all() -> None:
    text = (
        '[agents.defaults.heartbeat]\nevery = "10m"\n'
        '[agents.ops]\nmodel = "m"\n[agents.ops.heartbeat]\nevery = "1h"\ntarget = "stdout"\n'
        "[agents.quiet.heartbeat]\nevery = 0\nwake = false\n"
    )
    settings = parse_settings(text, FILE)
    assert settings.agent_names() == ["main", "ops", "quiet"]
    assert settings.heartbeat_of("main") == HeartbeatSettings(every=Seconds(600))
    assert settings.heartbeat_of("ops") == HeartbeatSettings(every=Seconds(3600), target="stdout")
    assert settings.heartbeat_of("quiet") == HeartbeatSettings(every=Seconds(0), wake=False)
    assert settings.heartbeat_of("nobody") == settings.heartbeat


def test_tables_inside_of_tables_by_name_have_their_place_in_both_shapes() -> None:
    own = {"main": {"c": 3, "heartbeat": {"target": "none"}}, "plain": {"d": 4}}
    every = {"defaults": {"heartbeat": {"every": "1m"}, "a": 1}, "gateway_prompts": {"b": 2}}
    table: dict[str, Any] = {"agents": {**every, **own}, "pool": {"max": 1}}
    shaped = struct_shape(table)
    assert shaped == {
        "agents": {"main": {"c": 3}, "plain": {"d": 4}},
        "agents.defaults": {"a": 1},
        "agents.defaults.heartbeat": {"every": "1m"},
        "agents.gateway_prompts": {"b": 2},
        "agents.*.heartbeat": {"main": {"target": "none"}},
        "pool": {"max": 1},
    }
    assert file_shape(shaped) == table
    assert list(file_shape(shaped)["agents"])[-2:] == ["main", "plain"], "those of all agents come first"
    assert table["agents"]["main"] == {"c": 3, "heartbeat": {"target": "none"}}, "the table itself is not changed"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[agents.defaults.heartbeat]\nevery = '10s'", "2: agents.defaults.heartbeat.every: every = 10s is too often"),
        ("[agents.main.heartbeat]\nevry = '5m'", "2: agents.main.heartbeat.evry: there is no such setting; did"),
        ("[agents.main]\nheartbeat = 5", "2: agents.main.heartbeat: expected object, got int"),
        ("[agents.main.heartbeat]\ntarget = 'webhook:ops'", "2: agents.main.heartbeat.target: there is no webhook"),
        ("[agents.defaults.heartbeat]\ntarget = 'last:x'", "2: agents.defaults.heartbeat.target: 'last' is no channel"),
        ("[cron.jobs.a]\ntext = 'x'", "1: cron.jobs.a: a job is due by one of cron, every and at"),
        ("[cron.jobs.a]\ntext = 'x'\nevery = '1h'\nagent = 'mian'", "cron.jobs.a: agent: there is no agent 'mian'"),
        ("[cron.jobs.a]\ntext = 'x'\ncron = '0 0 31 2 *'", "cron.jobs.a: cron = '0 0 31 2 *' cannot be used"),
        ("[cron.jobs.A]\ntext = 'x'\nevery = '1h'", "cron.jobs.A: 'A' is no name of a job"),
        ("[cron]\nmax_running = 2", "2: cron.max_running: is 2, more than gateway.queue.lanes.cron = 1"),
        ('[agents.a]\nworkspace_per = "session"\n[[pool.prewarm]]\nagent = "a"', "prewarm[0].agent: a has a workspace"),
        ("[delivery.webhooks.a]\nurl = 'http://h/PATH'", "delivery.webhooks.a: one of secret and secret_env"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_told_with_its_line(text: str, told: str) -> None:
    with pytest.raises(SettingsError) as raised:
        parse_settings(text, FILE)
    assert told in str(raised.value)
    assert "PATH" not in str(raised.value)


def test_more_jobs_run_at_once_where_their_lane_has_room() -> None:
    settings = parse_settings("[cron]\nmax_running = 3\n[gateway.queue.lanes]\ncron = 3", FILE)
    assert settings.cron.max_running == 3
    assert Settings().cron.max_running == Settings().gateway.queue.lanes["cron"]
