"""Groups of nodes in the machine: what their slots allow, how a node is lost, and how one is emptied."""

import msgspec
import pytest

from pool import stimuli
from tests.pool.transcript import play
from tests.pool.world import World, make_profile

PLACES = {
    "without a capacity a group has all the pool's workers": """
        pool max=2; hold r1 one x@gpu:a; hold r2 two y@big:a; workers w1 w2""",
    "a full group starts nothing though the pool has room": """
        capacity gpu=1 here=3; hold r1 one x@gpu:a; ask r2 two x@gpu:a => nothing
        ask r3 three => spawn w2 a; ask r4 four y@gpu:b => nothing
        reason r2 group gpu has no free slot, and no worker there can make room
        needs two a turn or background command has to end in one, or group gpu has to get more slots""",
    "a group that nothing was said of has no slot": """
        capacity here=3; ask r1 one x@gpu:a => nothing
        reason r1 group gpu has no free slot, and no worker there can make room
        capacity here=3 gpu=1 => spawn w1 x@gpu:a""",
    "of all workers only one of the group makes room there": """
        capacity gpu=2 here=1; use one b; use two x@gpu:a; use three y@gpu:a; hold r1 one b
        ask r2 four x@gpu:c => stop w2 evicted; exit w2 => spawn w4 x@gpu:c; free r1
        ask r3 five b => reset w1 five; settle; held r2 r3@w1""",
    "the worker used longest ago goes first, whichever agent of the group has it": """
        pool max=9; capacity gpu=3; use one x@gpu:a; wait 1.0; use two y@gpu:a; wait 1.0; use three x@gpu:b; wait 1.0
        use one x@gpu:a; ask r1 four z@gpu:a => stop w2 evicted; ask r2 five z@gpu:a => stop w3 evicted""",
    "a slot that is coming in the group is taken before another worker stops": """
        pool max=9; capacity gpu=2; use one x@gpu:a; use two x@gpu:b; stop w1 => stop w1 operator
        ask r1 three x@gpu:c => nothing; exit w1 => spawn w3 x@gpu:c""",
    "a worker that is freed is stopped for one of its group that has waited far longer": """
        pool max=9; capacity gpu=1 here=2; hold r1 one x@gpu:a; ask r2 two x@gpu:b; wait 4.0; ask r3 three x@gpu:a
        free r1 => stop w1 evicted; exit w1 => spawn w2 x@gpu:b""",
    "who waits for a group goes on when it gets slots, and not when another does": """
        capacity gpu=1 here=1; hold r1 one x@gpu:a; ask r2 two x@gpu:a; ask r3 three x@gpu:a
        capacity gpu=1 here=3 => nothing; capacity gpu=2 here=1 => spawn w2 x@gpu:a
        capacity gpu=4 here=1 => spawn w3 x@gpu:a""",
    "all workers together are no more than all slots, nor than the pool's limit": """
        pool max=4; capacity gpu=1 here=1; most 2; capacity gpu=3 here=3; most 4
        capacity gpu=1 here=2; hold r1 one; hold r2 two; hold r3 three x@gpu:a; ask r4 four => nothing
        settings max=2; most 2; capacity gpu=9 here=9; most 2""",
    "commands in the background leave one worker of a group": """
        pool max=9; capacity gpu=2 here=5; hold r1 one x@gpu:a; background w1 1; free r1; hold r2 two x@gpu:a
        background w2 1; free r2; ask r3 three x@gpu:b => stop w1 unpinned; exit w1 => spawn w3 x@gpu:b""",
    "the reserve leaves a worker for ordinary requests where few slots are left": """
        pool max=4 reserve=2; capacity here=1; hold r1 one; free r1""",
    "sessions that keep their workers leave one of the slots": """
        pool max=4; capacity here=2; hold r1 one pin:a; ask r2 two pin:a
        error r2 PoolSaturated 1 session keeps a worker""",
    "what was lost is not started again where its group is full": """
        pool max=9; capacity gpu=2 here=2; use one x@gpu:a; hold r1 two x@gpu:a; ask r2 three x@gpu:b
        fail w1 crashed; exit w1 => spawn w3 x@gpu:b; capacity gpu=4 here=2 => nothing""",
    "each node that starts workers has a burst of its own, all together a rate": """
        pool max=9 spawn_burst=1 spawn_rate=1.0; ask r1 one; ask r2 two => nothing; next 1.0
        capacity here=9 starters=2; next 0.5; wait 0.5; spawned 2; wait 9.0; ask r3 three; ask r4 four; ask r5 five
        spawned 4; wait 9.0; spawned 5
        capacity here=9 starters=9 start_rate=2.0; ask r6 six; ask r7 seven; ask r8 eight; spawned 7""",
}

LOST = {
    "starts on a lost node are held against no profile": """
        pool max=99 breaker_failures=3; capacity gpu=9; ask r1 one x@gpu:a; ask r2 two x@gpu:a; ask r3 three x@gpu:a
        fail w1 lost; fail w2 lost; fail w3 lost; breaker x@gpu:a closed; capacity gpu=3; exit w1; exit w2; exit w3
        spawned 6; settle; held r1 r2 r3; counter exits.lost 3""",
    "a trial start that is lost is made again": """
        pool breaker_failures=1; ask r1 one; fail_start; breaker a open; wait 30.0; ask r2 two => spawn w2 a
        fail w2 lost => kill w2 failed, spawn w3 a; exit w2; ready w3; breaker a closed""",
    "a session whose resume was lost with its node is not charged for it": """
        pool max=1; use one; use two; ask r1 one => reset w1 one one.jsonl; fail w1 lost; exit w1; ready w2
        fail w2 lost; exit w2; ready w3; reset w3 => grant r1 w3""",
    "who holds workers of a lost node fails, healthy workers stay, and nothing is started before a slot is there": """
        pool max=9; capacity gpu=4; hold r1 one x@gpu:a; hold r2 two x@gpu:a; hold r3 three x@gpu:a; use four x@gpu:b
        ask r5 five x@gpu:c => stop w4 evicted; exit w4; settle; held r5@w5
        fail w1 lost => kill w1 failed; fail w2 lost => kill w2 failed; ask r6 six x@gpu:a => nothing
        capacity gpu=4 => nothing; capacity gpu=3 => nothing; exit w1 => nothing
        capacity gpu=2 => nothing; exit w2 => nothing; workers w3 w5
        reason r6 group gpu has no free slot, and no worker there can make room; free r3; settle; held r6@w3""",
    "a session of a lost node goes on at another one once its worker is surely gone": """
        pool max=9; capacity gpu=3; use one x@gpu:a; fail w1 lost; capacity gpu=3; ask r1 one x@gpu:a => nothing
        capacity gpu=2; exit w1 => spawn w2 x@gpu:a; ready w2 => reset w2 one one.jsonl fresh
        reset w2 => grant r1 w2""",
}

EMPTIED = {
    "a node that is to be empty stops what is idle at once, what is in use at the end of its turn": """
        pool max=9; capacity gpu=4; use one x@gpu:a; hold r1 two x@gpu:a; capacity gpu=2
        empty w1 => stop w1 retired; empty w2 => nothing; free r1 => stop w2 retired""",
    "a worker that starts there is not waited for": """
        pool max=9; capacity gpu=2; ask r1 one x@gpu:a => spawn w1 x@gpu:a; capacity gpu=1
        empty w1 => stop w1 retired; ready w1 => nothing; capacity gpu=1; exit w1 => spawn w2 x@gpu:a""",
    "its sessions go on elsewhere": """
        pool max=9; capacity gpu=4; use one x@gpu:a; capacity gpu=3; empty w1 => stop w1 retired
        capacity gpu=2; exit w1 => nothing; hold r1 one x@gpu:a; held r1@w2""",
    "a worker is started near the node that its session was on last, one for no session anywhere": """
        pool max=9; ask r1 one => spawn w1 a; ready w1 n1; reset w1; held r1@w1; free r1; stop w1; exit w1
        ask r2 one => spawn w2 a near n1; ask r3 two => spawn w3 a""",
}


@pytest.mark.parametrize(
    "transcript", [pytest.param(text, id=name) for name, text in {**PLACES, **LOST, **EMPTIED}.items()]
)
def test_places_decide_as_the_transcript_says(transcript: str) -> None:
    play(transcript)


def test_the_demand_for_slots_is_what_waits_for_a_full_group_within_the_pools_limit() -> None:
    world = World(max=5)
    world.set_capacity({"": 1, "gpu": 1, "big": 0})
    for number in range(3):
        world.acquire(f"g{number}", make_profile("a", agent="x@gpu"))
    world.acquire("big", make_profile("b", agent="y@big"))
    world.acquire("here", make_profile("c"))
    assert world.machine.slot_demand() == {"gpu": 2, "big": 1}
    assert [data["group"] for event, data in world.events if event == "group_full"] == ["gpu", "big"]
    world.tell(stimuli.SettingsChanged(msgspec.structs.replace(world.settings, max=2)))
    assert world.machine.slot_demand() == {"gpu": 0, "big": 0}, "they wait, and no slot would help"
    world.set_capacity({"": 1, "gpu": 9, "big": 9})
    world.tell(stimuli.SettingsChanged(world.settings))
    assert world.machine.slot_demand() == {}


def test_a_place_is_forgotten_with_its_last_profile() -> None:
    world = World()
    world.set_capacity({"": 2, "gpu": 2})
    world.release(world.held("s", make_profile(agent="x@gpu")))
    assert [str(place) for place in world.machine._state.places] == ["group gpu"]
    world.forget("s")
    world.tell(stimuli.StopWorker("w1"))
    world.exit("w1")
    assert list(world.machine._state.places) == []
