"""``/v1``: what an OpenAI client calls. ``model`` is an agent of the pool.

A kept response (``store``, the default) is the latest turn of a session of its own, which ``previous_response_id``
continues. So a response can be continued once, and deleting it deletes the whole conversation. It can be fetched while
the pool keeps the run's outcome.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from doors.http.api import read_body
from doors.http.errors import HttpError, json_response
from doors.http.services import HttpCaller, HttpServices, RouteSpec, identity_of, trace_of
from doors.http.tokens import Scope
from doors.openai.answer_checks import SchemaChecker
from doors.openai.cleanup import EphemeralSessions
from doors.openai.completion import AnswerStreamResponse, CompletionRun, UnansweredRuns
from doors.openai.completion_bodies import Chunks, completion_body
from doors.openai.errors import ModelNotFound, ResponseNotFound, render
from doors.openai.prompts import answered_call_ids
from doors.openai.requests import ModelInput, chat_input, read_chat, reject_conversation_params
from doors.openai.responses_bodies import ResponseEvents, response_body, response_head
from doors.openai.responses_requests import read_response, response_input
from doors.openai.session_ref import (
    OWN_SESSION,
    SessionRef,
    SessionRun,
    find_response_session_ref,
    find_session_ref,
    read_response_id,
    retry_run_id,
)
from errors import UsageError, error_from_wire
from gateway.runs.run import RunOutcome

_ANY_METHOD = ("GET", "POST", "PUT", "PATCH", "DELETE")
_ENDPOINTS_TEXT = (
    "GET /v1/models, POST /v1/chat/completions, POST /v1/responses, GET /v1/responses/{id}, DELETE /v1/responses/{id}"
)


def routes(services: HttpServices) -> Sequence[RouteSpec]:
    """Models, completions, responses, and a word about all else under ``/v1``."""
    door = _OpenAIRoutes(services)
    services.background_tasks.append(door.ephemeral_sessions.run)
    return [
        RouteSpec("/v1/models", door.models, Scope.READ, render=render),
        RouteSpec("/v1/models/{model}", door.model, Scope.READ, render=render),
        RouteSpec("/v1/chat/completions", door.complete, Scope.WRITE, ("POST",), render=render),
        RouteSpec("/v1/responses", door.respond, Scope.WRITE, ("POST",), render=render),
        RouteSpec("/v1/responses/{response}", door.retrieve, Scope.READ, render=render),
        RouteSpec("/v1/responses/{response}", door.delete, Scope.WRITE, ("DELETE",), render=render),
        RouteSpec("/v1/{rest:path}", door.unknown, Scope.READ, _ANY_METHOD, render=render),
    ]


class _OpenAIRoutes:
    def __init__(self, services: HttpServices) -> None:
        self._services = services
        self.ephemeral_sessions = EphemeralSessions(services)
        self._schemas = SchemaChecker()
        self._unanswered = UnansweredRuns()

    # --- models -----------------------------------------------------------------------------------------------------

    async def models(self, request: Request) -> Response:
        return json_response({"object": "list", "data": [self._model(name) for name in await self._agents(request)]})

    async def model(self, request: Request) -> Response:
        name = str(request.path_params["model"])
        await self._check_model(request, name)
        return json_response(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": int(self._services.started_at), "owned_by": "pool"}

    async def _agents(self, request: Request) -> list[str]:
        return [agent.name for agent in await self._call(request, "agents.list", {})]

    async def _check_model(self, request: Request, name: str) -> None:
        names = await self._agents(request)
        if name not in names:
            raise ModelNotFound(name, names)

    # --- answers ----------------------------------------------------------------------------------------------------

    async def complete(self, request: Request) -> Any:
        chat = read_chat(await self._read_body(request))
        asked = chat_input(chat)
        await self._check(request, asked, "response_format")
        place = find_session_ref(request.headers, chat.user, answered_call_ids(asked), identity_of(request).principal)
        created = int(time.time())
        chunks = Chunks(place, model=chat.model, created=created, includes_usage=chat.includes_usage)
        whole = partial(completion_body, place=place, model=chat.model, created=created)
        return await self._answer(request, asked, place, chat.ignored, chunks if chat.stream else whole)

    async def respond(self, request: Request) -> Any:
        body = read_response(await self._read_body(request))
        asked = response_input(body)
        await self._check(request, asked, "text.format")
        place = find_response_session_ref(
            request.headers,
            body.user,
            answered_call_ids(asked),
            identity_of(request).principal,
            previous=body.previous_response_id,
            is_kept=body.store is not False,
        )
        head = response_head(place, model=body.model, created=int(time.time()), request=body)
        whole = partial(response_body, head)
        return await self._answer(request, asked, place, body.ignored, ResponseEvents(head) if body.stream else whole)

    async def _answer(
        self,
        request: Request,
        asked: ModelInput,
        place: SessionRef,
        ignored: Sequence[str],
        shape: Chunks | ResponseEvents | Callable[[RunOutcome], dict[str, Any]],
    ) -> Any:
        """The answer in its ``shape``, with its run id and the ignored parameters as headers."""
        run = CompletionRun(
            self._services,
            self.ephemeral_sessions,
            self._schemas,
            self._unanswered,
            request=asked,
            session_ref=place,
            identity=identity_of(request),
            trace=trace_of(request),
        )
        headers = {"x-request-id": place.run, **({"x-pool-ignored": ", ".join(ignored)} if ignored else {})}
        if isinstance(shape, Chunks | ResponseEvents):
            return AnswerStreamResponse(run, shape, headers)
        outcome = await run.answer(request.receive)
        answer = json_response(outcome and shape(outcome))
        answer.headers.update(headers)
        return answer

    async def _read_body(self, request: Request) -> bytes:
        """The JSON of a request. Raises HttpError, UsageError for an address that names a conversation."""
        reject_conversation_params(request.query_params)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            text = "the body must be JSON, sent with content-type: application/json"
            raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
        return await read_body(request, self._services)

    async def _check(self, request: Request, asked: ModelInput, param: str) -> None:
        """Raises ModelNotFound; UsageError for an unusable schema, which the parameter ``param`` holds."""
        await self._check_model(request, asked.model)
        if asked.answer.json is not None and asked.answer.json.schema:
            await self._schemas.check(asked.answer.json.schema, param)

    # --- earlier responses ------------------------------------------------------------------------------------------

    async def retrieve(self, request: Request) -> Response:
        named = _requested_run(request)
        if request.query_params.get("stream", "false") != "false":
            raise UsageError("stream: an earlier response is not streamed again", param="stream")
        view = await self._session_of(request, named)
        found = await self._outcome(request, named)
        place = SessionRef(named.session, named.run, OWN_SESSION.fullmatch(named.session) is not None)
        is_ended = isinstance(found, RunOutcome)
        created = found.accepted_at if is_ended else found["accepted_at"]
        head = response_head(place, model=view.agent, created=int(created))
        if not is_ended:
            return json_response(response_body(head, None))
        if found.error is not None:
            error = error_from_wire(found.error.code, found.error.message, msgspec.to_builtins(found.error.data))
            return json_response(response_body(head, None, error=error))
        return json_response(response_body(head, found))

    async def delete(self, request: Request) -> Response:
        """Delete the whole conversation, which must be one of this door's own."""
        named = _requested_run(request)
        if OWN_SESSION.fullmatch(named.session) is None:
            text = f"it is part of session {named.session}, which was not made for it; delete that session instead"
            raise UsageError(f"this response cannot be deleted alone: {text}", param="response_id")
        await self._session_of(request, named)
        await self.ephemeral_sessions.delete(named.session)
        return json_response({"id": request.path_params["response"], "object": "response", "deleted": True})

    async def _session_of(self, request: Request, named: SessionRun) -> Any:
        """Raises ResponseNotFound."""
        try:
            return await self._call(request, "sessions.get", {"session": named.session})
        except UsageError as exc:
            raise ResponseNotFound(request.path_params["response"]) from exc

    async def _outcome(self, request: Request, named: SessionRun) -> Any:
        """The outcome of the run, or of the second run where the agent was asked again; its state if it has not ended.

        Raises ResponseNotFound.
        """
        for run in (retry_run_id(named.run), named.run):
            try:
                params = {"session": named.session, "run_id": run, "timeout_ms": 0}
                return await self._call(request, "agent.wait", params)
            except UsageError:
                continue  # no such run, or it is no longer kept
        raise ResponseNotFound(request.path_params["response"])

    # --- in common --------------------------------------------------------------------------------------------------

    async def unknown(self, request: Request) -> Response:
        text = f"there is no {request.method} {request.url.path[:200]} here; there are: {_ENDPOINTS_TEXT}"
        raise HttpError(HTTPStatus.NOT_FOUND, text)

    async def _call(self, request: Request, method: str, params: dict[str, Any]) -> Any:
        return await self._services.call(method, params, HttpCaller(identity_of(request), uuid.uuid4().hex))


def _requested_run(request: Request) -> SessionRun:
    given = str(request.path_params["response"])
    named = read_response_id(given)
    if named is None:
        raise ResponseNotFound(given)
    return named
