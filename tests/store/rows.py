"""Rows to store, and strategies that make any."""

import json
from typing import Any

from hypothesis import strategies as st

from store.records import DocumentRow, EventRow, RunRow, RunState, SessionRow

texts = st.text(max_size=20)
times = st.floats(min_value=1, max_value=4e9)


def session(key: str = "s", **changes: Any) -> SessionRow:
    facts = {"agent": "main", "role": "default", "transcript": None, "created_at": 1.5, "updated_at": 2.25, **changes}
    return SessionRow(key=key, **facts)


def run(run_id: str = "r", **changes: Any) -> RunRow:
    facts = {
        "principal": "p",
        "session": "s",
        "state": RunState.ACCEPTED,
        "body_hash": "h",
        "request": b"{}",
        "accepted_at": 1.0,
        **changes,
    }
    return RunRow(run_id=run_id, **facts)


def document(key: str = "d", *, kind: str = "k", body: bytes = b"{}") -> DocumentRow:
    return DocumentRow(kind=kind, key=key, body=body)


def event(seq: int, *, session: str = "s", ts: float | None = None, size: int = 0) -> EventRow:
    """``ts`` None: as many seconds as its seq; ``size``: bytes of its data, at least."""
    data = json.dumps({"n": seq, "x": "x" * size}).encode()
    return EventRow(
        seq=seq, ts=float(seq) if ts is None else ts, session=session, channel="progress", type="t", data=data
    )


def events(start: int, stop: int, **changes: Any) -> list[EventRow]:
    return [event(seq, **changes) for seq in range(start, stop)]


any_event = st.builds(
    EventRow,
    seq=st.integers(1, 2**53),
    ts=times,
    session=texts,
    channel=st.sampled_from(["progress", "control", "monitor"]),
    type=texts,
    data=st.binary(max_size=40),
    run_id=st.none() | texts,
)
