"""What a changed file means for a running supervisor."""

from pathlib import Path

import pytest

from profiles import build_profile
from profiles.profile import CapabilityProfile
from settings.load import parse_settings
from settings.reload import changed_profiles, plan_reload
from settings.schema import Settings

HERE = Path("/etc/pool.toml")


def settings(text: str = "") -> Settings:
    return parse_settings(text, HERE)


def profiles(text: str) -> list[CapabilityProfile]:
    loaded = settings(text)
    return [build_profile(loaded, agent, "default", "/") for agent in loaded.agent_names()]


def test_nothing_changed_is_nothing_to_do() -> None:
    plan = plan_reload(settings("pool.max = 8"), settings("[pool]\nmax = 8 # the same\n"))
    assert plan.is_empty
    assert plan.settings == settings("pool.max = 8")


def test_what_takes_effect_at_once_is_named_as_the_file_names_it() -> None:
    old = settings("[agents.defaults]\ntimeout_seconds = 5\n[agents.x]\nmodel = 'a'\n[gateway.queue.lanes]\ncron = 1\n")
    new = settings(
        "pool.max = 9\nrpc.request_timeout = 5\n[agents.defaults]\ntimeout_seconds = 6\n[agents.x]\nmodel = 'b'\n"
        "[agents.y]\n[gateway.queue.lanes]\ncron = 1\nother = 2\n"
    )
    plan = plan_reload(old, new)
    assert sorted(plan.changed) == [
        "agents.defaults.timeout_seconds",
        "agents.x.model",
        "agents.y",
        "gateway.queue.lanes.other",
        "pool.max",
        "rpc.request_timeout",
    ]
    assert (plan.restart, plan.settings) == ((), new)
    assert set(plan_reload(new, settings()).changed) >= {"agents.x", "agents.y", "pool.max"}, "back to the defaults"


RESTART = {"data_dir": '"/elsewhere"', "socket": '"/s"', "store.backlog": '"1MiB"', "log.level": '"debug"'}
RESTART |= {"gateway.events.ring": '"1MiB"', "cluster.lease": '"1m"'}


@pytest.mark.parametrize(("key", "value"), RESTART.items())
def test_what_needs_a_restart_keeps_its_old_value_and_the_rest_does_not(key: str, value: str) -> None:
    old = settings()
    plan = plan_reload(old, settings(f"pool.max = 9\n{key} = {value}\n"))
    assert plan.restart == (key,)
    assert plan.changed == ("pool.max",)
    assert plan.settings == settings("pool.max = 9")
    assert plan_reload(old, settings(f"{key} = {value}\n")).is_empty is False
    again = plan_reload(plan.settings, settings(f"pool.max = 9\n{key} = {value}\n"))
    assert (again.changed, again.restart) == ((), (key,)), "it waits for the restart, and is told again"


def test_a_secret_that_changed_is_named_and_not_shown() -> None:
    plan = plan_reload(settings("agents.main.env.KEY = 'a'"), settings("agents.main.env.KEY = 'b'"))
    assert plan.changed == ("agents.main.env.KEY",)


# --- profiles ---------------------------------------------------------------------------------------------------------


def test_profiles_that_are_no_more_make_a_new_list_of_those_that_are() -> None:
    old, new = profiles("[agents.x]\nmodel = 'a'\n"), profiles("[agents.x]\nmodel = 'b'\n")
    assert changed_profiles(old, new) == frozenset(profile.signature for profile in new)


def test_more_profiles_or_other_names_for_the_same_outdate_nobody() -> None:
    old = profiles("[agents.x]\nmodel = 'a'\n")
    assert changed_profiles(old, profiles("[agents.x]\nmodel = 'a'\n[agents.y]\nmodel = 'z'\n")) is None
    assert changed_profiles(old, profiles("[agents.renamed]\nmodel = 'a'\ntimeout_seconds = 9\n")) is None
