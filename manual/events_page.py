"""The page of events, from the one list of their types."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from gateway.events.worker_events import READERS
from manual.markdown import one_line, table
from settings.description import texts_of
from wire.events import EventChannel, EventType

_INTRODUCTION = """# Events

The gateway publishes everything that happens as events, in one order for all sessions. `pool events follow`, the method
`subscribe` and `GET /events` deliver them; `seq` is the position to go on from (`since`, `Last-Event-ID`), so that a
reader that comes back misses nothing. An event is

```json
{"seq": 17, "type": "run:start", "channel": "progress", "session": "alice", "run_id": "report", "ts": 1795833590.77,
 "data": {"worker": "w2", "turn": 1}}
```

`run_id` is absent where the event belongs to no run. *Durable*: readers see it only after it is on disk. Pieces of text
are kept in memory: a reader that comes late gets them as one `text_snapshot`, and `done` has the whole answer.
A type that is not listed here is a monitor event; `worker:NAME` is an agent's own that this version does not know.

A name is words joined by `_`. What goes through phases has them behind a colon: `run:start`, `tool:update`,
`compaction:end`; the end of a run, which has its outcome, is `done`. The names between the pool and a program of the
dialect `native` are another list, which [Write your own agent](../own-agent.md) and the programs themselves rely on.
They appear here as follows.

"""
_RENAMED = {
    "assistant_message": "`text_chunk`",
    "thinking": "`think_chunk`",
    "run_start": "`run:start`, which the pool says when it prompts",
    "queue_update": "none: the pool itself reads it",
}
"""Of the worker's names that are no events of the same name: what becomes of each."""
_CHANNELS = {
    EventChannel.PROGRESS: "what a user interface draws",
    EventChannel.CONTROL: "what a person must decide",
    EventChannel.MONITOR: "what an operator wants to know",
}


def events_page() -> str:
    """The page."""
    lines, texts = [_INTRODUCTION, *table(("from a program", "event"), _names_of_workers())], texts_of(EventType)
    silent = [kind.name for kind in EventType if kind.name not in texts]
    if silent:
        raise LookupError(
            f"wire/events.py does not say what the data of {', '.join(silent)} has: a text below each type"
        )
    for channel, purpose in _CHANNELS.items():
        lines += [f"## Channel `{channel}`: {purpose}", ""]
        kinds = [kind for kind in EventType if kind.channel is channel]
        rows = [
            (
                f"`{kind}`",
                "yes" if kind.is_durable else "",
                one_line(texts[kind.name]),
            )
            for kind in kinds
        ]
        lines += table(("type", "durable", "when, and what `data` has"), rows)
    lines += ["## Reports of the pool and the supervisor", "", "Monitor events, as they are in the log too.", ""]
    lines += table(("type", "`data`"), sorted(set(_reports())))
    return "\n".join(lines)


def _names_of_workers() -> Iterator[tuple[str, str]]:
    """Each event of the native protocol, with the event that is published of it."""
    for name in sorted({*READERS, *_RENAMED}):
        same = [f"`{kind}`" for kind in EventType if kind == name or kind.startswith(f"{name}:")]
        if not same and name not in _RENAMED:
            raise LookupError(f"manual/events_page.py does not say what becomes of a worker's event {name}")
        yield f"`{name}`", ", ".join(same) or _RENAMED[name]


def _reports() -> Iterator[tuple[str, str]]:
    """What ``notify`` and ``_emit`` are called with where the source names the event."""
    for room in ("pool", "app"):
        for path in sorted(Path(str(import_module(room).__file__)).parent.glob("*.py")):
            for node in ast.walk(ast.parse(path.read_bytes())):
                match node:
                    case ast.Call(
                        func=ast.Attribute(attr="notify" | "_emit") | ast.Name(id="emit"),
                        args=[ast.Constant(value=str(name)), *rest],
                    ) if ":" not in name:
                        known = [each.arg for each in node.keywords if each.arg]
                        known += [
                            str(ast.literal_eval(key)) for each in rest for key in getattr(each, "keys", []) if key
                        ]
                        yield f"`{name}`", ", ".join(f"`{each}`" for each in known)
                    case _:
                        continue
