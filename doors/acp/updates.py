"""From the events of a session to ``session/update``. Pure.

Text is passed on as the JSON that it comes in. Of a run's parts (its answer, its reasoning) each has a message id of
its own; a tool call begins another part.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from doors.acp.jsonrpc import encode_notification, seal_line
from wire.events import TEXT_KINDS, EventType, display_line, display_of
from wire.framing import DECODE_ERRORS
from wire.messages import EMPTY, ContextSize, EventEnvelope
from wire.run_view import describe_call

_MAX_REMEMBERED = 256
"""Texts of runs that wait, and runs whose events come."""
_MAX_TITLE = 200
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("read", "ls"), "read"),
    **dict.fromkeys(("write", "edit"), "edit"),
    **dict.fromkeys(("grep", "find", "glob", "search"), "search"),
    **dict.fromkeys(("exec", "bash", "process", "execute"), "execute"),
    **{kind: kind for kind in ("delete", "move", "think", "fetch", "switch_mode")},
}
"""By the name of a tool; of those that are not here the kind is ``other``."""
_SEVERITIES = {"info": "info", "warn": "warning", "error": "error"}
_FAILED_STATES = frozenset({"FAILED", "DENIED", "SEALED", "ERROR"})
_CHUNKS = {"text": b"agent_message_chunk", "think": b"agent_thought_chunk"}
_encode = msgspec.json.Encoder().encode

TURN_KINDS = (
    *(EventType.RUN_ACCEPTED, EventType.RUN_START, EventType.DONE, EventType.TEXT_CHUNK, EventType.THINK_CHUNK),
    *(EventType.TOOL_START, EventType.TOOL_RUNNING, EventType.TOOL_UPDATE, EventType.TOOL_ERROR, EventType.TOOL_END),
    *(EventType.COMPACTION_START, EventType.COMPACTION_END, EventType.TODO_CHANGED, EventType.ERROR),
    *(EventType.AGENT_RESUMED, EventType.ALERT, EventType.CONTEXT_USAGE),
)
"""The events that are read here."""


class EditorWishes(NamedTuple):
    """Updates that an editor has said that it takes."""

    notices: bool = False
    compaction: bool = False


class _ChunkData(msgspec.Struct, gc=False):
    delta: msgspec.Raw = EMPTY
    text: msgspec.Raw = EMPTY


class _CallFacts(msgspec.Struct):
    id: str
    name: str = ""
    input_preview: str = ""
    state: str = ""


class _ToolData(msgspec.Struct):
    call: _CallFacts
    tail: str | None = None
    error: str | None = None
    result: str | None = None


class _AcceptedData(msgspec.Struct):
    text: str | None = None
    truncated: bool = False


class _DoneText(msgspec.Struct):
    text: str = ""
    silent: bool = False


class _NoticeData(msgspec.Struct):
    severity: str = "info"
    message: str = ""
    text: str = ""
    strategy: str | None = None


class _CompactionFacts(msgspec.Struct):
    aborted: bool = False
    error: str | None = None


class _TodoFacts(msgspec.Struct):
    text: str
    status: str = "pending"


class _TodoData(msgspec.Struct):
    todos: list[_TodoFacts] = []


def update_line(session: str, kind: str, /, **fields: Any) -> bytes:
    """One update as a line."""
    params = {"sessionId": session, "update": {"sessionUpdate": kind, **fields}}
    return encode_notification("session/update", params)


def context_line(session: str, context: ContextSize) -> bytes:
    """How much of its context a conversation uses."""
    return update_line(session, "usage_update", used=context.used, size=context.size)


def undecided_line(session: str, call: str, words: str) -> bytes:
    """A call waits on, since what was decided about it here is refused."""
    content = _call_content(f"{words} It waits on; `pool approvals` shows it, and it can be decided there.")
    return update_line(session, "tool_call_update", toolCallId=call, content=content)


def text_block(text: str) -> dict[str, str]:
    """A content block of plain text."""
    return {"type": "text", "text": text}


def tool_call_facts(call: str, name: str, preview: str) -> dict[str, Any]:
    """What an editor learns of a call when it begins; its input only where the preview has all of it."""
    facts = {
        "toolCallId": call,
        "title": describe_call(name, preview)[:_MAX_TITLE] or call,
        "name": name,
        "kind": _KINDS.get(name, "other"),
    }
    try:
        given = msgspec.json.decode(preview)
    except DECODE_ERRORS:
        given = None
    return {**facts, "rawInput": given} if isinstance(given, dict) else facts


class _RunProgress:
    """What was said of one run."""

    def __init__(self) -> None:
        self.part = 0
        self.kind = ""
        self.has_text = False
        self.calls: dict[str, bool] = {}
        """The calls that were announced, and whether nothing has come of them yet."""


class SessionUpdates:
    """The updates of one session."""

    def __init__(self, session: str, wishes: EditorWishes, is_own: Callable[[str], bool]) -> None:
        """``is_own``: whether the editor itself has sent the message of a run."""
        self._session = session
        self._session_json = _encode(session)
        self._wishes = wishes
        self._is_own = is_own
        self._runs: OrderedDict[str, _RunProgress] = OrderedDict()
        self._waiting_texts: OrderedDict[str, str] = OrderedDict()
        self._compactions = 0
        self._readers: Mapping[str, Callable[[EventEnvelope], Iterator[bytes]]] = {
            EventType.RUN_ACCEPTED: self._accepted,
            EventType.RUN_START: self._started,
            EventType.DONE: self._done,
            **dict.fromkeys((kind for kind in TURN_KINDS if kind.startswith("tool:")), self._tool),
            **dict.fromkeys((EventType.COMPACTION_START, EventType.COMPACTION_END), self._compaction),
            **dict.fromkeys((EventType.ERROR, EventType.AGENT_RESUMED, EventType.ALERT), self._notice),
            EventType.TODO_CHANGED: self._todo,
            EventType.CONTEXT_USAGE: self._context,
        }

    def of_events(self, events: Iterable[EventEnvelope]) -> Iterator[bytes]:
        """The lines for these events, in order. What a newer supervisor sends in another shape is passed over."""
        for event in events:
            try:
                yield from self.of_event(event)
            except DECODE_ERRORS:
                continue

    def of_event(self, event: EventEnvelope) -> Iterable[bytes]:
        """The lines for one event."""
        text = TEXT_KINDS.get(event.type)
        if text is not None:
            return [self._text(event, text)]
        read = self._readers.get(event.type)
        return () if read is None else read(event)

    # --- text ---------------------------------------------------------------------------------------------------------

    def _text(self, event: EventEnvelope, kind: str) -> bytes:
        data = msgspec.json.decode(event.data, type=_ChunkData)
        run = event.run_id or ""
        progress = self._progress(run)
        if progress.kind != kind:
            progress.kind = kind
            progress.part += 1
        progress.has_text = progress.has_text or kind == "text"
        piece = bytes(data.text if bytes(data.delta) == b"null" else data.delta)
        return seal_line(
            b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%b,"update":{"sessionUpdate":"%b",'
            b'"messageId":%b,"content":{"type":"text","text":%b}}}}'
            % (self._session_json, _CHUNKS[kind], _encode(f"{run}.{progress.part}"), piece)
        )

    def _progress(self, run: str) -> _RunProgress:
        progress = self._runs.get(run)
        if progress is None:
            progress = self._runs[run] = _RunProgress()
            if len(self._runs) > _MAX_REMEMBERED:
                self._runs.popitem(last=False)
        return progress

    def _line(self, kind: str, /, **fields: Any) -> bytes:
        return update_line(self._session, kind, **fields)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _accepted(self, event: EventEnvelope) -> Iterator[bytes]:
        """The text of a message from elsewhere is sent when its turn starts."""
        data = msgspec.json.decode(event.data, type=_AcceptedData)
        run = event.run_id or ""
        if data.text and not self._is_own(run):
            self._waiting_texts[run] = data.text + ("…" if data.truncated else "")
            if len(self._waiting_texts) > _MAX_REMEMBERED:
                self._waiting_texts.popitem(last=False)
        yield from ()

    def _started(self, event: EventEnvelope) -> Iterator[bytes]:
        run = event.run_id or ""
        text = self._waiting_texts.pop(run, None)
        if text is not None:
            yield self._line("user_message_chunk", messageId=f"{run}.user", content=text_block(text))

    def _done(self, event: EventEnvelope) -> Iterator[bytes]:
        """Calls without a result have failed; an answer of which no piece came is sent as a whole."""
        yield from self._started(event)  # a command of the pool has no turn
        data = msgspec.json.decode(event.data, type=_DoneText)
        run = event.run_id or ""
        progress = self._runs.pop(run, None) or _RunProgress()
        for call in [call for call, is_open in progress.calls.items() if is_open]:
            content = _call_content("no result")
            yield self._line("tool_call_update", toolCallId=call, status="failed", content=content)
        if data.text and not data.silent and not progress.has_text:
            message = f"{run}.{progress.part + 1}"
            yield self._line("agent_message_chunk", messageId=message, content=text_block(data.text))

    # --- tools --------------------------------------------------------------------------------------------------------

    def announce_call(self, run: str, call: str, name: str, preview: str) -> Iterator[bytes]:
        """The beginning of a call, where the editor does not know it: anything else said of it comes later."""
        progress = self._progress(run)
        if call not in progress.calls:
            progress.kind = ""
            progress.calls[call] = True
            yield self._line("tool_call", **tool_call_facts(call, name, preview), status="pending")

    def _tool(self, event: EventEnvelope) -> Iterator[bytes]:
        data = msgspec.json.decode(event.data, type=_ToolData)
        run, call, phase = event.run_id or "", data.call, event.type.partition(":")[2]
        yield from self.announce_call(run, call.id, call.name, call.input_preview)
        if phase == "start" and call.state != "RUNNING":
            return
        status = "in_progress"
        if phase in ("error", "end"):
            self._progress(run).calls[call.id] = False
            status = "failed" if phase == "error" or call.state in _FAILED_STATES else "completed"
        text = {"update": data.tail, "error": data.error, "end": data.result}.get(phase)
        content = {} if text is None else {"content": _call_content(text)}
        yield self._line("tool_call_update", toolCallId=call.id, status=status, **content)

    def _todo(self, event: EventEnvelope) -> Iterator[bytes]:
        todos = msgspec.json.decode(event.data, type=_TodoData).todos
        yield self._line(
            "plan", entries=[{"content": each.text, "priority": "medium", "status": each.status} for each in todos]
        )

    def _context(self, event: EventEnvelope) -> Iterator[bytes]:
        yield context_line(self._session, msgspec.json.decode(event.data, type=ContextSize))

    # --- beside the conversation --------------------------------------------------------------------------------------

    def _compaction(self, event: EventEnvelope) -> Iterator[bytes]:
        if not self._wishes.compaction:
            return
        if event.type == EventType.COMPACTION_START:
            self._compactions += 1
            yield self._line("compaction_update", compactionId=self._compaction_id(), status="in_progress")
            return
        end = msgspec.json.decode(event.data, type=_CompactionFacts)
        status = "cancelled" if end.aborted else "failed" if end.error else "completed"
        error = {"error": end.error} if end.error else {}
        yield self._line("compaction_update", compactionId=self._compaction_id(), status=status, **error)

    def _compaction_id(self) -> str:
        return f"{self._session}.{self._compactions}"

    def _notice(self, event: EventEnvelope) -> Iterator[bytes]:
        if not self._wishes.notices:
            return
        data = msgspec.json.decode(event.data, type=_NoticeData)
        severity, words = _SEVERITIES.get(data.severity, "info"), data.message or data.text
        if event.type == EventType.AGENT_RESUMED:
            if data.strategy != "refed":
                return
            severity, words = "warning", display_line(display_of(event.type), {"strategy": data.strategy})
        title, _, rest = words.partition("\n")
        title, rest = title[:_MAX_TITLE], title[_MAX_TITLE:] + rest
        if title.strip():
            yield self._line("notice", severity=severity, title=title, **({"description": rest} if rest else {}))


def _call_content(text: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": text_block(text)}]
