"""The promises of a pool whose workers are ACP agents: killed, suspended, confused, unwilling to end.

The short form is a run of `make stress`, which `make check` has beside the suite.
"""

import pytest

from stress.plan import StressOptions
from stress.run import drive_own
from tests.stress.test_driving import violations_of

pytestmark = [pytest.mark.process, pytest.mark.soak]


def wish_of(*faults: str, seconds: float, seed: int) -> StressOptions:
    return StressOptions(agents="acp", faults=faults, sessions=40, workers=4, rate=15.0, seconds=seconds, seed=seed)


@pytest.mark.parametrize(
    "wish",
    [
        wish_of("F1", "F2", "F3", seconds=300, seed=8),
        wish_of("F1", "F2", "F3", "F5", seconds=300, seed=9),
    ],
    ids=lambda wish: f"{','.join(wish.faults)}-{wish.seconds}s",
)
async def test_every_promise_is_kept_over_acp_agents(wish: StressOptions) -> None:
    result = await drive_own(wish)
    assert violations_of(result) == [], result.log
    assert result.all_kept
    assert result.fates["completed"] > result.requests / 2
    assert result.faulty > 3
    assert "F1" in {fault.fault for fault in result.faults}
    checked = {verdict.invariant: verdict.checked for verdict in result.verdicts}
    assert all(checked[invariant] for invariant in ("I1", "I2", "I3", "I4", "I7", "I10"))
