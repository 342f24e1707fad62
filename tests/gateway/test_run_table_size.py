"""However many runs have ended: what is kept of them is bounded, and none of the garbage collector's business."""

import gc

from tests.gateway.test_run_table import ended, table


def test_early_ends_leave_no_pile_of_timers() -> None:
    runs = table(runs=10)
    for number in range(5_000):
        ended(runs, str(number), now=number / 1000)
    assert len(runs._timers._heap) < 200


def test_ended_runs_are_nothing_that_the_garbage_collector_has_to_look_at() -> None:
    runs = table()
    for number in range(100):
        ended(runs, str(number))
    gc.collect()
    before = len(gc.get_objects())
    for number in range(100, 1_100):
        ended(runs, str(number))
    gc.collect()
    assert len(gc.get_objects()) - before < 100
