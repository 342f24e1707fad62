"""Which responses may be continued again, since their continuation gave no answer."""

from doors.openai.completion import Unanswered


def test_the_latest_attempts_are_kept_and_the_oldest_give_way() -> None:
    unanswered = Unanswered()
    for number in range(2001):
        unanswered.note(f"s{number}", "tried", "before")
    assert not unanswered.stands_at("s0", "tried", "before")
    assert unanswered.stands_at("s1", "tried", "before")
    unanswered.note("s1", "again", "before")
    assert not unanswered.stands_at("s1", "tried", "before")
    unanswered.note("one more", "tried", "before")
    assert unanswered.stands_at("s1", "again", "before")  # noted after s2
    assert not unanswered.stands_at("s2", "tried", "before")
    assert not unanswered.stands_at("unknown", None, None)
