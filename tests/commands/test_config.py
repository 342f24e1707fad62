"""``pool config``: the commands around a settings file."""

import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import cli
from settings.config_file import ConfigChange


def test_a_first_file_is_written_checked_and_changed(alone: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    assert alone.invoke(cli.main, ["config", "init"]).stdout == "pool.toml is written\n"
    assert alone.invoke(cli.main, ["config", "check"]).stdout == f"{file}: no problems\n"
    assert alone.invoke(cli.main, ["config", "set", "pool.max", "3"]).stdout == f"pool.max = 3  ({file})\n"
    changed = msgspec.json.decode(alone.invoke(cli.main, ["config", "set", "pool.max", "3", "--json"]).stdout)
    assert changed == {"file": str(file), "key": "pool.max", "value": "3", "backup": None}
    assert "max = 3" in alone.invoke(cli.main, ["config", "show"]).stdout
    shown = alone.invoke(cli.main, ["config", "show", "--json", "--config", str(file)])
    assert msgspec.json.decode(shown.stdout)["pool"]["max"] == 3


def test_a_file_that_is_there_is_not_written_over(alone: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "pool.toml").write_text("[pool]\nmax = 3\n")
    result = alone.invoke(cli.main, ["config", "init"])
    assert (result.exit_code, "--force" in result.stderr) == (2, True)
    assert alone.invoke(cli.main, ["config", "init", "--force"]).exit_code == 0


def test_what_is_wrong_is_told_a_line_each_with_exit_code_2(alone: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text("[pool]\nmaxx = 1\nmin = true\n")
    result = alone.invoke(cli.main, ["config", "check", "--config", str(file)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert [line.partition(": ")[0] for line in result.stderr.splitlines()] == ["pool", "pool"]
    told = alone.invoke(cli.main, ["config", "--config", str(file), "check", "--json"])
    document = msgspec.json.decode(told.stdout)
    assert (told.exit_code, document["file"], len(document["problems"])) == (2, str(file), 2)


@pytest.mark.parametrize("value", ["-1", "-1.5", "-x", "--nothing-we-know"])
def test_a_value_may_begin_with_a_dash(alone: CliRunner, value: str) -> None:
    result = alone.invoke(cli.main, ["config", "set", "agents.main.append_system_prompt", value])
    assert (result.exit_code, value in result.stdout) == (0, True), result.stderr
    refused = alone.invoke(cli.main, ["config", "set", "pool.max", "-1"])
    assert (refused.exit_code, "pool.max: must be 1 or more, not -1" in refused.stderr) == (2, True)


def test_without_a_file_the_defaults_are_checked_and_a_key_makes_one(alone: CliRunner, tmp_path: Path) -> None:
    assert "the embedded defaults: no problems" in alone.invoke(cli.main, ["config", "check"]).stdout
    assert alone.invoke(cli.main, ["config", "set", "pool.max", "3"]).exit_code == 0
    assert (tmp_path / "pool.toml").exists()


def test_comments_that_are_lost_are_told_with_the_place_of_the_old_file(
    alone: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = ConfigChange(Path("f"), "pool.max", "2", Path("f.bak"))
    monkeypatch.setattr("commands.config.set_config", lambda *_: change)
    result = alone.invoke(cli.main, ["config", "set", "pool.max", "2"])
    assert result.stderr == "its comments could not be kept; the file as it was is f.bak\n"


def test_a_check_names_packages_that_a_supervisor_with_these_settings_would_lack(
    alone: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pool.toml").write_text("[telemetry]\ntraces = true\n")
    monkeypatch.delitem(sys.modules, "app.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    result = alone.invoke(cli.main, ["config", "check"])
    assert (result.exit_code, "telemetry.traces needs the extra otel" in result.stderr) == (2, True)
