"""Describes an event in a few words; a type without a description is shown by its fields. Pure."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from doors.control.client import read_envelopes
from wire.call_page import CallPage, CallPart, describe_hidden
from wire.events import TEXT_KINDS, EventType, display_line, display_of
from wire.framing import DECODE_ERRORS
from wire.messages import CallDetails, EventEnvelope, ToolCallView
from wire.run_text import joined_text
from wire.run_view import describe_call, describe_end, describe_error, describes_whole_input
from wire.terminal import clean

_LONGEST_VALUE = 200


class ToolData(msgspec.Struct, frozen=True):
    """The data of the events of a tool call: ``tool:start``, ``running``, ``update``, ``error``, ``end``."""

    call: ToolCallView
    tail: str = ""
    result: Any = None
    error: Any = None
    details: CallDetails | None = None


_tool_data = msgspec.json.Decoder(ToolData)


def event_text(event: EventEnvelope) -> str:
    """The text of one of the ``TEXT_KINDS``; empty where there is none to be read."""
    try:
        return joined_text([event.data])
    except DECODE_ERRORS:
        return ""


def tool_data(event: EventEnvelope) -> ToolData | None:
    """The data of an event of a tool call; None where it cannot be read."""
    try:
        return _tool_data.decode(event.data)
    except DECODE_ERRORS:
        return None


def answer_text(events: msgspec.Raw) -> str:
    """What the envelopes of a push say of the answer, all in one."""
    return "".join(event_text(event) for event in read_envelopes(events) if TEXT_KINDS.get(event.type) == "text")


def event_data(event: EventEnvelope) -> dict[str, Any]:
    """The data of an event as plain objects; empty where it is no object."""
    try:
        data = msgspec.json.decode(event.data)
    except DECODE_ERRORS:
        return {}
    return data if isinstance(data, dict) else {}


def describe_event(event: EventEnvelope, place: str = "") -> list[str]:
    """An event that is no running text, as lines; those after the first are commands to type and must not be cut.

    ``place``: the options by which such a command finds the same supervisor.
    """
    data = event_data(event)
    if event.session and data.get("session") == event.session:
        del data["session"]  # the event is of that session: said once is enough
    lines = [_describe_type(event.type, data)]
    if event.type == "permission_required":
        lines += decision_commands(data, event.session, place)
    return lines


def _describe_type(type_: str, data: Mapping[str, Any]) -> str:
    display = display_of(type_)
    return clean(display_line(display, data)) if display.line else _DESCRIBERS.get(type_, format_fields)(data)


def resumption_text(strategy: Any) -> str:
    """How the agent goes on with a conversation, as the event ``agent_resumed`` says it; empty where it is unknown."""
    return _describe_type(EventType.AGENT_RESUMED, {"strategy": strategy})


def notice_mark(type_: str, data: Mapping[str, Any]) -> str:
    """The mark of the line that an event of a run gets beside the answer; empty for none.

    An error that ends the run has none, for the outcome says it; nor has an agent that goes on with a conversation.
    """
    is_fatal = type_ == "error" and data.get("severity") != "warn"
    is_expected = type_ == "agent_resumed" and data.get("strategy") in {"kept", "loaded", "resumed"}
    return "" if is_fatal or is_expected else display_of(type_).mark


def call_text(data: Mapping[str, Any]) -> str:
    """The tool call that an event is about: its name and the beginning of its input."""
    call = _part(data, "call")
    return describe_call(call.get("name"), call.get("input_preview"))


def shown_page(data: Mapping[str, Any]) -> CallPage:
    """What a question shows of its call; of an agent that does not say, what a line has no room for."""
    try:
        return msgspec.convert(data.get("shown"), CallPage)
    except msgspec.ValidationError:
        preview = _part(data, "call").get("input_preview", "")
        return CallPage([] if describes_whole_input(preview) else [CallPart("input", str(preview))])


def question_text(data: Mapping[str, Any]) -> str:
    """Which tool is to be called, and why a person is asked."""
    what = call_text(data) if data.get("shown") is None else clean(_part(data, "call").get("name"))
    return what + reason_text(data)


def reason_text(data: Mapping[str, Any]) -> str:
    """Why a person is asked, to go behind what is asked: in an event, or in a call of a list."""
    reason = data.get("reason") or _part(data, "call").get("reason")
    return f" ({clean(reason)})" if reason else ""


def hidden_text(data: Mapping[str, Any]) -> str:
    """How much of the call a question does not show, and what to do about it; empty where it shows all."""
    words = describe_hidden(shown_page(data))
    return f"… {words}; this shows all of it, and how to approve it:" if words else ""


def show_command(data: Mapping[str, Any], session: str, place: str = "") -> str:
    """What to type to see all of the call, and how to decide about it."""
    return command_line("approvals show", str(_part(data, "call").get("id", "")), session=session, place=place)


def approve_command(data: Mapping[str, Any], session: str, place: str = "", *, seen: str | None = None) -> str:
    """What to type so that the call may go on; ``seen``: see ``CallPage``."""
    command = command_line("approve", str(_part(data, "call").get("id", "")), session=session, place=place)
    return f"{command} --seen {shlex.quote(seen)}" if seen else command


def deny_command(data: Mapping[str, Any], session: str, place: str = "") -> str:
    """What to type so that it may not."""
    deny = command_line("deny", str(_part(data, "call").get("id", "")), session=session, place=place)
    return f'{deny} --note "why not"'


def decision_commands(data: Mapping[str, Any], session: str, place: str = "") -> list[str]:
    """What to type so that the call may go on, or to see what the question hides; and so that it may not."""
    first = show_command if shown_page(data).hidden else approve_command
    return [first(data, session, place), deny_command(data, session, place), *option_notes(data)]


def option_notes(data: Mapping[str, Any]) -> list[str]:
    """A comment below these commands: the agent's own answers that neither of them gives."""
    options = data.get("options") or _part(data, "call").get("options")
    given, others = {"allow_once", "reject_once"}, []
    for option in options if isinstance(options, list) else ():
        if option["kind"] in given:
            given.remove(option["kind"])
        else:
            named = f" ({option['name']})" if option["name"] else ""
            others.append(f"--option {shlex.quote(option['id'])}{named}")
    return [clean(f"# also: {', '.join(others)}")] if others else []


def command_line(name: str, argument: str, *, session: str | None, place: str) -> str:
    """A ``pool`` command ready to be copied into a shell."""
    where = f" -s {shlex.quote(session)}" if session else ""
    return clean(f"pool {name}{place}{where} {shlex.quote(argument)}")


def format_fields(data: Mapping[str, Any]) -> str:
    """``name=value`` for each field that says something; texts with spaces are quoted."""
    return "  ".join(
        f"{clean(name)}={_value(value)}" for name, value in data.items() if value not in (None, "", [], {})
    )


def _value(value: Any) -> str:
    text = clean(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
    if isinstance(value, str) and (" " in text or '"' in text):
        text = msgspec.json.encode(text).decode()
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def _part(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = data.get(name)
    return part if isinstance(part, dict) else {}


def _join(*parts: Any, separator: str = " ") -> str:
    return separator.join(clean(part) for part in parts if part not in (None, ""))


def _tool_running(data: Mapping[str, Any]) -> str:
    return _tool_text(data, lambda _tool: "it runs")


def _tool_end(data: Mapping[str, Any]) -> str:
    return _tool_text(data, lambda tool: describe_end(tool.call, tool.details).text)


def _tool_error(data: Mapping[str, Any]) -> str:
    return _tool_text(data, lambda tool: describe_error(tool.call, _message(tool.error), tool.details).text)


def _tool_update(data: Mapping[str, Any]) -> str:
    return _tool_text(data, lambda tool: "".join(line for line in tool.tail.splitlines()[-1:]))


def _tool_text(data: Mapping[str, Any], words: Callable[[ToolData], str]) -> str:
    try:
        tool = msgspec.convert(data, ToolData)
    except msgspec.ValidationError:
        return format_fields(data)
    return clean(f"{call_text(data)}: {words(tool)}")


def _compaction_end(data: Mapping[str, Any]) -> str:
    if data.get("error"):
        return f"the conversation could not be compacted: {clean(data['error'])}"
    return "the conversation was not compacted" if data.get("aborted") else "the conversation is compacted"


def _message(error: Any) -> Any:
    return error.get("message") if isinstance(error, dict) else error


def _alert(data: Mapping[str, Any]) -> str:
    """A report that an agent sends on its own."""
    files = data.get("media")
    shown = [f"(and {len(files)} files)"] if isinstance(files, list) and files else []
    return _join(data.get("agent"), "->", f"{clean(data.get('to'))}:", data.get("text"), *shown)


def _heartbeat(data: Mapping[str, Any]) -> str:
    """The result of a beat, or of delivering its alert."""
    what = _join(data.get("state"), data.get("skipped"), separator=": ")
    to, why = data.get("to"), data.get("error") or data.get("problem") or data.get("text")
    said = _join(data.get("agent"), f"({clean(data.get('reason'))})", what, to and f"-> {to}")
    return _join(said, why, separator=": ")


_DESCRIBERS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "tool:start": call_text,
    "tool:running": _tool_running,
    "tool:update": _tool_update,
    "tool:end": _tool_end,
    "tool_executed": call_text,
    "tool:error": _tool_error,
    "compaction:end": _compaction_end,
    "permission_required": question_text,
    "alert": _alert,
    "heartbeat": _heartbeat,
}
