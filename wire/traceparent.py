"""The W3C trace context, version 00: ``traceparent``, the name of a span that others may stand below. Pure.

``tracestate`` is what systems of tracing say beside it, to be handed on as it is.
"""

import re
from typing import NamedTuple, Self

TRACEPARENT_PATTERN = r"^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z"
"""Of the header as it is handed on; a later version with more behind the flags is not understood."""
MAX_TRACESTATE = 512
_KEY = r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
_VALUE = r"[ -+\--<>-~]{0,255}[!-+\--<>-~]"
TRACESTATE_PATTERN = rf"^{_KEY}={_VALUE}(?:[ \t]*,[ \t]*{_KEY}={_VALUE}){{0,31}}\Z"
"""Of at most ``MAX_TRACESTATE`` characters: longer and malformed ones are dropped."""
_FORM = re.compile(TRACEPARENT_PATTERN)
_STATE_FORM = re.compile(TRACESTATE_PATTERN)
_SAMPLED = 1


class TraceParent(NamedTuple):
    """A span of some program: ids in small hex digits (32 and 16), and whether its trace is recorded."""

    trace_id: str
    span_id: str
    is_sampled: bool

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The span that a header names; None for no such header, which is to be ignored."""
        if _FORM.match(text) is None:
            return None
        _, trace_id, span_id, flags = text.split("-")
        return cls(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))

    def __str__(self) -> str:
        """The header's value."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.is_sampled):02x}"


def trace_members(traceparent: str, tracestate: str) -> dict[str, str]:
    """The members ``traceparent`` and ``tracestate`` that these headers make; none without the name of a span."""
    parent = TraceParent.parse(traceparent)
    if parent is None:
        return {}
    is_state = len(tracestate) <= MAX_TRACESTATE and _STATE_FORM.match(tracestate) is not None
    return {"traceparent": str(parent), **({"tracestate": tracestate} if is_state else {})}
