"""``GET /metrics``: names, types, labels and units; and that the dashboard and the alerts of the docs ask for them."""

import json
import os
import re
import shutil
import subprocess
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.doors.http.conftest import Door, Open
from tests.gateway.world import MACHINES, Machines, World
from tests.house import ROOT

_MONITORING = ROOT / "docs" / "monitoring"
_OF_THE_SCRAPER = {"instance", "job"}


@pytest.fixture
async def measured(open_door: Open, world: World, monkeypatch: pytest.MonkeyPatch) -> Door:
    """The figures of two sessions, one of which is in its turn."""
    monkeypatch.setattr("tests.gateway.world.Supervisor.facts", lambda _: {"pid": 1, "uptime": 2.5})
    worker = await world.hanging()
    worker.finish(usage={"input_tokens": 12, "output_tokens": 3, "cost": 0.5})
    await world.begin("hang", "bob", agent="ops")
    return await open_door(world.methods)


async def text_of(door: Door) -> str:
    answer = await door.call("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.body.decode()


async def families_of(door: Door) -> list[Metric]:
    return list(text_string_to_metric_families(await text_of(door)))


async def test_the_metrics_are_those_of_the_status(measured: Door, world: World) -> None:
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in await families_of(measured)
        for sample in family.samples
    }
    for name, value in {"up": 1, "runs": 1, "sessions": 2, "http_connections": 1}.items():
        assert found[f"pool_{name}",] == value, name
    profiles = {each.agent: each.profile for each in world.gateway.pool.statistics().profiles}
    main, ops = (("agent", "main"), ("profile", profiles["main"])), (("agent", "ops"), ("profile", profiles["ops"]))
    assert found["pool_workers", *ops, ("state", "leased")] == 1
    assert found["pool_turn_seconds_count", *main] == 1
    assert found["pool_acquire_seconds_bucket", main[0], ("le", "+Inf"), main[1]] == 1
    assert found["pool_spawned_total",] == world.gateway.pool.statistics().counters.spawned
    assert found["pool_runs_ended_total", ("agent", "main"), ("reason", "completed")] == 1
    model = ("model", "default")
    assert found["pool_tokens_total", ("agent", "main"), model, ("type", "input")] == 12
    assert found["pool_cost_dollars_total", ("agent", "main"), model] == 0.5
    assert found["pool_event_seq",] == world.gateway.bus.head


async def test_the_nodes_of_a_cluster_are_counted_by_group_and_no_name_of_one_is_a_label(
    measured: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.gateway.world.Supervisor.machines", Machines(*MACHINES))
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in await families_of(measured)
        for sample in family.samples
        if "group" in sample.labels
    }
    assert found == {
        ("pool_nodes", "", "up"): 1,
        ("pool_nodes", "gpu", "up"): 1,
        ("pool_nodes", "gpu", "draining"): 1,
        ("pool_nodes", "gpu", "lost"): 1,
        ("pool_node_slots", ""): 4,
        ("pool_node_slots", "gpu"): 3,
        ("pool_node_slots_used", ""): 1,
        ("pool_node_slots_used", "gpu"): 3,
    }


async def test_sessions_are_no_labels(measured: Door) -> None:
    text = await text_of(measured)
    assert "alice" not in text
    assert "bob" not in text


async def test_a_profile_beyond_those_with_series_of_their_own_is_shown_as_other(
    measured: Door, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.gateway.pool.latencies._series, "_limit", 2)
    await world.begin("hang", "carol", role="writer")
    shown = {
        (sample.name, sample.labels["profile"])
        for family in await families_of(measured)
        for sample in family.samples
        if "profile" in sample.labels
    }
    assert {profile for _, profile in shown} >= {"other"}
    assert len({profile for _, profile in shown}) == 3
    assert ("pool_workers", "other") in shown, "as its histograms are"


async def test_openmetrics_is_for_those_who_ask_for_it(measured: Door) -> None:
    answer = await measured.call("GET", "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.body.endswith(b"# EOF\n")


# --- what Prometheus' own tools would say -----------------------------------------------------------------------------


async def test_every_family_is_named_described_and_typed_by_the_rules_of_prometheus(measured: Door) -> None:
    """Those that ``promtool check metrics`` holds, for machines without it."""
    families = await families_of(measured)
    assert len(families) > 45
    for family in families:
        assert family.documentation.strip(), family.name
        assert family.type in ("counter", "gauge", "histogram"), "summaries cannot be added up"
        assert re.fullmatch(r"pool_[a-z][a-z0-9_]*", family.name)
        assert not re.search(
            r"_(total|bucket|count|sum|counter|gauge|percent|ms|millis\w*|minutes|hours|kb|mb|kilo\w*|s|b)$",
            family.name,
        ), f"{family.name} ends in no base unit, or in what its samples add"
        for sample in family.samples:
            wanted = {"counter": r"_total", "gauge": "", "histogram": "_(bucket|sum|count)"}[family.type]
            assert re.fullmatch(family.name + wanted, sample.name)
        check_buckets(family)


def check_buckets(family: Metric) -> None:
    """Cumulative, by rising bounds up to +Inf, for each of the other labels."""
    series: dict[Any, list[tuple[float, float]]] = {}
    for sample in family.samples:
        if sample.name.endswith("_bucket"):
            others = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
            series.setdefault(others, []).append((float(sample.labels["le"]), sample.value))
    assert bool(series) == (family.type == "histogram" and bool(family.samples))
    for buckets in series.values():
        assert buckets[-1][0] == float("inf")
        assert all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(buckets))


def promtool(*args: str, text: str = "") -> None:
    program = shutil.which("promtool")
    if program is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing("promtool (of Debian's package prometheus) is not installed")
    done = subprocess.run([program, *args], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


@pytest.mark.process
async def test_promtool_has_nothing_to_say_of_the_metrics(measured: Door) -> None:
    promtool("check", "metrics", text=await text_of(measured))


@pytest.mark.process
def test_promtool_accepts_the_alert_rules() -> None:
    promtool("check", "rules", str(_MONITORING / "alerts.yml"))


@pytest.mark.process
def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    promtool("test", "rules", str(ROOT / "tests" / "doors" / "http" / "alerts_test.yml"))


# --- what the docs ask for --------------------------------------------------------------------------------------------


def alert_expressions() -> list[str]:
    """Those of the rules, each with its indented lines."""
    return re.findall(
        r"^ +expr: (.+?)\n +(?:for|labels):", (_MONITORING / "alerts.yml").read_text(), re.DOTALL | re.MULTILINE
    )


def panel_expressions() -> list[str]:
    dashboard = json.loads((_MONITORING / "grafana.json").read_text())
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return panels + [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]


async def test_every_metric_and_label_that_the_dashboard_and_the_alerts_ask_for_exists(measured: Door) -> None:
    await text_of(measured)  # so that there was an answer
    labels_of: dict[str, set[str]] = {}
    for family in await families_of(measured):
        suffixes = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}[family.type]
        labels = {name for sample in family.samples for name in sample.labels}
        labels_of |= {family.name + suffix: labels for suffix in suffixes}
    labels_of["pool_exits_total"] |= {"cause"}  # no worker of this world has ended
    expressions = [*alert_expressions(), *panel_expressions()]
    labels_of["pool_nodes"] |= {"group", "state"}  # nor is there another machine
    assert len(alert_expressions()) == 12
    assert len(panel_expressions()) > 30
    for expression in expressions:
        names = re.findall(r"\bpool_\w+", expression)
        assert names or "up{" in expression, expression
        assert set(names) <= labels_of.keys(), expression
        asked = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
        asked |= set(re.findall(r"[{,](\w+)=~?", expression))
        known = set().union(*(labels_of[name] for name in names), _OF_THE_SCRAPER)
        assert asked <= known, expression


def test_the_page_names_only_what_is_there() -> None:
    page, alerts = (ROOT / "docs" / "monitoring.md").read_text(), (_MONITORING / "alerts.yml").read_text()
    assert set(re.findall(r"`(Pool[A-Z]\w+)`", page)) == set(re.findall(r"alert: (\w+)", alerts))
    for name in re.findall(r"\]\((monitoring/\S+)\)", page):
        assert (ROOT / "docs" / name).is_file()
