"""``/v1/responses``, which newer clients of OpenAI's use instead of completions.

A kept response (``store``, the default) is the latest turn of a session of its own, which ``previous_response_id``
continues. So a response can be continued once, and deleting it deletes the whole conversation. It can be fetched while
the pool keeps the run's outcome.
"""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request

from doors.http.errors import HttpError, json_response
from doors.http.services import RouteSpec, identity_of
from doors.http.tokens import Scope
from doors.openai.completion import AnswerStreamResponse
from doors.openai.errors import ResponseNotFound, render
from doors.openai.prompts import answered_call_ids
from doors.openai.responses_bodies import ResponseEvents, response_body, response_head
from doors.openai.responses_requests import read_response, response_input
from doors.openai.services import OpenAIServices
from doors.openai.session_ref import (
    OWN_SESSION,
    SessionRef,
    SessionRun,
    find_response_session_ref,
    read_response_id,
    retry_run_id,
)
from errors import UsageError, error_from_wire
from gateway.runs.run import RunOutcome


def routes(entry: OpenAIServices) -> Sequence[RouteSpec]:
    """Making, fetching and deleting responses."""
    door = _ResponsesRoutes(entry)
    return [
        RouteSpec("/v1/responses", door.create, Scope.WRITE, ("POST",), render=render),
        RouteSpec("/v1/responses/{response}", door.retrieve, Scope.READ, render=render),
        RouteSpec("/v1/responses/{response}", door.delete, Scope.WRITE, ("DELETE",), render=render),
    ]


class _ResponsesRoutes:
    def __init__(self, entry: OpenAIServices) -> None:
        self._services = entry

    async def create(self, request: Request) -> Any:
        body = read_response(await self._services.read_body(request))
        asked = response_input(body)
        await self._services.check(request, asked, "text.format")
        place = find_response_session_ref(
            request.headers,
            body.user,
            answered_call_ids(asked),
            identity_of(request).principal,
            previous=body.previous_response_id,
            is_kept=body.store is not False,
        )
        asking = self._services.completion_run(request, asked, place)
        headers = self._services.headers(place, body.ignored)
        head = response_head(place, model=body.model, created=int(time.time()), request=body)
        if body.stream:
            return AnswerStreamResponse(asking, ResponseEvents(head), headers)
        outcome = await asking.answer(request.receive)
        answer = json_response(outcome and response_body(head, outcome, text=outcome.text))
        answer.headers.update(headers)
        return answer

    async def retrieve(self, request: Request) -> Any:
        named = _requested_run(request)
        if request.query_params.get("stream", "false") != "false":
            raise UsageError("stream: an earlier response is not streamed again", param="stream")
        view = await self._call(request, "sessions.get", {"session": named.session})
        found = await self._outcome(request, named)
        place = SessionRef(named.session, named.run, OWN_SESSION.fullmatch(named.session) is not None)
        head = response_head(place, model=view.agent, created=int(_accepted_at(found)))
        if not isinstance(found, RunOutcome):
            return json_response(response_body(head, None))
        if found.error is not None:
            error = error_from_wire(found.error.code, found.error.message, msgspec.to_builtins(found.error.data))
            return json_response(response_body(head, None, error=error))
        return json_response(response_body(head, found, text=found.text))

    async def delete(self, request: Request) -> Any:
        """Delete the whole conversation, which must be one of this door's own."""
        named, given = _requested_run(request), request.path_params["response"]
        if OWN_SESSION.fullmatch(named.session) is None:
            text = f"it is part of session {named.session}, which was not made for it; delete that session instead"
            raise UsageError(f"this response cannot be deleted alone: {text}", param="response_id")
        await self._call(request, "sessions.get", {"session": named.session})
        await self._services.ephemeral_sessions.delete(named.session)
        return json_response({"id": given, "object": "response", "deleted": True})

    # --- parts --------------------------------------------------------------------------------------------------------

    async def _outcome(self, request: Request, named: SessionRun) -> Any:
        """The outcome of the run, or of the second run where the agent was asked again; its state if it has not ended.

        Raises UnknownResponse.
        """
        for run in (retry_run_id(named.run), named.run):
            params = {"session": named.session, "run_id": run, "timeout_ms": 0}
            try:
                return await self._services.http.call("agent.wait", params, self._services.caller(request))
            except UsageError:
                continue  # no such run, or it is no longer kept
        raise ResponseNotFound(request.path_params["response"])

    async def _call(self, request: Request, method: str, params: dict[str, Any]) -> Any:
        """Raises UnknownResponse where there is no such session."""
        try:
            return await self._services.http.call(method, params, self._services.caller(request))
        except HttpError:
            raise
        except UsageError as exc:
            raise ResponseNotFound(request.path_params["response"]) from exc


def _requested_run(request: Request) -> SessionRun:
    given = str(request.path_params["response"])
    named = read_response_id(given)
    if named is None:
        raise ResponseNotFound(given)
    return named


def _accepted_at(found: Any) -> float:
    return float(found.accepted_at if isinstance(found, RunOutcome) else found["accepted_at"])
