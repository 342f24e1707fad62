from gateway.lanes import AbortTurn, Clear, RejectionReason, RejectRun, StartTurn, TurnEnded
from gateway.settings import QueueMode
from tests.gateway.lanes.world import World

STEER, FOLLOWUP, COLLECT, INTERRUPT = QueueMode.STEER, QueueMode.FOLLOWUP, QueueMode.COLLECT, QueueMode.INTERRUPT


def test_an_interrupt_aborts_the_turn_clears_what_waits_and_runs_the_newest_when_the_turn_has_ended() -> None:
    world = World()
    world.follow("running", "a", "b")
    told = world.submit("new", INTERRUPT)
    assert told[0] == AbortTurn("t1")
    assert [(action.run, action.reason) for action in told if isinstance(action, RejectRun)] == [
        ("a", RejectionReason.INTERRUPTED),
        ("b", RejectionReason.INTERRUPTED),
    ]
    assert world.runs() == ("running",)
    assert [type(action) for action in world.end()] == [StartTurn]
    assert world.runs() == ("new",)


def test_a_second_interrupt_replaces_the_first_and_aborts_nothing_twice() -> None:
    world = World()
    world.follow("running")
    world.submit("first", INTERRUPT)
    told = world.submit("second", INTERRUPT)
    assert [type(action) for action in told] == [RejectRun]
    world.end()
    assert world.ends == {"running": "t1", "first": "interrupted"}
    assert world.runs() == ("second",)


def test_messages_behind_an_interrupt_wait_for_its_turn() -> None:
    world = World()
    world.follow("running")
    world.steerable()
    world.submit("new", INTERRUPT)
    assert world.submit("a", STEER) == [], "the turn that ends takes no steers"
    world.end()
    assert world.runs() == ("new",)
    assert world.machine.waiting("s") == ("a",)


def test_an_interrupt_takes_the_place_of_messages_that_wait_for_a_slot() -> None:
    world = World(lanes={"cron": 1})
    world.submit("other", session="1", lane="cron")
    world.submit("a", session="2", lane="cron")
    told = world.submit("new", INTERRUPT, session="2", lane="cron")
    assert [type(action) for action in told] == [RejectRun]
    world.end("1")
    assert world.runs("2") == ("new",)


def test_an_interrupt_takes_the_place_of_messages_that_gather() -> None:
    world = World()
    world.follow("running", "a", mode=COLLECT)
    world.end()
    world.submit("new", INTERRUPT)
    assert world.ends["a"] == "interrupted"
    assert world.runs() == ("new",)
    assert world.machine.next_wakeup() is None


def test_a_running_hold_cannot_be_interrupted_by_a_message_which_waits_like_any_other() -> None:
    world = World()
    world.submit("hold", exclusive=True)
    world.follow("a")
    assert world.submit("new", INTERRUPT) == []
    assert world.machine.waiting("s") == ("a", "new")


def test_an_interrupt_that_may_not_even_wait_interrupts_nothing() -> None:
    world = World(pending=1)
    world.follow("other", "waits", session="1")
    world.follow("running")
    told = world.submit("new", INTERRUPT)
    assert [(action.run, action.reason) for action in told if isinstance(action, RejectRun)] == [
        ("new", RejectionReason.EVICTED)
    ]
    assert len(told) == 1


def test_clearing_after_an_interrupt_refuses_it_and_the_session_is_free_when_the_turn_has_ended() -> None:
    world = World()
    world.follow("running")
    world.submit("new", INTERRUPT)
    world.tell(Clear("s"))
    turn = world.turn()
    world.turns.pop(turn)
    assert world.tell(TurnEnded(turn)) == []
    assert not world.is_busy("s")
