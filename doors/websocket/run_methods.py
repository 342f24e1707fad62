"""``agent``, ``agent.wait`` and ``chat.*``: start runs, wait for them, read and abort them."""

import base64
import binascii
import re
from typing import Annotated, Any

import msgspec
import trio

from doors.websocket.frames import milliseconds
from doors.websocket.peer import MethodRequest, Params
from doors.websocket.session_ref import ConversationMembers, named_session, resolve_conversation
from errors import UsageError, error_from_wire
from gateway.runs.registry import UnknownRun
from gateway.runs.run import RunOutcome
from router.keys import normalize_session_key
from wire.messages import omit_none

_LONGEST_WAIT_MS = 86_400_000
_UNKNOWN_RUN_DELAY = 0.5
"""Slows down clients that wait for an unknown run in a loop."""
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,")

AGENT_IGNORED = frozenset(
    {"replyTo", "thinking", "deliver", "replyChannel", "replyAccountId", "extraSystemPrompt", "inputProvenance"}
    | {"label", "spawnedBy", "voiceWakeTrigger"}
)
"""Parameters of ``agent`` that have no effect: the session decides these. No name of a conversation is ignored."""
CHAT_IGNORED = frozenset(
    {"thinking", "fastMode", "deliver", "originatingChannel", "originatingTo", "originatingAccountId"}
    | {"originatingThreadId", "systemInputProvenance", "systemProvenanceReceipt"}
)
"""The same for ``chat.send``, whose ``originating...`` name where the answer is delivered."""


class MessageAttachment(msgspec.Struct, rename="camel"):
    """A file beside a message, base64 or a data URL in ``content``."""

    content: str
    mime_type: str | None = None
    file_name: str | None = None
    type: str | None = None


MessageAttachments = Annotated[list[MessageAttachment], msgspec.Meta(max_length=32)]
NonNegativeInt = Annotated[int, msgspec.Meta(ge=0)]


class AgentParams(ConversationMembers, rename="camel", kw_only=True):
    """``agent``. ``timeout``: seconds."""

    message: Annotated[str, msgspec.Meta(min_length=1)]
    idempotency_key: str | None = None
    timeout: Annotated[float, msgspec.Meta(ge=0)] | None = None
    lane: str | None = None
    provider: str | None = None
    model: str | None = None
    attachments: MessageAttachments = msgspec.field(default_factory=list)


class WaitParams(msgspec.Struct, rename="camel"):
    """``agent.wait``."""

    run_id: str
    timeout_ms: NonNegativeInt = 30_000


class ChatParams(msgspec.Struct, rename="camel", kw_only=True):
    """``chat.send``. ``sessionKey`` or ``sessionId`` names the session."""

    session_key: str | None = None
    session_id: str | None = None
    message: str
    idempotency_key: str | None = None
    timeout_ms: NonNegativeInt | None = None
    attachments: MessageAttachments = msgspec.field(default_factory=list)


class ChatHistoryParams(msgspec.Struct, rename="camel"):
    """``chat.history``."""

    session_key: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 200


class ChatAbortParams(msgspec.Struct, rename="camel"):
    """``chat.abort``."""

    session_key: str
    run_id: str | None = None


# --- agent ------------------------------------------------------------------------------------------------------------


async def agent(request: MethodRequest, params: AgentParams) -> Params:
    """Begin a run and say so at once; the last answer is its outcome. Raises what the run fails with."""
    conversation = resolve_conversation(params, await request.default_agent())
    request.ignored += conversation.unused
    accepted = await request.call(
        "agent",
        {
            "text": params.message,
            "session": conversation.session,
            "agent": params.agent_id,
            "run": params.idempotency_key,
            "timeout": params.timeout,
            "lane": params.lane,
            "model": _model(params),
            "images": _images(params.attachments),
        },
    )
    run = {"runId": accepted["run_id"], "sessionKey": accepted["session"]}
    await request.send_interim(
        request.with_ignored({**run, "status": "accepted", "acceptedAt": milliseconds(accepted["accepted_at"])})
    )
    wish = {"run_id": accepted["run_id"], "session": accepted["session"], "timeout_ms": _LONGEST_WAIT_MS}
    while not isinstance(outcome := await request.call("agent.wait", wish), RunOutcome):
        pass  # it takes longer than one wait
    if (error := outcome.error) is not None:
        raise error_from_wire(error.code, error.message, {**error.data, "runId": outcome.run_id})
    return {**run, "status": "ok", "summary": "completed", "result": _result(outcome)}


def _model(params: AgentParams) -> str | None:
    if params.provider is not None and params.model is None:
        raise UsageError("provider names no model; give model, too")
    return params.model if params.provider is None else f"{params.provider}/{params.model}"


def _result(outcome: RunOutcome) -> Params:
    payloads = [] if outcome.silent else [omit_none(text=outcome.text, media=outcome.media or None)]
    usage = outcome.usage and {"input": outcome.usage.input_tokens, "output": outcome.usage.output_tokens}
    meta = omit_none(stopReason=outcome.stop_reason, usage=usage, worker=outcome.worker, calls=outcome.calls or None)
    return {"payloads": payloads, "meta": meta}


async def wait(request: MethodRequest, params: WaitParams) -> Params:
    """The outcome of a run, or ``timeout`` while it has none; so for an unknown run."""
    given = {"run_id": params.run_id, "timeout_ms": min(params.timeout_ms, _LONGEST_WAIT_MS)}
    try:
        outcome = await request.call("agent.wait", given)
    except UnknownRun:
        await trio.sleep(min(params.timeout_ms / 1000, _UNKNOWN_RUN_DELAY))
        return {"runId": params.run_id, "status": "timeout"}
    if not isinstance(outcome, RunOutcome):
        return {"runId": params.run_id, "status": "timeout", **omit_none(startedAt=milliseconds(outcome["started_at"]))}
    return {
        "runId": outcome.run_id,
        "status": outcome.status,
        "endedAt": milliseconds(outcome.ended_at),
        **omit_none(
            startedAt=milliseconds(outcome.started_at),
            error=outcome.error and outcome.error.message,
            text=None if outcome.silent or outcome.error else outcome.text,
        ),
    }


# --- chat -------------------------------------------------------------------------------------------------------------


async def send(request: MethodRequest, params: ChatParams) -> Params:
    """Begin a run; the rest comes as events."""
    session = named_session(params.session_key, params.session_id)
    if session is None:
        raise UsageError("chat.send needs a sessionKey")
    accepted = await request.call(
        "agent",
        {
            "text": params.message,
            "session": session,
            "run": params.idempotency_key,
            "timeout": None if params.timeout_ms is None else params.timeout_ms / 1000,
            "images": _images(params.attachments),
        },
    )
    answer = {"runId": accepted["run_id"], "sessionKey": accepted["session"], "status": "started"}
    return request.with_ignored(answer)


async def history(request: MethodRequest, params: ChatHistoryParams) -> Params:
    """What was said in a session, oldest first, each message in its agent's own shape."""
    key = normalize_session_key(params.session_key)
    try:
        view = await request.call("sessions.get", {"session": key})
    except UsageError:
        return {"sessionKey": key, "sessionId": key, "messages": []}  # nothing was said in it yet
    found = await request.call("sessions.history", {"session": key, "limit": params.limit})
    return {
        "sessionKey": key,
        "sessionId": key,
        "messages": found["messages"],
        **omit_none(thinkingLevel=view.thinking),
    }


async def abort(request: MethodRequest, params: ChatAbortParams) -> Params:
    """End a run, or a session's running turn."""
    ended = await request.call("abort", {"session": params.session_key, "run": params.run_id})
    run_ids = [params.run_id] if params.run_id is not None and ended["aborted"] else []
    return {"ok": True, "aborted": ended["aborted"], "runIds": run_ids}


# --- files ------------------------------------------------------------------------------------------------------------


def _images(attachments: list[MessageAttachment]) -> list[dict[str, Any]]:
    return [_image(attachment, f"attachments[{number}]") for number, attachment in enumerate(attachments)]


def _image(attachment: MessageAttachment, place: str) -> dict[str, Any]:
    url = _DATA_URL.match(attachment.content)
    kind = url[1] if url else attachment.mime_type or ""
    if not kind.startswith("image/"):
        raise UsageError(f"{place} is {kind or 'of no type'}; only images can be sent with a message")
    data = attachment.content[url.end() :] if url else attachment.content
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise UsageError(f"the content of {place} is no base64") from exc
    return {"type": "image", "data": data, "mimeType": kind}
