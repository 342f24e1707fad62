from doors.http.limits import CpuBudget


def test_what_is_saved_up_may_be_spent_at_once_and_comes_back_with_time() -> None:
    allowance = CpuBudget(share=0.0625, burst=0.125, now=0.0)
    allowance.spend(0.125, 0.0)
    assert allowance.delay(0.0) == 0.0
    allowance.spend(0.125, 0.0)
    assert allowance.delay(0.0) == 2.0
    assert allowance.delay(1.5) == 0.5
    assert allowance.delay(2.5) == 0.0


def test_no_more_is_saved_up_than_the_burst_however_long_nothing_happens() -> None:
    allowance = CpuBudget(share=0.0625, burst=0.125, now=0.0)
    allowance.spend(0.1875, 1000.0)
    assert allowance.delay(1000.0) == 1.0


def test_what_is_given_back_can_be_spent_again_up_to_the_burst() -> None:
    allowance = CpuBudget(share=0.0625, burst=0.125, now=0.0)
    allowance.spend(0.25, 0.0)
    allowance.spend(-0.25, 0.0)
    assert allowance.delay(0.0) == 0.0
    allowance.spend(-5.0, 0.0)
    allowance.spend(0.1875, 0.0)
    assert allowance.delay(0.0) == 1.0
