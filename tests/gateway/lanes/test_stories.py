"""What becomes of messages, as transcripts: a title, its settings, then steps with the actions they cause."""

import re
from typing import Any

import pytest

from tests.gateway.lanes.world import World, parse_settings

STORIES = """
runs of one session are serial and sessions do not wait for each other
  follow a b c -> start a; follow x @o -> start x; waits b c; end -> start b; end -> start c; end; free
what waits is served by priority and then by arrival
  follow r a -> start r; follow low !1; follow h1 h2 !9; follow b; waits h1 h2 a b low
  end -> start h1; end -> start h2; end -> start a; end -> start b; end -> start low
a run that has ended may come again
  follow a -> start a; end; follow a -> start a

a named lane bounds the turns that run in it and no others [lanes=cron:1]
  follow a @1 #cron -> start a; follow b @2 #cron; follow c @3 -> start c; end @3; end @1 -> start b
a lane serves the higher priority first and then the first come [lanes=cron:1]
  follow r0 @0 #cron -> start r0; follow r1 @1 #cron; follow r2 @2 #cron !3; follow r3 @3 #cron; follow r4 @4 #cron !8
  end @0 -> start r4; end @4 -> start r1; end @1 -> start r3; end @3 -> start r2
a session that waits for a slot is busy and its next message waits behind [lanes=cron:1]
  follow a @1 #cron -> start a; follow b @2 #cron; steer c @2; waits b c @2
a session keeps its place in line by the arrival of its message and not of its last turn [lanes=cron:1]
  follow a1 a2 @a #cron -> start a1; follow b1 @b #cron; follow a3 @a #cron
  end @a -> start a2; end @a -> start b1; end @b -> start a3
a more important message takes its session forward in line and into another lane [lanes=cron:1]
  follow a @1 #cron -> start a; follow b @2 #cron; follow c @3 #cron; follow urgent @3 #cron !9
  follow elsewhere @2 !9 -> start elsewhere; end @1 -> start urgent; end @2; end @3 -> start b
a limit of zero is none [lanes=main:0]
  follow a @1 -> start a; follow b @2 -> start b
a lane of two gives each free slot to one session [lanes=sub:2]
  follow a @1 #sub -> start a; follow b @2 #sub -> start b; follow c @3 #sub; follow d @4 #sub; end @2 -> start c

a withdrawn message never runs and nothing else is said about it
  follow a b c -> start a; withdraw b; end -> start c
what runs or was steered or is unknown cannot be withdrawn
  follow a -> start a; open; steer b -> steer b; withdraw a; withdraw b; withdraw other; end back b -> start b
a session whose only message in line is withdrawn is free and the line closes up [lanes=cron:1]
  follow a @1 #cron -> start a; follow b @2 #cron; follow c @3 #cron; withdraw b; free @2; end @1 -> start c
clearing refuses what waits and lets the turn go on
  clear; follow a b c -> start a; clear -> b:cleared, c:cleared; end; free
wider lanes serve those in line at once and narrower ones let running turns finish [lanes=cron:1]
  follow a @1 #cron -> start a; follow b @2 #cron; follow c @3 #cron; follow d @4 #cron
  limits lanes=cron:3 -> start b, start c; limits lanes=cron:1; end @1; end @2; end @3 -> start d
smaller limits lose none of those who wait [cap=5]
  follow r a b c d e -> start r; limits cap=1 pending=1; waits a b c d e
a shorter debounce counts for those who gather already [debounce=60]
  collect r a b -> start r; end; due 60; limits debounce=0 -> start a+b

a steer goes into the running turn which answers for it
  follow r -> start r; open; steer a -> steer a; waits; end; free
a steer becomes a follow-up before the turn streams and while it takes none
  follow r -> start r; steer early; end -> start early; open; shut; steer late; waits late
a steer never overtakes an earlier message of the same or a higher priority
  follow r -> start r; open; follow a; steer b; steer low !1; steer urgent !9 -> steer urgent; waits a b low
a summarized message is not overtaken either except by a higher priority [cap=1]
  follow r -> start r; open; follow a b; withdraw b; waits a; steer urgent !6 -> steer urgent; steer c; waits a c
a summarized message is not overtaken though only lesser ones wait whole [cap=1]
  follow r -> start r; open; follow a b !9; withdraw b; follow low !1; steer c
messages that were summarized once delay none any more [cap=1]
  follow r -> start r; open; follow a b !9; end -> start a+b; follow low !1; open; steer c -> steer c
a refused steer is a follow-up ahead of what came after it
  follow r -> start r; open; steer a b -> steer a, steer b; follow later; refuse b; refuse a; waits a b later
  steer c; waits a b later c
a refused steer does not hold back a more important message
  follow r -> start r; open; steer a -> steer a; follow urgent !9; refuse a; waits urgent a
steers that were never consumed follow in their old order ahead of later messages
  follow r -> start r; open; steer a b c -> steer a, steer b, steer c; collect later
  end back c a -> start a; waits c later
steers of an aborted turn end with it
  follow r -> start r; open; steer a -> steer a; interrupt new -> abort; end -> start new; end; free
steers that come back from an interrupted turn have been replaced like all that waited
  follow r -> start r; open; steer a b -> steer a, steer b; interrupt new -> abort; refuse a -> a:interrupted
  end back b -> b:interrupted, start new
a turn that ends takes no steers
  follow r -> start r; open; interrupt new -> abort; steer a; end -> start new; waits a

collected messages become one prompt
  collect r a b c -> start r; wait 10; end -> start a+b+c; end; free
collected messages wait until none has come for the debounce [debounce=0.5]
  collect r a -> start r; end; due 0.5; wait 0.4; collect b; wait 0.4; wait 0.1 -> start a+b
a debounce that was over before the turn ended is not waited for again
  collect r a b -> start r; wait 0.6; end -> start a+b
a more important message is not delayed by a debounce
  collect r a -> start r; end; follow urgent !9 -> start urgent; end; wait 0.5 -> start a
messages that nothing can join any more need not wait for others
  collect r a -> start r; end; follow b -> start a
only consecutive messages of one lane and priority that are no holds are merged
  collect r a b -> start r; follow x; collect c; collect hold alone; collect d; collect e #cron; collect low !1
  wait 10; end -> start a+b; end -> start x; end -> start c; end -> start hold; end -> start d; end -> start e
  end -> start low
a collected message never joins its group past one that stands between [lanes=cron:1]
  follow o @1 #cron -> start o; collect a @2 #cron; follow x @2 #cron; collect b @2 #cron; waits a x b @2
  end @1 -> start a
messages become consecutive when what stood between them is withdrawn
  collect r a -> start r; follow x; collect b; withdraw x; wait 10; end -> start a+b
messages that come while their group waits for a slot join it and delay it no more [lanes=cron:1]
  follow o @1 #cron -> start o; collect a b @2 #cron; end @1 -> start a+b
a session that gathers for a more important prompt stands in no line meanwhile [lanes=cron:1]
  follow o @1 #cron -> start o; follow low @2 #cron; collect a @2 !9; end @1; wait 0.4; collect b @2 !9
  wait 0.5 -> start a+b; waits low @2
a group whose debounce is over waits only for its slot from then on [lanes=cron:1]
  follow o @1 #cron -> start o; follow r @2 -> start r; collect a @2 #cron; end @2; wait 0.5; collect b @2 #cron
  end @1 -> start a+b
of several sessions whose debounce is over the first come gets the slot [lanes=cron:1]
  follow a1 @a -> start a1; follow b1 @b -> start b1; collect b2 @b #cron; collect a2 @a #cron
  end @a; end @b; wait 0.5 -> start b2
clearing a session that gathers frees it and its timer
  collect r a -> start r; end; clear -> a:cleared; free; due never

an interrupt aborts the turn and replaces what waits
  follow r a b -> start r; interrupt new -> abort, a:interrupted, b:interrupted; end -> start new
a second interrupt replaces the first and aborts nothing twice
  follow r -> start r; interrupt a -> abort; interrupt b -> a:interrupted; end -> start b
an interrupt takes the place of messages that wait for a slot [lanes=cron:1]
  follow o @1 #cron -> start o; follow a @2 #cron; interrupt new @2 #cron -> a:interrupted; end @1 -> start new
an interrupt takes the place of messages that gather
  collect r a -> start r; end; interrupt new -> a:interrupted, start new; due never
a running hold cannot be interrupted by a message
  follow hold alone -> start hold; follow a; interrupt new; waits a new
an interrupt that may not even wait interrupts nothing [pending=1]
  follow o w @1 -> start o; follow r -> start r; interrupt new -> new:evicted
clearing after an interrupt refuses it
  follow r -> start r; interrupt new -> abort; clear -> new:cleared; end; free

up to the cap messages wait untouched [cap=3]
  follow r a b c -> start r; waits a b c
with new the newest is refused [cap=2 overflow=new]
  follow r a b c -> start r, c:full; end -> start a; follow d; waits b d
with old the oldest is refused [cap=2 overflow=old]
  follow r a b c -> start r, a:dropped; waits b c
with summarize the next turn answers for those that were shortened and no later one [cap=2]
  follow r a b c -> start r; waits a b c; end -> start a+b; end -> start c
a turn names its runs oldest first whether whole or summarized [cap=1]
  follow r -> start r; follow urgent !9; follow a; end -> start urgent+a
summarized runs have a turn of their own when no other is left to carry them [cap=1]
  follow r a b -> start r; withdraw b; end -> start a
a hold carries no summary and the first come goes first [cap=1]
  follow r a -> start r; follow hold alone; end -> start a; end -> start hold
a hold with a higher priority goes before the summarized runs [cap=1]
  follow r a -> start r; follow hold !9 alone; end -> start hold; end -> start a
a hold goes before messages of its time and they carry the summary after it [cap=2]
  follow r a -> start r; follow hold alone; follow b; waits a hold b; end -> start hold; end -> start a+b
a hold that must give way is refused since no line could stand for it [cap=1]
  follow r -> start r; follow hold alone; follow a -> hold:dropped
the least important message gives way before an older important one [cap=2 overflow=old]
  follow r -> start r; follow urgent !9; follow a b -> a:dropped; follow low !1 -> low:dropped; waits urgent b
summarized runs can be withdrawn cleared and interrupted like any other [cap=1]
  follow r a b c d -> start r; withdraw b; waits a c d
  interrupt new -> abort, a:interrupted, c:interrupted, d:interrupted; follow e; clear -> new:cleared, e:cleared
with a cap of zero a busy session keeps only lines [cap=0]
  follow r a b -> start r; waits a b; end -> start a+b
the cap neither counts what was steered nor refuses what comes back [cap=1 overflow=new]
  follow r -> start r; open; steer a b c -> steer a, steer b, steer c; end back a b c -> start a; waits b c
  follow d -> d:full
the first message of a free session may wait for a slot whatever the cap [cap=0 overflow=new lanes=cron:1]
  follow a @1 #cron -> start a; follow b @2 #cron; waits b @2

a newcomer that is the least important is refused itself [pending=1]
  follow r a -> start r; follow o b @2 -> start o, b:evicted; follow low @2 !1 -> low:evicted
what begins at once or is steered needs no room to wait [pending=0]
  follow r -> start r; open; steer a -> steer a; follow b -> b:evicted
summarized runs count as waiting and can be evicted [pending=2 cap=1]
  follow r a b -> start r; follow c !9 -> b:evicted; waits a c; follow o @2 -> start o; follow d @2 !9 -> a:evicted
evicting the next message of a session in line puts it where its following one belongs [pending=3 lanes=cron:1]
  follow o @1 #cron -> start o; follow a @2 #cron !1; follow b @3 #cron !4; follow c @4 #cron !3
  follow d @4 #cron !9 -> a:evicted; free @2; end @1 -> start d
a full session that drops its oldest needs no room elsewhere [pending=1 cap=1 overflow=old]
  follow r a b -> start r, a:dropped
an interrupt takes the room of what it replaces [pending=1]
  follow r a -> start r; interrupt new !1 -> abort, a:interrupted; waits new
"""


def _stories() -> dict[str, tuple[dict[str, Any], str]]:
    found: dict[str, tuple[dict[str, Any], str]] = {}
    for block in re.split(r"\n(?=\S)", STORIES.strip()):
        title, _, story = block.partition("\n")
        title, _, settings = title.rstrip("]").partition(" [")
        assert title not in found
        found[title] = parse_settings(settings.split()), story.replace("\n", ";")
    return found


@pytest.mark.parametrize(("settings", "story"), _stories().values(), ids=_stories())
def test_a_message_goes_where_its_rules_say(settings: dict[str, Any], story: str) -> None:
    World(**settings).play(story)
