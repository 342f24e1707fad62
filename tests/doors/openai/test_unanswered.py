"""Which responses may be continued again, since their continuation gave no answer."""

from doors.openai.completion import UnansweredRuns


def test_the_latest_attempts_are_kept_and_the_oldest_give_way() -> None:
    unanswered = UnansweredRuns()
    for number in range(2001):
        unanswered.record(f"s{number}", "tried", "before")
    assert not unanswered.covers("s0", "tried", "before")
    assert unanswered.covers("s1", "tried", "before")
    unanswered.record("s1", "again", "before")
    assert not unanswered.covers("s1", "tried", "before")
    unanswered.record("one more", "tried", "before")
    assert unanswered.covers("s1", "again", "before")  # noted after s2
    assert not unanswered.covers("s2", "tried", "before")
    assert not unanswered.covers("unknown", None, None)
