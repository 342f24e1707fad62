"""What settings and operators may say about a job, and how what they may not is refused."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from errors import UsageError
from heartbeat.cron.jobs import CronJob, JobSource, NameValidators, cron_problems, make_job
from heartbeat.cron.requests import CronAdd, CronList, CronName, job_settings_from
from heartbeat.cron.schedule import At, Cron, Every, machine_zone, zone_named
from heartbeat.cron.settings import CronJobSettings, CronSettings, JobMode
from wire.units import decode_unit

NOW = 1_700_000_000.0
BERLIN = ZoneInfo("Europe/Berlin")
NAMES = NameValidators(
    agent_problem=lambda name: None if name in ("main", "ops") else f"there is no agent {name!r}",
    target_problem=lambda target: None if target != "nowhere" else "'nowhere' is no target",
    default_agent=lambda: "main",
)


def settings(**said: Any) -> CronJobSettings:
    return msgspec.convert({"text": "x"} | said, CronJobSettings, dec_hook=decode_unit)


def job(name: str = "job", *, source: JobSource = JobSource.SETTINGS, **said: Any) -> CronJob:
    return make_job(name, settings(**said), source=source, now=NOW, local=BERLIN, names=NAMES)


def added(**said: Any) -> CronJob:
    add = msgspec.json.decode(msgspec.json.encode({"text": "x"} | said), type=CronAdd)
    said_so = job_settings_from(add, now=NOW)
    return make_job("job", said_so, source=JobSource.ADDED, now=NOW, local=BERLIN, names=NAMES)


def test_a_job_that_names_no_agent_is_the_default_agents() -> None:
    names = NameValidators(NAMES.agent_problem, NAMES.target_problem, lambda: "ops")
    made = make_job("job", settings(every="1h"), source=JobSource.ADDED, now=NOW, local=BERLIN, names=names)
    assert (made.agent, made.session) == ("ops", "agent:ops:main:main")


@pytest.mark.parametrize(
    ("said", "schedule"),
    [
        ({"cron": " 0  8 * * * "}, Cron("0 8 * * *")),
        ({"cron": "0 8 * * *", "tz": "Asia/Tokyo"}, Cron("0 8 * * *", "Asia/Tokyo")),
        ({"every": "2h"}, Every(7200.0, 0.0)),
        ({"every": 90}, Every(90.0, 0.0)),
        ({"every": "2h", "anchor": "2023-11-14T00:00:00Z"}, Every(7200.0, 1_699_920_000.0)),
        ({"at": datetime(2031, 5, 1, 8, tzinfo=UTC)}, At(1_935_388_800.0)),
        ({"at": "2031-05-01T08:00:00"}, At(1_935_388_800.0 - 7200.0)),
        ({"at": "2031-05-01T08:00:00", "tz": "UTC"}, At(1_935_388_800.0)),
    ],
)
def test_settings_say_when(said: dict[str, Any], schedule: Cron | Every | At) -> None:
    assert job(**said).schedule == schedule


@pytest.mark.parametrize(
    ("said", "schedule"),
    [
        ({"cron": "0 8 * * *"}, Cron("0 8 * * *")),
        ({"every": "2h"}, Every(7200.0, NOW)),
        ({"every": "90"}, Every(90.0, NOW)),
        ({"every": "1d", "anchor": "2023-11-14T00:00Z"}, Every(86_400.0, 1_699_920_000.0)),
        ({"at": "20m"}, At(NOW + 1200.0)),
        ({"at": "2031-05-01T08:00"}, At(1_935_388_800.0 - 7200.0)),
        ({"at": "2031-05-01 08:00+00:00"}, At(1_935_388_800.0)),
        ({"at": "2031-05-01T08:00", "tz": "UTC"}, At(1_935_388_800.0)),
        ({"at": "2053-01-01"}, At(datetime(2053, 1, 1, tzinfo=BERLIN).timestamp())),
    ],
)
def test_an_operator_says_when(said: dict[str, Any], schedule: Cron | Every | At) -> None:
    assert added(**said).schedule == schedule


def test_a_job_belongs_to_the_main_conversation_of_its_agent_unless_another_is_named() -> None:
    assert job(every="1m", agent="ops").session == "agent:ops:main:main"
    assert job(every="1m", agent="ops", session="agent:OPS:main").session == "agent:ops:main:main"
    isolated = job(every="1m", mode="isolated", agent="ops", session="agent:main:main")
    assert isolated.session == "agent:main:main:main", "it is told where that one last spoke, and speaks elsewhere"
    assert job(every="1m", session="alice").session == "alice"


def test_what_is_not_said_has_a_default() -> None:
    assert job(every="1m", text=" x \n").text == "x"
    plain = job(every="1m")
    assert (plain.mode, plain.target, plain.timeout, plain.enabled) == (JobMode.MAIN, "last", 600.0, True)
    assert not plain.delete_after_run
    assert job(at="2031-05-01T08:00:00").delete_after_run, "what is due once is gone after it"
    assert not job(at="2031-05-01T08:00:00", delete_after_run=False).delete_after_run
    isolated = job(every="1m", mode="isolated", timeout="30s", delivery="webhook:ops")
    assert (isolated.timeout, isolated.target) == (30.0, "webhook:ops")


BOTH: list[tuple[dict[str, Any], str]] = [
    ({}, "this one has none of them"),
    ({"cron": "0 8 * * *", "every": "1h"}, "this one has cron and every"),
    ({"cron": "0 8 * * *", "anchor": "2023-11-14T00:00:00Z"}, "anchor is for every alone"),
    ({"cron": "0 0 30 2 *"}, "never comes"),
    ({"cron": "0 25 * * *"}, "its hour is malformed"),
    ({"cron": "0 8 * * *", "tz": "Mars/Olympus"}, "no time zone"),
    ({"every": "59s"}, 'the shortest is "1m"'),
    ({"cron": "*/30 0 8 * * *"}, "is due more than once a minute"),
    ({"at": "1969-01-01T00:00:00Z"}, "1970"),
    ({"at": "4000-01-01T00:00:00Z"}, "3000"),
    ({"at": "0001-01-01T00:00:00"}, "1970"),
    ({"at": "9999-12-31T23:59:59-12:00"}, "3000"),
    ({"every": "1m", "text": "  \n"}, "text has 0 characters"),
    ({"every": "1m", "mode": "main", "delivery": "last"}, 'for mode = "isolated"'),
    ({"every": "1m", "mode": "main", "timeout": "1m"}, 'for mode = "isolated"'),
    ({"every": "1m", "mode": "isolated", "timeout": "0s"}, "no time for a run"),
    ({"every": "1m", "mode": "isolated", "timeout": "2d"}, "no time for a run"),
    ({"every": "1m", "keep": True}, "keep is for mode"),
    ({"every": "1m", "mode": "isolated", "delivery": "nowhere"}, "is no target"),
    ({"every": "1m", "agent": "nobody"}, "there is no agent 'nobody'"),
    ({"every": "1m", "session": "agent:ops:"}, "session key needs its name"),
    ({"every": "1m", "session": "agent:ops:main"}, 'is agent ops\'s, .* write agent = "ops", or mode = "isolated"'),
]


@pytest.mark.parametrize(("said", "word"), BOTH)
def test_what_cannot_be_meant_is_refused_in_settings_and_from_operators(said: dict[str, Any], word: str) -> None:
    with pytest.raises((UsageError, msgspec.ValidationError), match=word):
        job(**said)
    with pytest.raises(UsageError, match=word):
        added(**said)


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"at": "tomorrow"}, '2031-05-01T08:00", or a span'),
        ({"at": "99999999d"}, "not understood"),
        ({"every": "often"}, "every: 'often' is not understood"),
        ({"every": "1m", "anchor": "noon"}, "anchor = 'noon'"),
        ({"every": "1m", "mode": "isolated", "timeout": "long"}, "timeout: 'long'"),
    ],
)
def test_times_that_cannot_be_read_are_refused_with_how_to_write_them(said: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        added(**said)


@pytest.mark.parametrize("name", ["", "Daily", "a b", "-a", "a" * 65, "a/b", "a:b", "ä"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no name of a job"):
        job(name, every="1m")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (CronAdd, b'{"text":""}'),
        (CronAdd, b'{"text":"x","evry":"1m"}'),
        (CronAdd, b'{"text":"x","cron":"%s"}' % (b"*" * 600)),
        (CronAdd, b'{"text":"%s"}' % (b"x" * 40_000)),
        (CronAdd, b'{"text":"x","mode":"both"}'),
        (CronName, b'{"id":""}'),
        (CronName, b"{}"),
        (CronList, b'{"limit":0}'),
        (CronList, b'{"limit":1001}'),
    ],
)
def test_parameters_out_of_bounds_are_refused(kind: type, body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=kind)


def test_a_text_beyond_the_limit_is_refused_in_settings_too() -> None:
    assert job(every="1m", text="x" * 32_768).text == "x" * 32_768
    with pytest.raises(msgspec.ValidationError, match="1 to 32768"):
        job(every="1m", text="x" * 32_769)


def test_every_problem_of_the_settings_is_named_by_its_table() -> None:
    jobs = {
        "fine": settings(every="1m"),
        "Bad Name": settings(every="1m"),
        "never": settings(cron="0 0 30 2 *"),
        "past": settings(at="2001-01-01T00:00:00Z"),
    }
    problems = dict(cron_problems(CronSettings(jobs=jobs), now=NOW, local=UTC, names=NAMES))
    assert problems.keys() == {("cron", "jobs", "Bad Name"), ("cron", "jobs", "never")}


def test_too_many_jobs_are_a_problem_of_the_settings() -> None:
    jobs = {f"job{number}": settings(every="1m") for number in range(10_001)}
    problems = list(cron_problems(CronSettings(jobs=jobs), now=NOW, local=UTC, names=NAMES))
    assert problems == [(("cron", "jobs"), "there are 10001 jobs; 10000 are possible")]


@pytest.mark.parametrize("number", [0, -1, 1001])
def test_a_limit_that_lets_nothing_or_everything_run_is_refused(number: int) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int` (>= 1|<= 1000)"):
        msgspec.convert({"max_running": number}, CronSettings)


def test_the_zone_of_the_machine_is_that_of_its_environment_else_of_its_file(tmp_path: Path) -> None:
    at = datetime(2025, 7, 1, tzinfo=UTC)
    missing, broken = tmp_path / "missing", tmp_path / "broken"
    broken.write_bytes(b"nonsense")
    assert str(machine_zone({"TZ": "Asia/Tokyo"}, missing)) == "Asia/Tokyo"
    assert str(machine_zone({"TZ": ":Asia/Tokyo"}, missing)) == "Asia/Tokyo"
    assert machine_zone({}, missing) is UTC
    assert machine_zone({}, broken) is UTC
    assert machine_zone({"TZ": "Mars/Olympus"}, missing) is UTC
    assert machine_zone({"TZ": "../../etc/passwd"}, missing) is UTC
    found = _zone_file(tmp_path)
    assert at.astimezone(machine_zone({}, found)).utcoffset() == at.astimezone(BERLIN).utcoffset()


def _zone_file(directory: Path) -> Path:
    """A file of ours with Berlin's summer offset, in the format of the zone database: one type, no changes."""
    head = b"TZif2" + bytes(15) + b"".join(count.to_bytes(4, "big") for count in (0, 0, 0, 0, 1, 4))
    body = (7200).to_bytes(4, "big") + b"\x01\x00" + b"CET\0"
    path = directory / "localtime"
    path.write_bytes(head + body + head + body + b"\nCET-2\n")
    return path


def test_no_name_is_the_machines_zone_and_utc_needs_no_database() -> None:
    assert zone_named("", BERLIN) is BERLIN
    assert zone_named("utc", BERLIN) is UTC
