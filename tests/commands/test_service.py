"""``pool service``: what is written for a service manager, and what is done to definitions that are there."""

import json
import os
import plistlib
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

import cli
from commands.service_units import (
    InstalledUnit,
    ServiceSpec,
    launchd_plist,
    plan_install,
    served_directory,
    systemd_unit,
)
from commands.supervisor import restart_supervisor
from errors import PoolError, UsageError

SPEC = ServiceSpec(
    name="agent-pool",
    program=("/opt/my pool/bin/pool",),
    options=("--config", '/etc/100%/"pool"$x.toml', "--data-dir", "/srv/a dir %h$X"),
    limits=("--max", "3"),
    data_dir="/srv/a dir %h$X",
    search_path="/usr/bin:/my tools/50%",
    stop_seconds=94,
    is_system=False,
)
TEXT = systemd_unit(SPEC)


@pytest.mark.process
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("is_system", [True, False])
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path, *, is_system: bool) -> None:
    program = tmp_path / "my pool" / "pool"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "agent-pool.service"
    unit.write_text(systemd_unit(SPEC._replace(program=(str(program),), is_system=is_system)))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_words_of_a_command_and_the_directory_arrive_as_they_are() -> None:
    assert '"--config"' not in TEXT
    assert r'ExecStart="/opt/my pool/bin/pool" run --config "/etc/100%%/\"pool\"$$x.toml" ' in TEXT
    assert "WorkingDirectory=/srv/a dir %%h$X\n" in TEXT
    assert served_directory(TEXT) == SPEC.data_dir
    with pytest.raises(UsageError, match="control characters"):
        systemd_unit(SPEC._replace(data_dir="/srv/a\nExecStartPre=/bin/evil"))


def test_a_definition_for_launchd_is_read_as_it_was_meant() -> None:
    text = launchd_plist(SPEC)
    definition = plistlib.loads(text.encode())
    assert definition["ProgramArguments"] == [*SPEC.program, "run", *SPEC.options, *SPEC.limits]
    assert definition["KeepAlive"] == {"SuccessfulExit": False}
    assert served_directory(text) == SPEC.data_dir


@pytest.mark.parametrize(
    ("present", "plan"),
    [
        ([], "new"),
        ([InstalledUnit("other", "[Service]\n")], "new"),
        ([InstalledUnit("agent-pool", TEXT)], "unchanged"),
        ([InstalledUnit("agent-pool", systemd_unit(SPEC._replace(limits=())))], "updated"),
        ([InstalledUnit("other", TEXT)], "the service other already serves the data directory /srv/a dir"),
        ([InstalledUnit("agent-pool", "[Service]\n")], "is another program's; give this one another name"),
        (
            [InstalledUnit("agent-pool", systemd_unit(SPEC._replace(data_dir="/srv/b")))],
            "serves the data directory /srv/b; give this one another name",
        ),
    ],
)
def test_an_installation_takes_no_other_services_place_or_directory(present: list[InstalledUnit], plan: str) -> None:
    if " " not in plan:
        assert plan_install(SPEC, TEXT, present) == plan
        return
    with pytest.raises(UsageError, match=plan):
        plan_install(SPEC, TEXT, present)


class Machine:
    """A user's machine with systemd, of which only ``systemctl`` is a stand-in: it notes what it is asked."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = place
        self.unit = place / "config" / "systemd" / "user" / "agent-pool.service"
        self._asked = place / "asked"
        program = place / "bin" / "systemctl"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\necho "$@" >>{self._asked}\necho ActiveState=active\nexit ${{FAKE_CODE:-0}}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "config"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
        monkeypatch.setattr("sys.platform", "linux")
        monkeypatch.setattr("commands.service._BOOTED", place)
        monkeypatch.setattr("commands.service._LINGERING", place / "linger")

    def pool(self, *words: str) -> Result:
        return CliRunner().invoke(cli.main, ["service", *words], prog_name="pool")

    def asked(self) -> list[str]:
        lines = self._asked.read_text().splitlines() if self._asked.exists() else []
        self._asked.unlink(missing_ok=True)
        return lines


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_service_is_installed_left_alone_updated_and_removed(machine: Machine) -> None:
    place = ("--data-dir", str(machine.place / "data"))
    done = machine.pool("install", *place)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "is installed and runs" in done.stdout
    assert "loginctl enable-linger" in done.stdout
    assert machine.asked() == ["--user daemon-reload", "--user enable --now agent-pool.service"]
    assert f"--data-dir {machine.place / 'data'}" in machine.unit.read_text()
    before = machine.unit.stat().st_mtime_ns
    assert "is unchanged" in machine.pool("install", *place).stdout
    assert machine.unit.stat().st_mtime_ns == before
    assert "is updated; `pool restart` makes it hold" in machine.pool("install", *place, "--max", "7").stdout
    assert "--max 7" in machine.unit.read_text()
    second = machine.pool("install", *place, "--name", "second")
    assert (second.exit_code, "`pool service uninstall --name agent-pool`" in second.stderr) == (2, True)
    listed = machine.pool("status")
    assert (listed.exit_code, listed.stdout[:18]) == (0, "agent-pool: active")
    [shown] = json.loads(machine.pool("status", "--json").stdout)
    assert f"{shown['name']}: {shown['state']}, data directory {shown['data_dir']}\n" == listed.stdout
    machine.asked()
    assert "is unchanged" in machine.pool("install", *place, "--max", "7").stdout
    assert machine.asked() == ["--user daemon-reload", "--user enable --now agent-pool.service"]
    assert machine.pool("uninstall").exit_code == 0
    assert machine.asked() == ["--user disable --now agent-pool.service", "--user daemon-reload"]
    assert not machine.unit.exists()
    assert machine.pool("status").exit_code == 3
    assert machine.pool("uninstall").exit_code == 2


_LAUNCHCTL = """#!/bin/sh
echo "$1" >>{asked}
case "$1" in
    print) test -e {loaded} ;;
    bootstrap) test ! -e {loaded} && test -z "$FAKE_CODE" && : >{loaded} ;;
    bootout) rm {loaded} ;;
esac
"""


def test_launchd_loads_a_changed_definition_again_and_one_that_it_could_not_load(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, loaded = machine.place, machine.place / "loaded"
    program = place / "bin" / "launchctl"
    program.write_text(_LAUNCHCTL.format(asked=place / "asked", loaded=loaded))
    program.chmod(0o755)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setattr("sys.platform", "darwin")
    install = ("install", "--data-dir", str(place / "data"))
    monkeypatch.setenv("FAKE_CODE", "5")
    assert machine.pool(*install).exit_code == 1
    monkeypatch.delenv("FAKE_CODE")
    assert machine.pool(*install).exit_code == 0
    machine.asked()
    assert "is unchanged" in machine.pool(*install).stdout
    assert machine.asked() == ["print"]
    assert "was started with that again" in machine.pool(*install, "--max", "7").stdout
    assert machine.asked() == ["print", "bootout", "print", "bootstrap"]
    loaded.unlink()  # by hand
    assert machine.pool("uninstall").exit_code == 0
    assert not list((place / "Library" / "LaunchAgents").iterdir())


def test_where_no_service_manager_runs_no_service_is_active(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commands.service._BOOTED", machine.place / "not-booted")
    status = machine.pool("status")
    assert (status.exit_code, "no service is active: this machine does not run systemd" in status.stderr) == (3, True)
    assert machine.pool("uninstall").exit_code == 2


def test_a_manager_that_refuses_is_quoted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CODE", "1")
    failed = machine.pool("install", "--data-dir", str(machine.place / "data"))
    assert failed.exit_code == 1
    assert "`systemctl --user daemon-reload` failed: ActiveState=active" in failed.stderr


def test_a_restart_of_a_service_is_its_managers(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    service = {"unit": "agent-pool.service", "manager": "user"}
    client: Any = SimpleNamespace(call=lambda *_, **__: {"restarting": False, "service": service, "waits_for": []})
    restart_supervisor(client, None)
    assert machine.asked() == ["--user restart agent-pool.service"]
    monkeypatch.setenv("FAKE_CODE", "1")
    with pytest.raises(PoolError, match=r"`systemctl --user restart agent-pool\.service` failed with code 1"):
        restart_supervisor(client, None)


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("systemd", "does not run systemd; `pool run --detach`"),
        ("session", "there is no service manager of this user here"),
        ("a name", "cannot be the name of a service"),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_written(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, missing: str, words: str
) -> None:
    if missing == "systemd":
        monkeypatch.setattr("commands.service._BOOTED", machine.place / "none")
    elif missing == "session":
        monkeypatch.delenv("XDG_RUNTIME_DIR")
    name = ("--name", "../x") if missing == "a name" else ()
    refused = machine.pool("install", "--data-dir", str(machine.place / "data"), *name)
    assert (refused.exit_code, words in refused.stderr) == (2, True)
    assert not machine.unit.exists()
    assert machine.asked() == []
