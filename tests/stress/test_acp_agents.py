"""The promises of a pool whose workers are ACP agents: killed, suspended, confused, unwilling to end."""

import sys
import tomllib
from pathlib import Path

import pytest
import tomli_w

from stress.faults import faults_of
from stress.faults.peers import FaultyOutput, UnstoppableWorkers
from stress.plan import StressOptions, make_plan
from stress.run import drive_own
from stress.schedule import merged, settings_text
from tests.stress.test_driving import violations_of

pytestmark = pytest.mark.process

AGENT = Path(__file__).resolve().parents[2] / "fixtures" / "acp_agent"
INVALID = (
    *("POLLUTE:no message;ECHO:", "BADUTF8;ECHO:", "HALF;STALL;ECHO:", "HALF;EXIT=7;ECHO:", "LINE=65536;ECHO:"),
    *("BADTYPES;ECHO:", "STRAY=50;ECHO:", "EXTRA;ECHO:", "QUIRK:answers-twice;ECHO:", "QUIRK:unknown-ids;ECHO:"),
    *("LATE:said too late;ECHO:", "ERROR=-32000:no;ECHO:", "STALL;ECHO:"),
)
UNWILLING = (
    *("QUIRK:ignores-eof;ECHO:", "QUIRK:ignores-term;ECHO:", "SETSID:sleep 300;ECHO:", "SPAWN:sleep 300;ECHO:"),
    *("QUIRK:cancel-deaf;ECHO:", "EXIT=-9;ECHO:"),
)


def acp_settings(wish: StressOptions, store: Path) -> str:
    """The settings of the run, with ACP agents in place of the bundled ones."""
    plan = make_plan(wish)
    table = tomllib.loads(settings_text(plan, [fault.prepare(plan) for fault in faults_of(plan.faults)]))
    command = [sys.executable, "-S", str(AGENT), "--store", str(store), "--quirk", "recalls"]
    agents = {name: {"dialect": "acp", "command": command} for name in ("main", *table.get("agents", ()))}
    return tomli_w.dumps(merged(table, {"agents": agents}))


@pytest.mark.parametrize(
    "wish",
    [
        StressOptions(faults=("F1", "F2", "F3"), sessions=40, workers=4, seconds=12, rate=15.0, seed=7),
        pytest.param(
            StressOptions(faults=("F1", "F2", "F3"), sessions=40, workers=4, seconds=300, rate=15.0, seed=8),
            marks=pytest.mark.soak,
        ),
        pytest.param(
            StressOptions(faults=("F1", "F2", "F3", "F5"), sessions=40, workers=4, seconds=300, rate=10.0, seed=9),
            marks=pytest.mark.soak,
        ),
    ],
    ids=lambda wish: f"{','.join(wish.faults)}-{wish.seconds}s",
)
async def test_every_promise_is_kept_over_acp_agents(
    wish: StressOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FaultyOutput, "words", INVALID)
    monkeypatch.setattr(UnstoppableWorkers, "words", UNWILLING)
    for fault in (FaultyOutput, UnstoppableWorkers):
        monkeypatch.setattr(fault, "share", 0.06)
    result = await drive_own(wish, settings=acp_settings(wish, tmp_path / "store"))
    assert violations_of(result) == [], result.log
    assert result.all_kept
    assert result.fates["completed"] > result.requests / 2
    assert result.faulty > 3
    assert "F1" in {fault.fault for fault in result.faults}
    checked = {verdict.invariant: verdict.checked for verdict in result.verdicts}
    assert all(checked[invariant] for invariant in ("I1", "I2", "I3", "I4", "I7", "I10"))
